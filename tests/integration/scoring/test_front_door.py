"""The endpoint's address in the hands of its only replica: no hop, the same codes, and changes that cost no request."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli
from tests.integration.scoring.test_endpoints import MANY, Asking, deploy, processes_of

__all__ = ["cli", "deploy"]


class Keeping:
    """A client that keeps its connection as long as the endpoint does."""

    def __init__(self, ask: Asking) -> None:
        self._ask = ask
        self.connection = http.client.HTTPConnection("127.0.0.1", ask.address.port, timeout=60)

    def __call__(self, body: str = "{}") -> tuple[int, Any]:
        self.connection.request("POST", "/score", body, {"Authorization": f"Bearer {self._ask.key}"})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())


@contextmanager
def kept_load(ask: Asking, clients: int = 4) -> Iterator[Counter[str]]:
    """Requests over kept connections while the block lasts; counts what came of them."""
    found: Counter[str] = Counter()
    over = threading.Event()

    def work() -> None:
        client = Keeping(ask)
        while not over.is_set():
            try:
                status, said = client()
                found[str(status)] += 1
                found[str(said.get("color"))] += 1
            except (OSError, http.client.HTTPException) as error:
                found[repr(error)] += 1
        client.connection.close()

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join()


def takers(folder: Any, module: str, port: int | None) -> set[int]:
    """Processes that have a connection of a client at the endpoint's own port."""
    found = set()
    for process in processes_of(folder, module):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == port:
                found.add(process.pid)
    return found


def takers_of_one(folder: Any, ask: Asking) -> int:
    """The process at the front door that takes connections."""
    client = Keeping(ask)
    assert client()[0] == 200
    (found,) = takers(folder, "door.worker", ask.address.port)
    client.connection.close()
    return found


def is_direct(folder: Any, ask: Asking) -> bool:
    client = Keeping(ask)
    try:
        assert client()[0] == 200
        return bool(takers(folder, "serve.replica", ask.address.port))
    finally:
        client.connection.close()


@pytest.mark.timeout(300)
def test_the_only_replica_answers_itself_and_changes_cost_nothing(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic")
    ask = Asking(cli)
    wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop")
    # The codes are those of the front door.
    assert ask("{}", key="wrong")[0] == 401
    assert ask("{}", azureml_model_deployment="red")[0] == 404
    assert ask("no json")[0] == 424
    with kept_load(ask) as found:
        deploy("green")
        assert cli("endpoint", "traffic", "digits", "blue=50", "green=50").returncode == 0
        wait_until(lambda: found["green"] > 50, 60, "answers of both")
        assert not is_direct(cli.folder, ask)
        assert cli("endpoint", "traffic", "digits", "blue=0", "green=100").returncode == 0
        assert cli("endpoint", "undeploy", "digits", "blue").returncode == 0
        wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop again")
        deploy("green")
        wait_until(lambda: len(processes_of(cli.folder, "serve.replica")) == 1, 60, "the end of the old revision")
        wait_until(lambda: is_direct(cli.folder, ask), 60, "the new revision without a hop")
    assert set(found) == {"200", "blue", "green"}, found
    # What was counted stays with all of these changes.
    wait_until(lambda: ask.view()["deployments"][0]["requests"]["requests"] >= found["green"], 60, "all of the figures")


@pytest.mark.timeout(300)
def test_the_front_door_may_die_while_a_replica_has_its_address(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic", more=MANY + "liveness_probe: {period: 1}\n")
    ask = Asking(cli)
    wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop")
    keeper = next(item for item in processes_of(cli.folder, "door") if item.cmdline()[2] == "muster.scoring.door")
    with kept_load(ask) as found:
        keeper.kill()
        wait_until(lambda: len(processes_of(cli.folder, "door.worker")) == 2, 60, "another front door")
        count = found["200"]
        wait_until(lambda: found["200"] > count + 50, 60, "more answers")
    assert set(found) == {"200", "blue"}, found
    assert Asking(cli).address.port == ask.address.port
    # It has the listener: where the replica dies, the front door's own process takes over, and waits for the next.
    processes_of(cli.folder, "serve.replica")[0].kill()
    assert ask("{}")[0] == 200
    wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop again")


@pytest.mark.timeout(300)
def test_a_replica_that_does_not_run_holds_up_nobody_at_the_address(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic")
    ask = Asking(cli)
    wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop")
    frozen = processes_of(cli.folder, "serve.replica")[0]
    frozen.suspend()
    try:
        # Only somebody else can answer that.
        assert ask("{}", key="wrong")[0] == 401
    finally:
        frozen.resume()
    wait_until(lambda: is_direct(cli.folder, ask), 60, "requests without a hop again")


@pytest.mark.timeout(300)
def test_where_requests_may_be_repeated_somebody_else_holds_them(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic", more=MANY + "idempotent: true\n")
    ask = Asking(cli)
    client = Keeping(ask)
    assert client()[0] == 200
    assert takers(cli.folder, "door.worker", ask.address.port) and not is_direct(cli.folder, ask)
    client.connection.close()
    assert ask(json.dumps({"die": str(cli.folder / "died")}))[0] == 200
    # A front door's process that lives and does not run is replaced too.
    frozen = psutil.Process(takers_of_one(cli.folder, ask))
    frozen.suspend()
    assert ask("{}")[0] == 200
    assert not frozen.is_running()
