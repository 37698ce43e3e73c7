"""Endpoints and deployments of v2 scripts say what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.ml import entities


def test_a_deployment_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text("def run(data): return data\n")
    said = entities.ManagedOnlineDeployment(
        name="blue",
        endpoint_name="digits",
        model=entities.Model(name="net", path="./model"),
        code_configuration=entities.CodeConfiguration(code=".", scoring_script="score.py"),
        environment=entities.Environment(image="python:3.11"),
        instance_type="Standard_DS3_v2",
        instance_count=2,
        request_settings=entities.OnlineRequestSettings(request_timeout_ms=3000),
        scale_settings=entities.TargetUtilizationScaleSettings(min_instances=1, max_instances=3),
    ).said()
    assert said.model == str(tmp_path / "model") and said.script == Path("score.py")
    assert said.limits.timeout_ms == 3000 and said.scaling.most == 3


def test_what_a_file_may_not_say_a_script_may_not_either() -> None:
    with pytest.raises(JobError, match="identity"):
        entities.ManagedOnlineEndpoint(name="digits", identity={"type": "system_assigned"}).said()
    said = entities.ManagedOnlineEndpoint(name="digits", auth_mode="key", traffic={"blue": 100}).said()
    assert said.traffic == {"blue": 100}
