"""A node's set-up command: run once per node and text of the command, before its first job; its output is kept."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from muster.agent.run.variables import NODE_MARK
from muster.defaults import SETUP_TIMEOUT_S
from muster.host import processes
from muster.host.locks import FileLock
from muster.paths import NodePaths

log = logging.getLogger(__name__)

_KEPT_BYTES = 256 << 10


class SetUp(NamedTuple):
    """The outcome of the command."""

    error: str | None
    output: str


def set_up(paths: NodePaths, command: str, mark: str, timeout_s: float = SETUP_TIMEOUT_S) -> SetUp:
    """Run the command under bash unless this node has done so already."""
    digest = hashlib.sha256(command.encode()).hexdigest()
    if paths.setup_done.exists() and paths.setup_done.read_text() == digest:
        return SetUp(None, _tail(paths.setup_log))
    log.info("running the node's set-up command")
    # Nodes of one host take turns: the command need not be safe to run concurrently.
    with FileLock(paths.root.parent / "setup.lock").acquire():
        error = _run(paths, command, mark, timeout_s)
    if error is None:
        paths.setup_done.write_text(digest)
    else:
        log.error("the set-up command failed: %s", error)
    return SetUp(error, _tail(paths.setup_log))


def _run(paths: NodePaths, command: str, mark: str, timeout_s: float) -> str | None:
    parent = os.getpid()
    with paths.setup_log.open("wb") as out:
        child = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=paths.root,
            env={**os.environ, NODE_MARK: mark},
            start_new_session=True,
            preexec_fn=lambda: processes.die_with_parent(parent),
        )
        with _ending_with_us(child):
            try:
                code = child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                _end(child)
                return f"not done after {timeout_s:g} s"
    if code == 0:
        return None
    last = _tail(paths.setup_log).strip().splitlines()
    detail = f": {last[-1][:300]}" if last else ""
    return (f"exit code {code}" if code > 0 else f"signal {-code}") + detail


@contextlib.contextmanager
def _ending_with_us(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def end(number: int, _frame: FrameType | None) -> None:
        _end(child)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_KEPT_BYTES:].decode(errors="replace")
    except OSError:
        return ""
