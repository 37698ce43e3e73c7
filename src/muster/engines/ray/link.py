"""The server's end of the bridge: a child process that knows Ray, started when it is needed and again when it died."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from muster import errors
from muster.engines.ray import words
from muster.engines.ray.options import RayOptions
from muster.version import VERSION

log = logging.getLogger("muster.server")

_FIRST_WAIT_S = 1.0
_MOST_WAIT_S = 15.0
_END_S = 5.0
_KEPT = 20


class Away(Exception):
    """Ray does not answer now; it may have heard."""


class Bridge:
    """Calls to the broker of one Ray cluster, from any thread."""

    def __init__(self, options: RayOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._attached: Future[dict[str, Any]] = Future()
        self._calls: dict[int, Future[Any]] = {}
        self._number = 0
        self._not_before = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._closed = False
        self._said: list[str] = []
        self.trouble: errors.JobError | None = None
        """Why the last try to attach failed."""

    def attach(self, timeout_s: float) -> dict[str, Any]:
        """What the cluster is; Away where that takes longer, JobError where it cannot be attached to."""
        deadline = time.monotonic() + _END_S
        while self._child is not None and self._has_failed() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._ensure(at_once=True)
        try:
            return self._attached.result(timeout_s)
        except FutureTimeout:
            raise Away(f"{self.options.address} has not answered for {timeout_s:g} s") from None

    def call(self, what: str, /, timeout_s: float, **arguments: Any) -> Any:
        """The broker's answer; Away where it cannot be had in time."""
        self._ensure()
        if not self._attached.done() or self._has_failed():
            raise Away(str(self.trouble.message) if self.trouble else "it is being attached to")
        future: Future[Any] = Future()
        with self._lock:
            child = self._child
            self._number += 1
            number = self._number
            self._calls[number] = future
        try:
            if child is None or child.stdin is None:
                raise OSError("the bridge is gone")
            child.stdin.write(json.dumps({"id": number, "call": what, "arguments": arguments}) + "\n")
            child.stdin.flush()
            return future.result(timeout_s)
        except FutureTimeout:
            raise Away(f"no answer for {timeout_s:g} s") from None
        except (OSError, ValueError) as error:
            raise Away(str(error)) from error
        finally:
            with self._lock:
                self._calls.pop(number, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            child = self._child
        if child is not None:
            child.kill()
            child.wait()

    def _has_failed(self) -> bool:
        return self._attached.done() and self._attached.exception() is not None

    def _ensure(self, at_once: bool = False) -> None:
        with self._lock:
            waits = time.monotonic() < self._not_before and not at_once
            if self._closed or self._child is not None or waits:
                return
            self._attached = Future()
            python = self.options.python or sys.executable
            try:
                self._child = subprocess.Popen(
                    [python, "-m", "muster.engines.ray.bridge", self.options.address],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd="/",
                    env={**os.environ, **self.options.environment()},
                    start_new_session=True,
                )
            except OSError as error:
                self._fail(errors.JobError(f"python: {python} cannot be started: {error.strerror}", "See docs/ray.md."))
                return
            child, attached = self._child, self._attached
        threading.Thread(target=self._listen, args=(child, attached), name="ray", daemon=True).start()
        threading.Thread(target=self._keep, args=(child,), name="ray-errors", daemon=True).start()

    def _listen(self, child: subprocess.Popen[str], attached: Future[dict[str, Any]]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            answer = json.loads(line)
            if "attached" in answer:
                self._welcome(answer["attached"], attached)
            elif "failed" in answer:
                self._refused(answer["failed"], answer["kind"], attached)
            else:
                self._hand_over(answer)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with self._lock:
            self._child = None
            self._not_before = time.monotonic() + self._wait_s
            self._wait_s = min(self._wait_s * 2, _MOST_WAIT_S)
            left, self._calls = list(self._calls.values()), {}
        if not attached.done():
            said = "\n".join(self._said) or f"the bridge ended with code {child.returncode}"
            self._refused(said, "", attached)
        elif self._attached is attached:
            self._attached = Future()
        for future in left:
            if not future.done():
                future.set_exception(OSError("the bridge to Ray ended"))
        if not self._closed:
            log.warning("the bridge to Ray at %s ended: %s", self.options.address, self.trouble or self._said[-1:])

    def _welcome(self, about: dict[str, Any], attached: Future[dict[str, Any]]) -> None:
        if about["muster"] != VERSION:
            self._fail(words.other_muster(about["muster"], VERSION), attached)
            return
        self.trouble = None
        self._wait_s = _FIRST_WAIT_S
        attached.set_result(about)

    def _refused(self, said: str, kind: str, attached: Future[dict[str, Any]]) -> None:
        python = self.options.python or sys.executable
        self._fail(words.why_not_attached(self.options.address, said, kind, python), attached)

    def _fail(self, error: errors.JobError, attached: Future[dict[str, Any]] | None = None) -> None:
        self.trouble = error
        attached = attached or self._attached
        if not attached.done():
            attached.set_exception(error)

    def _hand_over(self, answer: dict[str, Any]) -> None:
        with self._lock:
            future = self._calls.get(answer["id"])
        if future is None or future.done():
            return
        if "error" in answer:
            future.set_exception(OSError(answer["error"]))
        else:
            future.set_result(answer["answer"])

    def _keep(self, child: subprocess.Popen[str]) -> None:
        """The last lines of what ray prints, for messages."""
        assert child.stderr is not None
        with child.stderr:
            for line in child.stderr:
                self._said = [*self._said[-_KEPT:], line.rstrip()]
