"""Batch endpoints against a real server: deployed once, asked again and again, by command and by script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.conftest import cli

from muster.errors import Conflict, UserError
from muster.ml import Input, MLClient
from muster.ml.constants import BatchDeploymentOutputAction
from muster.ml.entities import BatchDeployment, BatchEndpoint, BatchRetrySettings, CodeConfiguration

__all__ = ["cli"]

SCORE = """
import os
from pathlib import Path
def init():
    global suffix
    suffix = Path(os.environ["MUSTER_MODEL_PATH"]).read_text() + os.environ.get("MORE", "")
def run(mini_batch):
    print("mini-batch of", len(mini_batch))
    if any(Path(path).read_text() == "poison" for path in mini_batch):
        raise ValueError("poisoned")
    return [Path(path).read_text() + suffix for path in mini_batch]
"""
DEPLOYMENT = """
name: first
endpoint_name: nightly
model: azureml:suffix@latest
code_configuration: {code: src, scoring_script: inner/score.py}
settings:
  mini_batch_size: 4
  max_concurrency_per_instance: 2
  retry_settings: {max_retries: 0, timeout: 30}
  environment_variables: {MORE: "?"}
"""


@pytest.fixture
def prepared(cli: Any) -> Path:
    folder = Path(cli.folder)
    for name in ("data", "src/inner"):
        (folder / name).mkdir(parents=True)
    (folder / "src" / "inner" / "score.py").write_text(SCORE)
    (folder / "suffix.txt").write_text("!")
    for number in range(10):
        (folder / "data" / f"{number:02}.csv").write_text(f"item {number}")
    (folder / "deployment.yml").write_text(DEPLOYMENT)
    assert cli("model", "register", "suffix", "--path", "suffix.txt").returncode == 0
    return folder


def test_a_deployment_scores_whatever_it_is_asked_to(cli: Any, prepared: Path) -> None:
    done = cli("batch-endpoint", "deploy", "-f", "deployment.yml")
    assert done.returncode != 0 and "batch-endpoint create nightly" in done.stderr
    (prepared / "endpoint.yml").write_text("name: nightly\ndescription: every night\nauth_mode: aad_token\n")
    assert cli("batch-endpoint", "create", "-f", "endpoint.yml").returncode == 0
    done = cli("batch-endpoint", "invoke", "nightly", "--input", "data")
    assert done.returncode != 0 and "nothing is deployed" in done.stderr
    assert cli("batch-endpoint", "deploy", "-f", "deployment.yml").returncode == 0

    # The files of the deployment are not needed any more.
    (prepared / "src" / "inner" / "score.py").unlink()
    done = cli("batch-endpoint", "invoke", "nightly", "--input", "data", "--output", "out")
    assert done.returncode == 0, done.stderr
    expected = [f"item {number}!?" for number in range(10)]
    assert (prepared / "out" / "predictions.csv").read_text().splitlines() == expected
    assert "mini-batch of 4" in done.stdout and "mini-batch of 2" in done.stdout

    one = prepared / "data" / "03.csv"
    done = cli(
        "batch-endpoint", "invoke", "nightly", "--input", str(one), "--output", "one", "--output-file", "p.txt",
        "--mini-batch-size", "1", "--procs", "1", "--name", "by-hand", "--tag", "team=vision",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (prepared / "one" / "p.txt").read_text().splitlines() == ["item 3!?"]
    listed = json.loads(cli("batch-endpoint", "runs", "nightly", "--json").stdout)
    assert [run["display_name"] for run in listed] == ["by-hand", "nightly-first"]
    assert listed[0]["tags"] == {"team": "vision", "batch_endpoint": "nightly", "batch_deployment": "first"}

    shown = cli("batch-endpoint", "show", "nightly")
    assert "first (default)" in shown.stdout and "suffix:1" in shown.stdout and "every night" in shown.stdout
    assert "nightly" in cli("batch-endpoint", "list").stdout
    done = cli("model", "delete", "suffix:1", "--yes")
    assert done.returncode != 0 and "nightly/first" in done.stderr
    assert cli("batch-endpoint", "undeploy", "nightly", "first").returncode == 0
    assert cli("batch-endpoint", "delete", "nightly", "--yes").returncode == 0
    assert cli("batch-endpoint", "list").stdout == ""


def test_a_script_of_v2_deploys_and_asks(cli: Any, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    client = MLClient.from_config()
    client.begin_create_or_update(BatchEndpoint(name="nightly", tags={"team": "vision"})).result()

    def deployment(name: str, script: str) -> BatchDeployment:
        return BatchDeployment(
            name=name,
            endpoint_name="nightly",
            model=client.models.get("suffix", version="1"),
            code_configuration=CodeConfiguration(code="src", scoring_script=script),
            instance_count=1,
            max_concurrency_per_instance=1,
            mini_batch_size=5,
            output_action=BatchDeploymentOutputAction.APPEND_ROW,
            output_file_name="scored.csv",
            retry_settings=BatchRetrySettings(max_retries=0, timeout=30),
            error_threshold=-1,
            logging_level="info",
        )

    client.batch_deployments.begin_create_or_update(deployment("first", "inner/score.py")).result()
    (prepared / "src" / "loud.py").write_text("def run(mini_batch):\n    return ['LOUD' for path in mini_batch]\n")
    client.batch_deployments.begin_create_or_update(deployment("second", "loud.py")).result()
    endpoint = client.batch_endpoints.get("nightly")
    assert endpoint.defaults.deployment_name == "first"
    endpoint.defaults.deployment_name = "second"
    client.begin_create_or_update(endpoint).result()

    job = client.batch_endpoints.invoke("nightly", inputs={"data": Input(type="uri_folder", path="data")})
    client.jobs.stream(job.name)
    client.jobs.download(job.name, download_path="there", output_name="result")
    assert (prepared / "there/named-outputs/result/scored.csv").read_text().splitlines() == ["LOUD"] * 10

    (prepared / "data" / "04.csv").write_text("poison")
    job = client.batch_endpoints.invoke(
        "nightly",
        deployment_name="first",
        input=Input(path="data"),
        params_override=[{"mini_batch_size": 1}, {"error_threshold": 3}, {"retry_settings": {"max_retries": 1}}],
    )
    client.jobs.stream(job.name)
    client.jobs.download(job.name, download_path="more", output_name="result")
    assert len((prepared / "more/named-outputs/result/scored.csv").read_text().splitlines()) == 9
    assert next(client.batch_endpoints.list_jobs("nightly")).name == job.name
    assert [item.name for item in client.batch_deployments.list("nightly")] == ["first", "second"]
    with pytest.raises(UserError, match="mini_batch"):
        client.batch_endpoints.invoke("nightly", input="data", params_override=[{"mini_batch": 1}])
    with pytest.raises(UserError, match="out of range"):
        client.batch_endpoints.invoke("nightly", input="data", params_override=[{"mini_batch_size": -1}])
    with pytest.raises(Conflict, match="default deployment"):
        client.batch_deployments.begin_delete("second", "nightly")


def test_the_code_of_a_deployment_is_kept_though_nothing_ran(cli: Any, prepared: Path) -> None:
    assert cli("batch-endpoint", "create", "nightly").returncode == 0
    assert cli("batch-endpoint", "deploy", "-f", "deployment.yml").returncode == 0
    done = cli("gc", "--older-than", "0s", "--keep-last", "0")
    assert done.returncode == 0, done.stderr
    assert cli("batch-endpoint", "invoke", "nightly", "--input", "data").returncode == 0
