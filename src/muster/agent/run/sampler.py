"""CPU, memory, network and GPUs of the node, as metric lines next to those of the ranks."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path

import psutil

from muster.agent import devices
from muster.defaults import SAMPLE_S
from muster.host.sandbox.fence import open_inside
from muster.wire.node.agents import AttemptKey

log = logging.getLogger(__name__)

FIRST_SAMPLE_S = 1.0


class Sampler(threading.Thread):
    """Writes a sample into every running attempt's `events/node_N.jsonl`: soon after its start, then every SAMPLE_S."""

    def __init__(self, gpu_ids: tuple[str, ...]) -> None:
        super().__init__(name="sampler", daemon=True)
        self._gpu_ids = gpu_ids
        self._due: dict[AttemptKey, tuple[Path, float]] = {}
        """Each attempt's file, and when it gets its next sample."""
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closing = False
        self._meter = Meter()
        self.last: dict[str, float] = self._meter.read()

    def add(self, key: AttemptKey, file: Path) -> None:
        """Sample an attempt, not at once: a very short one needs no sample, and a rate needs some time."""
        with self._lock:
            self._due[key] = (file, time.monotonic() + FIRST_SAMPLE_S)
        self._changed.set()

    def remove(self, key: AttemptKey) -> None:
        """Stop sampling an attempt: after this nothing more is written for it."""
        with self._lock:
            self._due.pop(key, None)

    def close(self) -> None:
        self._closing = True
        self._changed.set()

    def run(self) -> None:
        while not self._closing:
            self._changed.wait(self._wait_s())
            self._changed.clear()
            if self._wait_s() != 0.0:
                continue
            self.last = {**self._meter.read(), **self._read_gpus()}
            now = time.monotonic()
            with self._lock:
                for key, (file, at) in self._due.items():
                    if at <= now:
                        _append(file, self.last)
                        self._due[key] = (file, now + SAMPLE_S)

    def _wait_s(self) -> float | None:
        """Until the next sample; None while there is nothing to watch."""
        with self._lock:
            nearest = min((at for _, at in self._due.values()), default=None)
        return None if nearest is None else max(0.0, nearest - time.monotonic())

    def _read_gpus(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for gpu in devices.query_gpus() if self._gpu_ids else ():
            if gpu.id in self._gpu_ids:
                values[f"node/gpu{gpu.id}_percent"] = gpu.percent
                values[f"node/gpu{gpu.id}_memory_used_bytes"] = gpu.memory_used_bytes
        return values


class Meter:
    """Rates between two readings."""

    def __init__(self) -> None:
        psutil.cpu_percent(None)
        self._at = time.monotonic()
        self._sent, self._received = _network()

    def read(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        sent, received = _network()
        now = time.monotonic()
        elapsed_s = max(now - self._at, 1e-3)
        values = {
            "node/cpu_percent": psutil.cpu_percent(None),
            "node/memory_percent": memory.percent,
            "node/memory_used_bytes": float(memory.total - memory.available),
            "node/network_sent_bytes_per_s": max(0.0, sent - self._sent) / elapsed_s,
            "node/network_received_bytes_per_s": max(0.0, received - self._received) / elapsed_s,
        }
        self._at, self._sent, self._received = now, sent, received
        return values


def _network() -> tuple[float, float]:
    counters = psutil.net_io_counters()
    return (float(counters.bytes_sent), float(counters.bytes_recv)) if counters else (0.0, 0.0)


def _append(file: Path, sample: dict[str, float]) -> None:
    at = time.time()
    lines = [
        json.dumps({"kind": "metric", "type": "scalar", "name": name, "value": value, "step": None, "at": at})
        for name, value in sample.items()
    ]
    try:
        # Ranks may write there too, and put a link in its place.
        descriptor = open_inside(file.parent, Path(file.name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, ("\n".join(lines) + "\n").encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        log.warning("no sample in %s: %s", file, error)
