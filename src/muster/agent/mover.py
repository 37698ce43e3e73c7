"""The agent's side of a transfer: a child process that does the heavy part, listened to from a worker thread."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from muster.agent.run.variables import NODE_MARK
from muster.errors import MusterError
from muster.host.children import own_children, spawning

log = logging.getLogger(__name__)

_LOOK_S = 0.2
_END_S = 2.0
_MOUNT_END_S = 10.0
_TRIES = 2

Renew = Callable[[list[str]], Mapping[str, Any]]
Told = Callable[[Mapping[str, Any]], None]


class Failed(Exception):
    """A transfer that did not work; the code is one of the verdict's. What is final will not pass by trying again."""

    def __init__(self, code: str, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.final = final


class Abandoned(MusterError):
    """Nobody wants the transfer any more."""


class Died(Failed):
    """The process went without a word; what it had done is still there."""

    def __init__(self) -> None:
        super().__init__("platform", "the process that moved the data was killed, twice")


@dataclass(frozen=True)
class Mover:
    """Starts movers for one attempt; called in worker threads."""

    mark: str
    unwanted: threading.Event

    @contextmanager
    def run(self, request: Mapping[str, Any], told: Told, renew: Renew) -> Iterator[dict[str, Any]]:
        """The transfer's result; what it holds in the cache stays held until the block ends. Raises Failed."""
        child, done = self._started(request, told, renew)
        try:
            yield done
        finally:
            _end(child)

    def serve(self, request: Mapping[str, Any], renew: Renew) -> Serving:
        """A transfer that goes on, such as a mount: its process stays until it is closed."""
        child, done = self._started(request, lambda _: None, renew)
        serving = Serving(child, done, renew)
        threading.Thread(target=serving.listen, name="mount", daemon=True).start()
        return serving

    def _started(
        self, request: Mapping[str, Any], told: Told, renew: Renew
    ) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        """A mover that has said what it did; one that was killed is started once more, and goes on from there."""
        for left in reversed(range(_TRIES)):
            child = self._start()
            try:
                return child, self._listen(child, request, told, renew)
            except Died:
                _end(child)
                if not left:
                    raise
            except BaseException:
                _end(child)
                raise
        raise AssertionError("unreachable")

    def _start(self) -> subprocess.Popen[bytes]:
        with spawning:
            child = subprocess.Popen(
                [sys.executable, "-m", "muster.storage.staging"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={**os.environ, NODE_MARK: self.mark},
                start_new_session=True,
            )
            own_children.add(child.pid)
        return child

    def _listen(
        self, child: subprocess.Popen[bytes], request: Mapping[str, Any], told: Told, renew: Renew
    ) -> dict[str, Any]:
        assert child.stdin is not None and child.stdout is not None
        unread = b""
        try:
            _say(child.stdin, request)
            while not self.unwanted.is_set():
                if not select.select([child.stdout], [], [], _LOOK_S)[0]:
                    continue
                data = os.read(child.stdout.fileno(), 1 << 20)
                if not data:
                    raise Died
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    message: dict[str, Any] = json.loads(line)
                    if "done" in message:
                        return dict(message["done"])
                    if "failed" in message:
                        raise Failed(**message["failed"])
                    if "need" in message:
                        _say(child.stdin, renew(message["need"]))
                    else:
                        told(message["progress"])
        except BrokenPipeError as error:
            raise Died from error
        raise Abandoned("nobody wants the data any more")


@dataclass
class Serving:
    """A mover that goes on."""

    child: subprocess.Popen[bytes]
    done: dict[str, Any]
    renew: Renew

    def listen(self) -> None:
        """Give it fresh tokens whenever it asks, until it ends."""
        assert self.child.stdin is not None and self.child.stdout is not None
        try:
            for line in self.child.stdout:
                message = json.loads(line)
                if "need" in message:
                    _say(self.child.stdin, self.renew(message["need"]))
        except (OSError, ValueError, MusterError) as error:
            log.info("a mount is no longer served: %s", error)

    def close(self) -> None:
        assert self.child.stdin is not None
        try:
            self.child.stdin.close()
            self.child.wait(_MOUNT_END_S)
        except (OSError, subprocess.TimeoutExpired):
            log.warning("a mount did not end by itself")
        _end(self.child)


def _say(pipe: Any, message: Mapping[str, Any]) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Its standard input's end tells it to go; if it does not, it is killed."""
    for pipe in (child.stdin, child.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    with spawning:
        own_children.discard(child.pid)


class Rate:
    """Progress in words: how much, how fast, how long still."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._shown = ""
        self._first = (0.0, 0)

    def text(self, progress: Mapping[str, Any]) -> str:
        now, done, total = self._clock(), progress["done_bytes"], progress["total_bytes"]
        moved = done - progress.get("resumed_bytes", 0)
        what = self._what.replace("fetching", progress["phase"]) if progress.get("phase") else self._what
        if what != self._shown:
            self._shown, self._first = what, (now, moved)
        text = f"{what}: {shown(done)} of {shown(total)}"
        if progress.get("total_files", 0) > 1:
            text += f", {progress['done_files']:,} of {progress['total_files']:,} files"
        seconds = now - self._first[0]
        rate = (moved - self._first[1]) / seconds if seconds > 0 else 0.0
        if rate > 0 and done < total:
            text += f", {shown(rate)}/s, about {_duration((total - done) / rate)} left"
        return text


def shown(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
