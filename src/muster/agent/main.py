"""`muster-agent CONFIG`: the agent of one node."""

from __future__ import annotations

import hashlib
import json
import logging
import logging.handlers
import os
import pwd
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from muster.agent import devices, identity
from muster.agent.link import Backoff, Link, Trouble
from muster.agent.node import Node
from muster.agent.peers import Peers
from muster.agent.run import runtime_copy
from muster.agent.run.fence import start_fence
from muster.agent.run.keeper_pool import sweep
from muster.agent.run.sampler import Sampler
from muster.agent.services import NodeServices
from muster.agent.setup import set_up
from muster.agent.ship.shipper import Shipper
from muster.agent.threads import Loop
from muster.defaults import ORDERS_WAIT_S, PROTOCOL_VERSION
from muster.environments.images import engines
from muster.errors import AccessDenied, ProtocolMismatch
from muster.host import processes, watchdog
from muster.host.files import PRIVATE, write_json
from muster.host.locks import FileLock
from muster.paths import NodePaths
from muster.version import VERSION
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import AgentConfig, Hello, ServerContact

log = logging.getLogger("muster.agent")

_LOG_BYTES = 4 << 20
_SWEEP_PATIENCE_S = 3.0
_HOPELESS_WAIT_S = 5.0
_LOCK_PATIENCE_S = 0.5


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: muster-agent CONFIG   (the file that an engine writes)")
    config = identity.filled_in(from_json(AgentConfig, json.loads(Path(sys.argv[1]).read_text())), os.environ)
    paths = NodePaths(Path(config.root))
    paths.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An engine that checks whether an agent is alive holds the lock for a moment.
    lock = FileLock(paths.lock).acquire_within(_LOCK_PATIENCE_S)
    if lock is None:
        sys.exit(f"an agent for {config.root} is running already")
    is_first = not paths.log.exists()
    _log_to(paths.log)
    # A hanging agent would block its gang and its node; the next one takes over both.
    watchdog.end_without_memory()
    watchdog.watch()
    try:
        _run(config, paths, is_first)
    except BaseException:
        log.exception("the agent ends")
        raise
    finally:
        lock.release()


def _run(config: AgentConfig, paths: NodePaths, is_first: bool) -> None:
    processes.become_subreaper()
    processes.return_large_blocks()
    mark = hashlib.sha256(str(paths.root.resolve()).encode()).hexdigest()[:16]
    # The first agent of a node has no predecessor; scanning every process of a large machine takes a while.
    swept = [] if is_first else sweep(mark, _SWEEP_PATIENCE_S, time.monotonic, time.sleep)
    if swept:
        log.warning("ended processes that an earlier agent left: %s", swept)
    if paths.containers_used.exists():
        engines.sweep(mark, os.environ, log.warning)
    done = set_up(paths, config.setup, mark) if config.setup else None
    agent_id = uuid.uuid4().hex
    link = Link(config, agent_id)
    gpu_ids = config.gpus if config.gpus is not None else tuple(gpu.id for gpu in devices.query_gpus())
    runtime, loop = paths.runtime / VERSION, Loop()
    peers = Peers(link, paths, config.node, config.address, mark)
    services = NodeServices(paths, link, Shipper(link), runtime, mark, {**_identity(), **os.environ}, peers)
    node = Node(config, services, loop, Sampler(gpu_ids))
    hello = Hello(
        node=config.node,
        cluster=config.cluster,
        agent=agent_id,
        protocol=PROTOCOL_VERSION,
        version=VERSION,
        host=identity.host_name(os.environ),
        address=config.address,
        pid=os.getpid(),
        cpus=_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpu_ids,
        setup_error=done.error if done else None,
        setup_log=done.output if done else None,
        builds=True,
    )

    def greet() -> None:
        link.hello(replace(hello, holding=node.holding))

    def note(reached: bool) -> None:
        met = {} if reached else dict(link.met)
        write_json(paths.contact, to_json(ServerContact(hello.host, reached, met)), mode=PRIVATE)

    listener = threading.Thread(target=_listen, args=(link, node, greet, note), name="orders", daemon=True)
    loop.post(listener.start)
    # Done while the hello is on its way; orders are read after it.
    loop.post(partial(runtime_copy.install, runtime))
    start_fence(config.subnet)
    log.info("agent of %s started, pid %d", config.node, os.getpid())
    node.run(greet)
    peers.close()
    log.info("agent of %s ends", config.node)


def _listen(link: Link, node: Node, greet: Callable[[], None], note: Callable[[bool], None]) -> None:
    """In a thread: wait for orders, and say hello whenever the server may not know this agent.

    Until the first hello, errors are written where the engine finds them.
    """
    backoff = Backoff()
    greeted, reached, seen = False, False, -1
    while True:
        try:
            if not greeted:
                greet()
                greeted, seen = True, -1
                if not reached:
                    reached = True
                    note(True)
            answer = link.orders(seen, ORDERS_WAIT_S)
            seen = answer.version
            node.apply_orders(answer)
            backoff.reset()
        except Trouble as error:
            greeted = False
            if not reached:
                note(False)
            if backoff.fresh:
                log.info("no orders: %s", error)
            hopeless = isinstance(error, (AccessDenied, ProtocolMismatch))
            time.sleep(_HOPELESS_WAIT_S if hopeless else backoff.next_s())


def _log_to(path: Path) -> None:
    logging.raiseExceptions = False
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _identity() -> dict[str, str]:
    """The agent's user, even where the environment does not name it."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return {}
    return {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
