"""What Prometheus reads, and what the example board asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.conftest import Server

from muster.server.monitoring.exposition import exposition
from muster.server.monitoring.facts import ActiveRun, Facts, load
from muster.wire.runs import Progress
from muster.wire.serving.endpoints import DeploymentView, EndpointView, RequestLimits, ServingFigures

BOARD = Path(__file__).parents[4] / "examples" / "monitoring" / "grafana.json"
RUN = ActiveRun("r-1", 'a"b\\c\n<x>', "first", "two", "ada", 90.0, Progress(3, 10, "steps"), {"train/loss": 0.5})
FACTS = Facts({"Running": 1, "Queued": 2}, {"two": 2}, {"two": 40.0}, {("two", "idle"): 1}, [RUN])


def samples(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def test_the_figures_of_a_moment() -> None:
    found = samples(exposition(FACTS, now=100.0, commits=7, agents=1, trouble="the disk is full"))
    assert ({"status": "Queued"}, 2.0) in found["muster_runs"]
    assert found["muster_queue_wait_seconds"] == [({"cluster": "two"}, 60.0)]
    assert found["muster_trouble"] == [({}, 1.0)]
    ((labels, value),) = found["muster_run_metric"]
    assert (labels["run"], labels["name"], labels["metric"], value) == ("r-1", RUN.name, "train/loss", 0.5)
    assert found["muster_run_progress_done"][0][1] == 3.0
    assert found["muster_run_seconds"][0][1] == 10.0


def test_the_address_needs_a_token_and_reads_the_database(server: Server) -> None:
    assert server.context.database.read_now(load).runs["Running"] == 0
    server.call("GET", "/facets")

    async def ask(token: str) -> tuple[int, bytes]:
        sent = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        given = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": given}
        await server.app(scope, receive, send)  # type: ignore[arg-type]
        return sent[0]["status"], sent[1]["body"]  # type: ignore[return-value]

    status, body = server.runner.run(ask(server.context.tokens.admin(server.context.paths.admin_token)))
    assert status == 200
    assert "muster_runs" in samples(body)
    assert server.runner.run(ask("muster_wrong"))[0] == 403


def test_the_example_board_asks_for_figures_that_there_are() -> None:
    board = json.loads(BOARD.read_text())
    known = set(samples(exposition(FACTS, 100.0, 7, 1, "")))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(asked) >= 8
    for expression in asked:
        names = set(re.findall(r"\bmuster_[a-z_]+", expression))
        assert names, expression
        assert names <= known, f"{expression}: {names - known}"
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(places) == len(set(places))


def test_deployments_have_their_figures() -> None:
    asked = ServingFigures("blue", 3, 1, 0.5, 10.0, 20.0, 30.0, 5.0, codes={"200": 2, "424": 1})
    blue = DeploymentView(
        "blue", "digits", "serving", 100, 0, 1, "run", None, 2, 2, 2, RequestLimits(), requests=asked, replicas=asked
    )
    view = EndpointView(
        "digits", "key", "http://h:1/score", None, "ready", {"blue": 100}, {}, (blue,), "door", None, {}, {}, None,
        None, 0.0, 0.0,
    )  # fmt: skip
    text = exposition(FACTS, 100.0, 7, 1, "", [view]).decode()
    assert 'muster_deployment_answers_total{code="424",deployment="blue",endpoint="digits"} 1.0' in text
    assert 'muster_deployment_latency_seconds{deployment="blue",endpoint="digits",quantile="0.99"} 0.03' in text
    assert 'muster_deployment_replicas_ready{deployment="blue",endpoint="digits"} 2.0' in text
