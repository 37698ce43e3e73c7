"""What a request to a batch endpoint becomes: its deployment's job, with the request's data and changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.errors import JobError
from muster.job.endpoints.batch_endpoint import read_batch_endpoint_file
from muster.job.endpoints.batch_job import BatchScoring, job_of, job_of_request
from muster.job.endpoints.models import ModelInput
from muster.job.explain import make_spec
from muster.wire.serving.batch import BatchRequest, BatchSettings

SETTINGS = BatchSettings("score.py", format="files", mini_batch_size=10, max_retries=3, timeout_s=30.0)


def deployed() -> dict[str, Any]:
    model = ModelInput("models:/net/1", "net", "1", "m")
    job = job_of(BatchScoring(None, model=model, code=Path("/code"), settings=SETTINGS))
    job["resources"] = {"instance_count": 2, "gpus_per_node": 1}
    return make_spec(job).model_dump(mode="json")


def asked(**fields: Any) -> dict[str, Any]:
    request = BatchRequest("key", "azureml:images:3", **fields)
    return make_spec(job_of_request(deployed(), SETTINGS, request, "nightly", "first")).model_dump(mode="json")


def settings_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job["command"][3])
    return found


def test_what_a_request_does_not_say_is_as_the_deployment_says() -> None:
    job = asked()
    assert settings_of(job)["mini_batch_size"] == 10 and settings_of(job)["script"] == "score.py"
    assert job["resources"]["instance_count"] == 2 and job["resources"]["gpus_per_node"] == 1
    assert job["inputs"]["model"]["path"] == "models:/net/1" and job["inputs"]["data"]["path"] == "azureml:images:3"
    assert job["outputs"]["result"]["path"] is None and job["experiment_name"] == "nightly"
    assert job["tags"] == {"batch_endpoint": "nightly", "batch_deployment": "first"}


def test_a_request_changes_what_it_names() -> None:
    place = "azureml://datastores/scratch/paths/out"
    job = asked(
        mini_batch_size=3, error_threshold=5, max_retries=0, timeout_s=9.0, output_file="p.csv", nodes=4, procs=2,
        output=place, display_name="mine", experiment="trial", tags={"team": "vision"}, compute="big",
    )  # fmt: skip
    said = settings_of(job)
    assert (said["mini_batch_size"], said["error_threshold"], said["max_retries"]) == (3, 5, 0)
    assert (said["timeout_s"], said["output_file"]) == (9.0, "p.csv")
    assert job["resources"] == {**deployed()["resources"], "instance_count": 4}
    assert job["distribution"]["process_count_per_instance"] == 2 and job["outputs"]["result"]["path"] == place
    assert (job["display_name"], job["experiment_name"], job["compute"]) == ("mine", "trial", "big")
    assert job["tags"]["team"] == "vision" and job["tags"]["batch_endpoint"] == "nightly"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mini_batch_size": -1}, "mini_batch_size -1 is out of range"),
        ({"output_file": "../p.csv"}, "is not a file name"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"error_threshold": -2}, "error_threshold"),
    ],
)
def test_what_no_run_could_do_is_refused_with_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        asked(**fields)


def test_a_batch_endpoints_file(tmp_path: Path) -> None:
    file = tmp_path / "endpoint.yml"
    file.write_text("name: nightly\nauth_mode: aad_token\ntags: {a: 1}\ndefaults: {deployment_name: first}\n")
    said = read_batch_endpoint_file(file)
    assert (said.name, said.tags, said.default_deployment) == ("nightly", {"a": "1"}, "first")
    for text, problem in (
        ("name: n\n", "3 to 32 letters"),
        ("description: x\n", "`name` is missing"),
        ("name: nightly\nauth_mode: key\n", "'key' is not allowed"),
        ("name: nightly\ntraffic: {a: 100}\n", "endpoint.yml:2: a batch endpoint has no key 'traffic'"),
        ("name: nightly\ndefaults: {deployment: x}\n", "defaults.deployment"),
    ):
        file.write_text(text)
        with pytest.raises(JobError, match=problem):
            read_batch_endpoint_file(file)
