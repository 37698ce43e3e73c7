"""Health checks and submissions while 200 connections are slow and 300 people follow a run."""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.measure import Figure, Workspace, quick, report, temporary_workspace
from muster.job.spec import JobSpec

SPEAKER = "while true; do echo a line of the log; sleep 0.1; done"
MOST_S = 1.0


def main() -> None:
    is_quick = quick(__doc__)
    slow, followers, rounds = (20, 30, 20) if is_quick else (200, 300, 300)
    with temporary_workspace() as workspace, ExitStack() as held:
        client = workspace.client
        client.create_cluster("idle", options={"max_nodes": 1})
        client.change_cluster("idle", state="stopped")
        spoken = client.submit(JobSpec(command=SPEAKER), python=sys.executable).id
        while client.run(spoken).status != "Running":
            time.sleep(0.05)
        be_slow(workspace, slow, held)
        heard = follow(workspace, spoken, followers, held)
        waiting = JobSpec(command=("true",), compute="idle")
        samples = {
            "health": timed(rounds, lambda: client.health().pid),
            "submission": timed(rounds, lambda: client.submit(waiting, python=sys.executable).id),
        }
        still = sum(1 for count in heard if count)
        client.cancel(spoken, force=True)
    if still < followers:
        raise SystemExit(f"{still} of {followers} followers were sent something")
    figures = []
    for name, taken in samples.items():
        figures.append(Figure(f"{name}, median", statistics.median(taken), "s"))
        last = statistics.quantiles(taken, n=100)[98]
        figures.append(Figure(f"{name}, 99th percentile", last, "s", at_most=None if is_quick else MOST_S))
    report("headroom", figures, is_quick)


def timed(rounds: int, call: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def dial(workspace: Workspace) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(workspace.client.address.url.removeprefix("unix:"))
    return connection


def request(workspace: Workspace, method: str, path: str, *headers: str) -> bytes:
    token = f"Authorization: Bearer {workspace.client.address.token}"
    return "\r\n".join([f"{method} /api/v1{path} HTTP/1.1", "Host: x", token, *headers, "", ""]).encode()


def be_slow(workspace: Workspace, count: int, held: ExitStack) -> None:
    """A third sends headers without end, a third uploads a byte now and then, a third does not read its answer."""
    connections = [held.enter_context(dial(workspace)) for _ in range(count)]
    for number, connection in enumerate(connections):
        if number % 3 == 0:
            connection.sendall(request(workspace, "GET", "/runs")[:-2] + b"X-More: 1\r\n")
        elif number % 3 == 1:
            upload = f"/data/workspaceblobstore/slow/{number}"
            connection.sendall(request(workspace, "PUT", upload, "Content-Length: 100000000") + b"x" * 4096)
        else:
            connection.sendall(request(workspace, "GET", "/openapi.json") * 50)
    threading.Thread(target=drip, args=(connections[1::3],), daemon=True).start()


def drip(connections: list[socket.socket]) -> None:
    """Fast enough not to be ended, and far too slow to end."""
    while True:
        for connection in connections:
            try:
                connection.sendall(b"x" * 2048)
            except OSError:
                continue
        time.sleep(1.0)


def follow(workspace: Workspace, run: str, count: int, held: ExitStack) -> list[int]:
    """Followers that read what they are sent; returns how many bytes each has had, counted on."""
    heard = [0] * count
    connections = [held.enter_context(dial(workspace)) for _ in range(count)]
    for connection in connections:
        connection.sendall(request(workspace, "GET", f"/runs/{run}/stream"))
    threading.Thread(target=read_all, args=(connections, heard), daemon=True).start()
    return heard


def read_all(connections: list[socket.socket], heard: list[int]) -> None:
    selector = selectors.DefaultSelector()
    for number, connection in enumerate(connections):
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, number)
    while True:
        for key, _ in selector.select():
            try:
                heard[key.data] += len(key.fileobj.recv(65536))  # type: ignore[union-attr]
            except OSError:
                continue


if __name__ == "__main__":
    main()
