"""The address of an endpoint: what it adds to a request, and how long it does not answer when a part of it dies.

The single replica of a deployment that is not idempotent takes requests at the address itself; with an idempotent one
they go through the front door's process. One client calls each of them, and an application of a few lines on bare
uvicorn, in turn. Then parts are killed while a client calls over a new connection each time: the figure is the longest
time between two answers, less the usual one.
"""

from __future__ import annotations

import csv
import http.client
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

from bench.measure import Figure, interleave, median, quick, report, temporary_workspace
from bench.rolling import SCRIPT, muster
from bench.scoring import BARE, percentile, script

DEPLOYMENT = """
name: blue
endpoint_name: NAME
code_configuration: {code: src, scoring_script: score.py}
request_settings: {request_timeout_ms: 60000, max_concurrent_requests_per_instance: 64, max_queue_wait_ms: 60000}
idempotent: IDEMPOTENT
"""
WAIT_S = 120.0
REPLICA, WORKER, KEEPER = "muster.scoring.serve.replica", "muster.scoring.door.worker", "muster.scoring.door"


class Endpoint(NamedTuple):
    """An endpoint that is up."""

    folder: Path
    name: str
    uri: str
    key: str

    @property
    def port(self) -> int:
        return urlsplit(self.uri).port or 0


def main() -> None:
    is_quick = quick(__doc__)
    if shutil.which("ab") is None:
        sys.exit("bench.door needs ab (apache2-utils)")
    rounds, count, deaths = (1, 500, 1) if is_quick else (5, 5000, 5)
    with temporary_workspace() as workspace:
        folder = workspace.folder
        (folder / "src").mkdir()
        (folder / "src" / "score.py").write_text(SCRIPT)
        (folder / "body.json").write_text('{"a": 1}')
        direct, hop = deployed(folder, "direct", False), deployed(folder, "behind", True)
        until(lambda: holds(direct, REPLICA), "the replica did not take the endpoint's address")
        if not holds(hop, WORKER):
            sys.exit("the front door's process does not stand before an idempotent deployment")
        times = interleave(
            rounds,
            {
                "bare": partial(percentile, folder, script(folder, "bare.py", BARE), count, 1, 50),
                "direct": partial(half, direct, count),
                "hop": partial(half, hop, count),
            },
        )
        gaps = {
            "the front door's run, while a replica has the address": [gap(direct, KEEPER) for _ in range(deaths)],
            "the front door's process": [gap(hop, WORKER) for _ in range(deaths)],
            "the front door's run, while its process answers": [gap(hop, KEEPER) for _ in range(deaths)],
        }
        for name in ("direct", "behind"):
            muster(folder, "delete", name, "--yes")
    report("door", [*latencies(times), *deaths_of(gaps)], is_quick)


def latencies(times: dict[str, list[float]]) -> list[Figure]:
    added = {
        name: [mine - other for mine, other in zip(times[name], times["bare"], strict=True)]
        for name in ("direct", "hop")
    }
    return [
        median("one client, bare uvicorn, p50", times["bare"], "ms"),
        median("one client, added where the replica answers itself, p50", added["direct"], "ms", at_most=0.5),
        median("one client, added with the front door in between, p50", added["hop"], "ms"),
    ]


def deaths_of(gaps: dict[str, list[float]]) -> list[Figure]:
    """The longest gap of each kind; restarting a run depends on the agent and the server, and has no target."""
    last = "the front door's run, while its process answers"
    return [
        Figure(f"{what} is killed: without an answer", max(values), "s", None if what == last else 1.0, samples=values)
        for what, values in gaps.items()
    ]


def deployed(folder: Path, name: str, idempotent: bool) -> Endpoint:
    text = DEPLOYMENT.replace("NAME", name).replace("IDEMPOTENT", str(idempotent).lower())
    (folder / f"{name}.yml").write_text(text)
    muster(folder, "create", name)
    muster(folder, "deploy", "-f", f"{name}.yml", "--all-traffic")
    uri = json.loads(muster(folder, "show", name, "--json"))["scoring_uri"]
    return Endpoint(folder, name, uri, json.loads(muster(folder, "keys", name, "--json"))["primary"])


def half(endpoint: Endpoint, count: int) -> float:
    """Milliseconds within which half of the requests of one client were answered."""
    command = [
        "ab", "-q", "-k", "-e", "times.csv", "-c", "1", "-n", str(count), "-p", "body.json", "-T", "application/json",
        "-H", f"Authorization: Bearer {endpoint.key}", endpoint.uri,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=endpoint.folder, capture_output=True, text=True, check=True)
    if re.search(r"Non-2xx responses:\s+(\d+)", done.stdout):
        sys.exit(f"requests failed: {done.stdout}")
    with (endpoint.folder / "times.csv").open() as file:
        return next(float(row[1]) for row in csv.reader(file) if row[0] == "50")


def gap(endpoint: Endpoint, module: str) -> float:
    """The longest time between two answers while a process is killed and replaced, less the usual one."""
    process = next(item for item in parts(endpoint, module) if module != WORKER or has(item, endpoint))
    answered: list[float] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with suppress(OSError, http.client.HTTPException):
                if answers(endpoint):
                    answered.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(answered) > 20, "the endpoint does not answer")
        process.kill()
        killed = time.monotonic()
        until(lambda: sum(at > killed for at in answered) > 20, "the endpoint does not answer any more")
        # A run's next attempt is ready when its processes are there.
        until(lambda: len(parts(endpoint, WORKER)) == 2, "the front door did not come back")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    times = sorted(answered)
    between = sorted(later - earlier for earlier, later in pairwise(times))
    return between[-1] - between[len(between) // 2]


def answers(endpoint: Endpoint) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    try:
        connection.request("POST", "/score", "{}", {"Authorization": f"Bearer {endpoint.key}"})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def parts(endpoint: Endpoint, module: str) -> Sequence[psutil.Process]:
    """Processes of a module that belong to an endpoint, by the address that they or their children listen on."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = process.cmdline()
            is_one = len(words) > 2 and words[2] == module and process.cwd().startswith(str(endpoint.folder))
            if is_one and (module == REPLICA or has(process, endpoint)):
                found.append(process)
    return found


def has(process: psutil.Process, endpoint: Endpoint) -> bool:
    """Whether a process has the endpoint's port open."""
    with suppress(psutil.Error, OSError):
        return any(item.laddr.port == endpoint.port for item in process.net_connections("tcp") if item.laddr)
    return False


def holds(endpoint: Endpoint, module: str) -> bool:
    """Whether a process of the module has the connection of a client at the endpoint's address."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    try:
        connection.request("POST", "/score", "{}", {"Authorization": f"Bearer {endpoint.key}"})
        connection.getresponse().read()
        return any(
            item.status == psutil.CONN_ESTABLISHED and item.laddr.port == endpoint.port
            for process in parts(endpoint, module)
            for item in process.net_connections("tcp")
        )
    finally:
        connection.close()


def until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(otherwise)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
