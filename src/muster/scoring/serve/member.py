"""A run as part of an endpoint: reports its replicas and their work to the server, and follows its orders."""

from __future__ import annotations

import http.client
import os
import sys
import threading
import time
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping

from muster.scoring.link import Link, Unreachable
from muster.scoring.listening import listener_on
from muster.scoring.serve.settings import Settings
from muster.scoring.serve.supervisor import Replica, Supervisor

REPORT_S = 1.0
_AGAIN_S = 0.5


@dataclass(frozen=True)
class Orders:
    """The server's answer to a run of an endpoint."""

    key: str = ""
    """The key that the front door presents to replicas."""
    host: str = "127.0.0.1"
    waiting: int = 0
    """Requests that wait in the front door."""
    followed: bool = False
    """The front door uses the reported replicas."""

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Orders:
        """The orders as the server sent them; unknown fields, from a newer version, are left out."""
        return Orders(**{item.name: given[item.name] for item in fields(Orders) if item.name in given})


def first_orders(link: Link, attempt: int) -> Orders:
    """Ask until the server answers: it was running a moment ago, since it started this run."""
    said = ""
    while True:
        try:
            return Orders.parse(link.call("POST", "serving", {"attempt": attempt}))
        except Unreachable as error:
            if str(error) != said:
                said = str(error)
                print("muster: the workspace's server does not answer: {}".format(said), file=sys.stderr)
            time.sleep(_AGAIN_S)


class Reporter:
    """Reports a supervisor's replicas to the server: at once when they change, and their work every second."""

    def __init__(self, link: Link, supervisor: Supervisor, settings: Settings, attempt: int, orders: Orders) -> None:
        self._link = link
        self._supervisor = supervisor
        self._settings = settings
        self._attempt = attempt
        self._orders = orders
        self._news = threading.Event()
        self._is_heard = True
        supervisor.changed = self._news.set
        supervisor.waiting_elsewhere = lambda: self._orders.waiting
        supervisor.may_shrink = lambda: self._is_heard
        for work in (self._report, self._probe):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def _report(self) -> None:
        while True:
            self._news.wait(REPORT_S)
            self._news.clear()
            message = self._message()
            try:
                self._orders = Orders.parse(self._link.call("POST", "serving", message))
                self._is_heard = True
                if self._orders.followed:
                    self._supervisor.unasked_but([replica["port"] for replica in message["replicas"]])
            except Unreachable:
                self._is_heard = False
                time.sleep(_AGAIN_S)
                self._news.set()

    def _message(self) -> Dict[str, Any]:
        supervisor = self._supervisor
        totals = supervisor.totals
        p50, p95, p99 = totals.run_ms.percentiles(0.5, 0.95, 0.99)
        figures = {
            "deployment": self._settings.deployment, "requests": totals.requests, "failed": totals.failed,
            "rate": totals.queue_ms.count / 60, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99,
            "queue_p95_ms": totals.queue_ms.percentiles(0.95)[0],
            "batch_mean": totals.batched / totals.batches if totals.batches else 0.0,
            "busy": min(1.0, supervisor.busy), "restarts": totals.restarts,
        }  # fmt: skip
        replicas = [{"port": replica.port, "ready": replica.is_ready} for replica in supervisor.active]
        return {"attempt": self._attempt, "replicas": replicas, "figures": [figures]}

    def _probe(self) -> None:
        """End replicas that are alive but do not answer: they are restarted like those that died."""
        failures: Dict[int, int] = {}
        settings = self._settings
        while True:
            time.sleep(settings.probe_period_s)
            now = time.monotonic()
            alive: List[Replica] = [replica for replica in self._supervisor.active if replica.is_ready]
            for replica in alive:
                pid = replica.process.pid
                if now - replica.ready_at < settings.probe_delay_s:
                    continue
                failures[pid] = 0 if _answers(replica, settings.probe_timeout_s) else failures.get(pid, 0) + 1
                if failures[pid] >= settings.probe_failures and replica.process.poll() is None:
                    print(
                        "muster: replica {} did not answer {} probes: it is ended".format(
                            replica.number, failures.pop(pid)
                        ),
                        file=sys.stderr,
                    )
                    replica.process.kill()


def _answers(replica: Replica, timeout_s: float) -> bool:
    host, port = replica.listener.getsockname()[:2]
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def serve_as_member(settings: Settings, run: Any) -> Supervisor:
    """The supervisor of one run of a deployment, with a listener for each replica."""
    link, attempt = Link(), int(os.environ.get("MUSTER_ATTEMPT", "1"))
    orders = first_orders(link, attempt)
    environment = {**os.environ, "SERVE_KEY": orders.key}
    supervisor = Supervisor(settings, lambda number: listener_on(orders.host), run, environment)
    Reporter(link, supervisor, settings, attempt, orders)
    return supervisor
