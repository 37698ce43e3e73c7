"""`muster-agent CONFIG`: the agent of one node."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import logging.handlers
import os
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from muster.agent import gpus, identity
from muster.agent.link import Backoff, Link, Trouble
from muster.agent.node import Node
from muster.agent.run import runtime_copy
from muster.agent.run.keeper_pool import sweep
from muster.agent.run.sampler import Sampler
from muster.agent.setup import set_up
from muster.defaults import ORDERS_WAIT_S, PROTOCOL_VERSION
from muster.environments.images import engines
from muster.errors import AccessDenied, ProtocolMismatch
from muster.host import processes
from muster.paths import NodePaths
from muster.protocol import AgentConfig
from muster.version import VERSION

log = logging.getLogger("muster.agent")

_LOG_BYTES = 4 << 20
_SWEEP_PATIENCE_S = 3.0
_HOPELESS_WAIT_S = 5.0
_LOCK_PATIENCE_S = 0.5


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: muster-agent CONFIG   (the file that an engine writes)")
    config = identity.filled_in(read_config(Path(sys.argv[1])), os.environ)
    paths = NodePaths(Path(config.root))
    paths.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = take_lock(paths.lock)
    if lock is None:
        sys.exit(f"an agent for {config.root} is running already")
    is_first = not paths.log.exists()
    _log_to(paths.log)
    try:
        _run(config, paths, is_first)
    except BaseException:
        log.exception("the agent ends")
        raise
    finally:
        os.close(lock)


def _run(config: AgentConfig, paths: NodePaths, is_first: bool) -> None:
    processes.become_subreaper()
    processes.return_large_blocks()
    mark = hashlib.sha256(str(paths.root.resolve()).encode()).hexdigest()[:16]
    # The first agent of a node finds nobody; to look at every process of a large machine takes a while.
    swept = [] if is_first else sweep(mark, _SWEEP_PATIENCE_S, time.monotonic, time.sleep)
    if swept:
        log.warning("ended processes that an earlier agent left: %s", swept)
    if paths.containers_used.exists():
        engines.sweep(mark, os.environ, log.warning)
    done = set_up(paths, config.setup, mark) if config.setup else None
    agent_id = uuid.uuid4().hex
    link = Link(config, agent_id)
    gpu_ids = _gpu_ids(config)
    node = Node(config, link, runtime_copy.folder(paths, VERSION), mark, Sampler(gpu_ids))
    facts: dict[str, Any] = {
        "node": config.node,
        "cluster": config.cluster,
        "agent": agent_id,
        "host": identity.host_name(os.environ),
        "address": config.address,
        "pid": os.getpid(),
        "version": VERSION,
        "protocol": PROTOCOL_VERSION,
        "cpus": _cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": list(gpu_ids),
    }
    if done is not None:
        facts |= {"setup_error": done.error, "setup_log": done.output}

    def greet() -> None:
        link.hello({**facts, "holding": [list(key) for key in node.holding]})

    def install() -> None:
        runtime_copy.install(paths, VERSION)

    listener = Listener(link, node, greet)
    node.post(listener.start)
    # While the hello is on its way; orders are looked at after it.
    node.post(install)
    log.info("agent of %s started, pid %d", config.node, os.getpid())
    node.run(greet)
    log.info("agent of %s ends", config.node)


class Listener(threading.Thread):
    """Waits for orders, and says hello whenever the server may not know this agent."""

    def __init__(self, link: Link, node: Node, greet: Any) -> None:
        super().__init__(name="orders", daemon=True)
        self._link = link
        self._node = node
        self._greet = greet

    def run(self) -> None:
        backoff = Backoff()
        greeted, seen = False, -1
        while True:
            try:
                if not greeted:
                    self._greet()
                    greeted, seen = True, -1
                answer = self._link.orders(seen, ORDERS_WAIT_S)
                seen = answer["version"]
                orders, leave = answer.get("orders") or [], bool(answer.get("leave"))
                self._node.post(lambda orders=orders, leave=leave: self._node.apply_orders(orders, leave))  # type: ignore[misc]
                backoff.reset()
            except Trouble as error:
                greeted = False
                if backoff.fresh:
                    log.info("no orders: %s", error)
                hopeless = isinstance(error, (AccessDenied, ProtocolMismatch))
                time.sleep(_HOPELESS_WAIT_S if hopeless else backoff.next_s())


def read_config(path: Path) -> AgentConfig:
    data = json.loads(path.read_text())
    data["server"] = tuple(data["server"])
    if data.get("gpus") is not None:
        data["gpus"] = tuple(data["gpus"])
    return AgentConfig(**data)


def take_lock(path: Path) -> int | None:
    """Held by the living agent; None when another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # An engine that looks whether an agent lives holds the lock for a moment.
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)


def _log_to(path: Path) -> None:
    logging.raiseExceptions = False
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _gpu_ids(config: AgentConfig) -> tuple[str, ...]:
    return config.gpus if config.gpus is not None else tuple(gpu.id for gpu in gpus.query())


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


if __name__ == "__main__":
    main()
