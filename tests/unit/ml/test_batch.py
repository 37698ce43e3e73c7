"""Batch endpoints and deployments of v2 scripts say what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.ml import entities
from muster.wire.serving.batch import BatchDeploymentView, BatchEndpointView, BatchSettings

FIRST = BatchDeploymentView(
    "first", "nightly", True, 1, "net:1", BatchSettings("score.py", mini_batch_size=4, timeout_s=30.0), 2, 3, "local"
)
NIGHTLY = BatchEndpointView("nightly", "first", (FIRST,), None, {"team": "vision"}, {}, "ada", 0.0, 0.0)


def test_settings_stand_at_the_root_or_in_a_class_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text("def run(data): return data\n")
    code = entities.CodeConfiguration(code=".", scoring_script="score.py")
    retry = entities.BatchRetrySettings(max_retries=1, timeout=9)
    older = entities.BatchDeployment(
        name="first", endpoint_name="nightly", code_configuration=code, mini_batch_size=7, retry_settings=retry,
        instance_count=2,
    )  # fmt: skip
    newer = entities.ModelBatchDeployment(
        name="first",
        endpoint_name="nightly",
        code_configuration=code,
        settings=entities.ModelBatchDeploymentSettings(mini_batch_size=7, retry_settings=retry, instance_count=2),
    )
    assert older.said() == newer.said() and older.said().settings.mini_batch_size == 7
    assert (older.said().settings.max_retries, older.said().nodes) == (1, 2)


def test_an_endpoint_that_was_fetched_can_be_changed_and_sent_back() -> None:
    found = entities.BatchEndpoint.of(NIGHTLY)
    assert found.defaults.deployment_name == "first" and found.provisioning_state == "Succeeded"
    found.defaults.deployment_name = "second"
    assert (found.said().default_deployment, found.said().tags) == ("second", {"team": "vision"})


def test_a_deployment_that_was_fetched_needs_its_code_to_be_deployed_again(tmp_path: Path) -> None:
    found = entities.BatchDeployment.of(FIRST)
    with pytest.raises(JobError, match="the code of first is only on the server"):
        found.said()
    (tmp_path / "score.py").write_text("")
    found.code_configuration = entities.CodeConfiguration(code=str(tmp_path), scoring_script="score.py")
    said = found.said()
    assert (said.nodes, said.procs, said.settings.timeout_s, said.model) == (2, 3, 30.0, "azureml:net:1")
