"""The settings of a model server, passed as its command's only argument."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Sequence


@dataclass(frozen=True)
class Settings:
    """The settings of one deployment."""

    script: str = ""
    name: str = "model"
    """The name of the model in addresses of the Open Inference Protocol."""
    version: str = "1"
    host: str = "127.0.0.1"
    port: int = 5001
    replicas: int = 1
    max_batch: int = 1
    """How many requests `run()` gets together; 1: each alone."""
    max_wait_ms: float = 5.0
    """How long the first request of a batch waits for others."""
    timeout_ms: float = 60_000.0
    max_queue: int = 256
    """How many requests may wait in one replica; more are refused with 429."""
    max_body: int = 512 << 20
    endpoint: str = ""
    """The deployment's endpoint: each replica has its own listener, and the front door of the endpoint asks them."""
    deployment: str = ""
    max_replicas: int = 0
    """More than `replicas`, which may then be 0: as many are started as the load needs."""
    target_percent: float = 70.0
    """How busy replicas should be when their number follows the load."""
    polling_s: float = 1.0
    """How often their number is decided."""
    idle_s: float = 30.0
    """How long fewer must be enough before one is ended."""
    probe_delay_s: float = 10.0
    """After a replica is ready, how long until its first probe."""
    probe_period_s: float = 10.0
    probe_timeout_s: float = 2.0
    probe_failures: int = 30
    """After so many probes in a row without an answer a replica is replaced."""

    collections: Sequence[str] = ()
    """The collections to keep: `request`, `response`, and those that the script collects under other names."""
    sampling_rate: float = 1.0
    rolling_rate: str = "hour"
    captured_headers: Sequence[str] = ()

    @staticmethod
    def parse(text: str) -> Settings:
        return Settings(**json.loads(text))

    def dump(self) -> str:
        return json.dumps(asdict(self))
