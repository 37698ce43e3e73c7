"""What is kept of requests and answers: in the workspace's datastore by date, with what ties them together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli
from tests.integration.scoring.test_endpoints import Asking, processes_of

__all__ = ["cli"]

SCRIPT = """
import json
import pandas
from azureml.ai.monitoring import Collector

def init():
    global inputs, outputs, unknown
    inputs, outputs = Collector(name="model_inputs"), Collector(name="model_outputs")
    unknown = Collector(name="unknown", on_error=lambda error: print("not collected:", error))

def run(data):
    frame = pandas.DataFrame(json.loads(data)["data"])
    context = inputs.collect(frame)
    result = frame * 2
    outputs.collect(result, context)
    unknown.collect("no table")
    return result.to_dict(orient="records")
"""
DEPLOYMENT = """
name: blue
endpoint_name: digits
code_configuration: {code: src, scoring_script: score.py}
data_collector:
  rolling_rate: day
  sampling_rate: 1.0
  request_logging: {capture_headers: [X-Tenant]}
  collections:
    request: {enabled: 'True'}
    response: {enabled: 'True'}
    model_inputs: {enabled: 'True'}
    model_outputs: {enabled: 'True'}
"""


def lines_of(folder: Path, collection: str) -> list[Any]:
    """Events of a collection, by time of their arrival."""
    root = folder / ".muster"
    found = sorted(root.glob(f"**/data/modelDataCollector/digits/blue/{collection}/*/*/*/*.jsonl"))
    return [json.loads(line) for file in found for line in file.read_text().splitlines()]


@pytest.mark.timeout(300)
def test_requests_and_tables_are_kept_by_date(cli: Any) -> None:
    (cli.folder / "src").mkdir()
    cli.script("src/score.py", SCRIPT)
    assert cli("endpoint", "create", "digits").returncode == 0
    (cli.folder / "blue.yml").write_text(DEPLOYMENT)
    done = cli("endpoint", "deploy", "-f", "blue.yml", "--all-traffic")
    assert done.returncode == 0, done.stderr
    ask = Asking(cli)
    for number in range(5):
        status, said = ask(json.dumps({"data": [{"a": number}]}), x_tenant="ada", x_request_id=f"request-{number}")
        assert (status, said) == (200, [{"a": 2 * number}])
    assert ask(b"\xff\xfe")[0] == 424
    wait_until(lambda: len(lines_of(cli.folder, "response")) == 6, 60, "all answers")
    asked, answered = lines_of(cli.folder, "request"), lines_of(cli.folder, "response")
    assert [event["data"]["data"][0]["a"] for event in asked[:5]] == list(range(5))
    assert asked[5]["data_base64"] == "//4=" and answered[5]["statuscode"] == 400
    assert {event["correlationid"] for event in asked} == {event["correlationid"] for event in answered}
    assert asked[0]["headers"] == {"x-tenant": "ada"} and asked[0]["xrequestid"] == "request-0"
    assert asked[0]["type"] == "azureml.inference.request" and asked[0]["path"] == "/score"
    # What comes later goes into the same file, until that is large.
    assert ask(json.dumps({"data": [{"a": 9}]}))[0] == 200
    wait_until(lambda: len(lines_of(cli.folder, "model_outputs")) == 6, 60, "the tables")
    tables = zip(lines_of(cli.folder, "model_inputs"), lines_of(cli.folder, "model_outputs"), strict=True)
    for before, after in tables:
        assert before["correlationid"] == after["correlationid"]
        assert after["data"][0]["a"] == 2 * before["data"][0]["a"]
    assert not lines_of(cli.folder, "unknown")
    # What waits is sent when a replica ends.
    assert ask(json.dumps({"data": [{"a": 10}]}))[0] == 200
    processes_of(cli.folder, "serve.replica")[0].terminate()
    wait_until(lambda: len(lines_of(cli.folder, "model_inputs")) == 7, 60, "the last table")
    listed = cli("data", "ls", "azureml://datastores/workspaceblobstore/paths/modelDataCollector/digits/blue")
    assert "model_inputs" in listed.stdout, listed.stdout + listed.stderr
    assert cli("endpoint", "delete", "digits", "--yes").returncode == 0
