"""A run's life reaches a collector as OTLP, each item once, also when the collector comes late or is slow."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.conftest import wait_until

from muster.client.connect import connect
from muster.client.workspace import find_workspace

from .conftest import Site

SCRIPT = """
from muster import Run
run = Run.get_context()
for step in range(50):
    run.log("loss", 1 / (step + 1), step=step)
print("WARNING: nearly done")
raise ValueError("bad luck")
"""


class Collector:
    """Takes OTLP over HTTP, as the messages that the standard describes."""

    def __init__(self, port: int) -> None:
        self.spans: list[Any] = []
        self.points: list[tuple[str, Any]] = []
        self.records: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[str | None] = []
        self.held = threading.Event()
        self.held.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.held.wait(60)
                collector.headers.append(self.headers["X-Key"])
                collector.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def take(self, path: str, body: bytes) -> None:
        assert path.startswith("/otlp/v1/")
        if path.endswith("/traces"):
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += part.scope_spans[0].spans
                self.resources.append({item.key: item.value.string_value for item in part.resource.attributes})
        elif path.endswith("/metrics"):
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in part.scope_metrics[0].metrics:
                    self.points += [(metric.name, point) for point in metric.gauge.data_points]
        else:
            for part in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.records += part.scope_logs[0].log_records

    def close(self) -> None:
        self.held.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


@pytest.fixture
def site(workspace: Path, port: int) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    (workspace / "headers").write_text("x-key=a%20b\n")
    otlp = {"endpoint": f"http://127.0.0.1:{port}/otlp", "headers_file": str(workspace / "headers")}
    config.write_text(json.dumps({**json.loads(config.read_text()), "otlp": otlp}))
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()


def test_a_collector_that_comes_late_gets_everything_once(site: Site, port: int) -> None:
    (site.folder / "train.py").write_text(SCRIPT)
    run = site.run(command="python train.py", code=".")
    assert site.wait(run)["status"] == "Failed"
    collector = Collector(port)
    try:
        wait_until(lambda: any(not span.parent_span_id for span in collector.spans), 60, "the span of the run")
        wait_until(lambda: len(collector.records) >= 5, 60, "its log")
        whole = next(span for span in collector.spans if not span.parent_span_id)
        assert whole.name == f"run {run}" and whole.status.code == 2 and "bad luck" in whole.status.message
        attempt = next(span for span in collector.spans if span.parent_span_id == whole.span_id)
        states = [span.name for span in collector.spans if span.parent_span_id == attempt.span_id]
        assert states[0] == "queued" and {"preparing", "running", "finalizing"} <= set(states)
        assert len({span.span_id for span in collector.spans}) == len(collector.spans)
        losses = [point for name, point in collector.points if name == "muster.run.loss"]
        assert [point.as_double for point in losses] == [1 / (step + 1) for step in range(50)]
        assert {item.key: item.value.int_value for item in losses[0].attributes}["muster.rank"] == 0
        texts = {record.body.string_value: record for record in collector.records}
        assert texts["WARNING: nearly done"].severity_text == "WARN"
        assert texts["ValueError: bad luck"].severity_number == 17
        assert texts["WARNING: nearly done"].trace_id == whole.trace_id
        assert collector.resources[0]["muster.run.id"] == run and set(collector.headers) == {"a b"}
    finally:
        collector.close()


def test_a_collector_that_hangs_holds_up_no_run(site: Site, port: int) -> None:
    collector = Collector(port)
    collector.held.clear()
    try:
        for _ in range(2):
            assert site.wait(site.run(command="echo hello"))["status"] == "Completed"
        assert not collector.spans
    finally:
        collector.close()
