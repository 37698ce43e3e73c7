"""The agent's part: a socket for each attempt, and a proxy process for attempts whose ranks use MLflow."""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import sys
import threading
from collections.abc import Callable

from muster.agent.attempt import Attempt
from muster.agent.mlflow.messages import RANK_PREFIX, ProxyRequest
from muster.agent.run.variables import NODE_MARK
from muster.agent.services import NodeServices
from muster.host.children import Child, ChildEnded
from muster.wire.codec import to_json
from muster.wire.node.agents import AttemptKey

log = logging.getLogger(__name__)

_BACKLOG = 512
_END_S = 1.0
_STARTS = 20


class Listener:
    """One attempt's address. The proxy is started when a rank first connects: most scripts never do."""

    def __init__(self, attempt: Attempt, services: NodeServices, experiment: str) -> None:
        self._attempt = attempt
        self._services = services
        self._experiment = experiment
        self.secret = secrets.token_urlsafe(24)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(_BACKLOG)
        self._child: Child | None = None
        self._closed = False
        self._lock = threading.Lock()

    def variables(self, rank: int) -> dict[str, str]:
        """The environment variables of a rank."""
        port = self.socket.getsockname()[1]
        return {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}{RANK_PREFIX}{rank}",
            "MLFLOW_TRACKING_TOKEN": self.secret,
            "MLFLOW_RUN_ID": self._attempt.order.run,
            "MLFLOW_EXPERIMENT_NAME": self._experiment,
        }

    def start(self) -> None:
        """Start a process that serves the socket from now on."""
        threading.Thread(target=self._keep_running, name="mlflow", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.socket.close()
            child, self._child = self._child, None
        if child is not None:
            child.end(_END_S)

    def _keep_running(self) -> None:
        """Restart a proxy that dies: ranks would wait for it for minutes."""
        for _ in range(_STARTS):
            child = self._started()
            if child is None:
                return
            for _message in child.messages():
                pass
            if not self._closed:
                log.warning("%s: the proxy for MLflow ended", self._attempt.key)

    def _started(self) -> Child | None:
        with self._lock:
            if self._closed:
                return None
            environment = {**os.environ, NODE_MARK: self._services.mark}
            command = [sys.executable, "-m", "muster.agent.mlflow"]
            child = self._child = Child(command, environment=environment, pass_fds=(self.socket.fileno(),))
            try:
                child.send(to_json(self._request()))
            except ChildEnded as error:
                log.warning("%s: the proxy for MLflow did not start: %s", self._attempt.key, error)
            return child

    def _request(self) -> ProxyRequest:
        order, paths, link = self._attempt.order, self._attempt.paths, self._services.link
        return ProxyRequest(
            self.socket.fileno(), order.run, order.attempt, self._experiment, self.secret, link.servers,
            order.run_token, link.address.pinned_certificate, str(paths.streams / "events"), str(paths.uploads),
        )  # fmt: skip


class Listeners:
    """The listeners of all attempts of a node; only the loop's thread may use this."""

    def __init__(self, selector: selectors.BaseSelector, close_later: Callable[[Callable[[], None]], None]) -> None:
        self._selector = selector
        self._close_later = close_later
        self._open: dict[AttemptKey, Listener] = {}

    def open(self, attempt: Attempt, services: NodeServices) -> Listener | None:
        """An address for the ranks of an attempt; None if the job sets its own, or if no socket can be opened."""
        ranks = attempt.order.plan.ranks if attempt.order.plan else ()
        given = {**attempt.order.user_env, **(ranks[0].env if ranks else {})}
        if "MLFLOW_TRACKING_URI" in given:
            return None
        try:
            listener = Listener(attempt, services, given.get("MUSTER_EXPERIMENT", "default"))
        except OSError as error:
            log.warning("%s: no address for MLflow: %s", attempt.key, error)
            return None
        self._open[attempt.key] = listener
        self._selector.register(listener.socket, selectors.EVENT_READ, lambda: self._called(listener))
        return listener

    def close(self, key: AttemptKey) -> None:
        listener = self._open.pop(key, None)
        if listener is not None:
            self._unwatch(listener)
            # Ending a process takes a moment, which the loop does not have.
            self._close_later(listener.close)

    def close_all(self) -> None:
        for listener in self._open.values():
            self._unwatch(listener)
            listener.close()
        self._open.clear()

    def _called(self, listener: Listener) -> None:
        self._unwatch(listener)
        self._close_later(listener.start)

    def _unwatch(self, listener: Listener) -> None:
        try:
            self._selector.unregister(listener.socket)
        except (KeyError, ValueError):
            pass
