"""The server's end of the bridge: a child process that imports Ray, started when needed and again when it died."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress

from muster import errors
from muster.engines.ray import explanations
from muster.engines.ray.messages import About, BridgeMessage, Call
from muster.engines.ray.options import RayOptions
from muster.host.children import Child, ChildEnded
from muster.version import VERSION
from muster.wire.codec import Json, WireError, from_json, to_json

log = logging.getLogger("muster.server")

_FIRST_WAIT_S = 1.0
_MOST_WAIT_S = 15.0
_END_S = 5.0
_SILENT_S = 30.0
_KEPT = 20


class Away(Exception):
    """Ray does not answer now; the call may have arrived."""


class Bridge:
    """Calls to the broker of one Ray cluster, from any thread."""

    def __init__(self, options: RayOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._attached: Future[About] = Future()
        self._calls: dict[int, Future[Json]] = {}
        self._number = 0
        self._not_before = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._heard_at = 0.0
        """When the bridge last sent something."""
        self._closed = False
        self.dashboard = ""
        """The address of Ray's own dashboard."""
        self.trouble: errors.JobError | None = None
        """Why the last attempt to attach failed."""

    def attach(self, timeout_s: float) -> About:
        """The cluster's facts; Away while they are not available, JobError where it cannot be attached to."""
        deadline = time.monotonic() + _END_S
        while self._child is not None and self._has_failed() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._ensure(at_once=True)
        try:
            return self._attached.result(timeout_s)
        except FutureTimeout:
            raise Away(f"{self.options.address} has not answered for {timeout_s:g} s") from None

    def call(self, what: str, /, timeout_s: float, **arguments: Json) -> Json:
        """The broker's answer; Away where none comes in time."""
        self._ensure()
        if not self._attached.done() or self._has_failed():
            raise Away(str(self.trouble.message) if self.trouble else "it is being attached to")
        future: Future[Json] = Future()
        with self._lock:
            child = self._child
            self._number += 1
            number = self._number
            self._calls[number] = future
        try:
            if child is None:
                raise ChildEnded("the bridge is gone")
            child.send(to_json(Call(number, what, arguments)))
            return future.result(timeout_s)
        except FutureTimeout:
            silent_s = time.monotonic() - self._heard_at
            if child is not None and silent_s > _SILENT_S:
                # Its head may have vanished without notice; a new bridge finds the current one.
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
            raise Away(f"no answer for {max(timeout_s, silent_s):.0f} s") from None
        except (ChildEnded, OSError) as error:
            raise Away(str(error)) from error
        finally:
            with self._lock:
                self._calls.pop(number, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.end()

    def _has_failed(self) -> bool:
        return self._attached.done() and self._attached.exception() is not None

    def _ensure(self, at_once: bool = False) -> None:
        with self._lock:
            waits = time.monotonic() < self._not_before and not at_once
            if self._closed or self._child is not None or waits:
                return
            self._attached = Future()
            command = [self._python, "-m", "muster.engines.ray.bridge", self.options.address]
            try:
                self._child = Child(command, environment={**os.environ, **self.options.environment()}, keep_lines=_KEPT)
            except OSError as error:
                why = f"python: {self._python} cannot be started: {error.strerror}"
                self._fail(errors.JobError(why, "See docs/ray.md."), self._attached)
                return
            child, attached = self._child, self._attached
            self._heard_at = time.monotonic()
        threading.Thread(target=self._listen, args=(child, attached), name="ray", daemon=True).start()

    @property
    def _python(self) -> str:
        return self.options.python or sys.executable

    def _listen(self, child: Child, attached: Future[About]) -> None:
        try:
            for message in child.messages():
                self._heard_at = time.monotonic()
                self._take(from_json(BridgeMessage, message), attached)
            child.wait(_END_S)
        except WireError as error:
            self._refused(f"another Muster answers there: {error}", "", attached)
        code, said = child.end(), child.last_words()
        with self._lock:
            self._child = None
            self._not_before = time.monotonic() + self._wait_s
            self._wait_s = min(self._wait_s * 2, _MOST_WAIT_S)
            left, self._calls = list(self._calls.values()), {}
        if not attached.done():
            self._refused("\n".join(said) or f"the bridge ended with code {code}", "", attached)
        elif self._attached is attached:
            self._attached = Future()
        for future in left:
            if not future.done():
                future.set_exception(OSError("the bridge to Ray ended"))
        if not self._closed:
            log.warning("the bridge to Ray at %s ended: %s", self.options.address, self.trouble or said[-1:])

    def _take(self, message: BridgeMessage, attached: Future[About]) -> None:
        if message.attached is not None and message.attached.muster == VERSION:
            self.trouble = None
            self.dashboard = message.attached.dashboard
            self._wait_s = _FIRST_WAIT_S
            attached.set_result(message.attached)
        elif message.attached is not None:
            self._fail(explanations.other_muster(message.attached.muster, VERSION), attached)
        elif message.failed is not None:
            self._refused(message.failed, message.kind, attached)
        else:
            self._hand_over(message)

    def _refused(self, said: str, kind: str, attached: Future[About]) -> None:
        self._fail(explanations.why_not_attached(self.options.address, said, kind, self._python), attached)

    def _fail(self, error: errors.JobError, attached: Future[About]) -> None:
        self.trouble = error
        if not attached.done():
            attached.set_exception(error)

    def _hand_over(self, message: BridgeMessage) -> None:
        with self._lock:
            future = self._calls.get(message.id)
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(OSError(message.error))
        else:
            future.set_result(message.answer)
