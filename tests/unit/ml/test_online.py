"""Endpoints and deployments of v2 scripts say what their files say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.endpoints.models import ModelInput, variables_of
from muster.ml import entities
from muster.ml.online_entities import EndpointAuthKeys, EndpointAuthToken, keys_of
from muster.wire.serving.endpoints import DeploymentView, EndpointKeys, EndpointView, RequestLimits

BLUE = DeploymentView(
    "blue", "digits", "serving", 100, 0, 2, "run", "net:1", 2, 3, 2, RequestLimits(3000, 4), serving_revision=2
)
DIGITS = EndpointView(
    "digits", "key", "http://127.0.0.1:1/score", None, "ready", {"blue": 100}, {}, (BLUE,), "door", None, {}, {}, None,
    "ada", 0.0, 0.0,
)  # fmt: skip


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


def test_an_endpoint_that_was_fetched_can_be_changed_and_sent_back() -> None:
    found = entities.ManagedOnlineEndpoint.of(DIGITS)
    assert found.provisioning_state == "Succeeded" and found.state == "ready" and found.deployments == (BLUE,)
    found.traffic = {"blue": 90, "green": 10}
    assert found.said().traffic == {"blue": 90, "green": 10} and found.said().name == "digits"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        found.nothing_of_the_kind  # noqa: B018


def test_a_deployment_that_was_fetched_can_be_deployed_again(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def run(data): return data\n")
    settings = '{"script": "score.py", "target_percent": 50.0}'
    spec = {"command": ["python", "-m", "muster.scoring.serve", settings], "code": str(tmp_path), "compute": "local"}
    variables = variables_of([ModelInput("models:/net/1", "net", "1", "net")])
    found = entities.ManagedOnlineDeployment.of(BLUE, {**spec, "environment_variables": {**variables, "A": "b"}})
    assert found.environment_variables == {"A": "b"}
    assert (found.instance_count, found.provisioning_state, found.ready) == (2, "Succeeded", 2)
    assert found.code_configuration.scoring_script == "score.py" and found.model == "azureml:net:1"
    found.scale_settings = entities.DefaultScaleSettings()
    found.instance_count = 4
    said = found.said()
    assert said.scaling.least == 4 and said.limits.concurrency == 4 and said.script == Path("score.py")


def test_what_is_collected_stays_when_a_fetched_deployment_is_deployed_again(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("def run(data): return data\n")
    settings = (
        '{"script": "score.py", "collections": ["request"], "sampling_rate": 0.5, "rolling_rate": "day", '
        '"captured_headers": ["x-a"], "idle_s": 60.0}'
    )
    spec = {"command": ["python", "-m", "muster.scoring.serve", settings], "code": str(tmp_path)}
    asleep = replace(BLUE, instances=0, max_instances=1)
    said = entities.ManagedOnlineDeployment.of(asleep, spec).said()
    found = said.collecting
    assert (found.collections, found.sampling_rate, found.rolling_rate) == (("request",), 0.5, "day")
    assert found.headers == ("x-a",) and (said.scaling.least, said.scaling.most, said.scaling.idle_s) == (0, 1, 60.0)
    wanted = entities.DataCollector(
        {"model_inputs": entities.DeploymentCollection(enabled="true")},
        request_logging=entities.RequestLogging(capture_headers=["x-b"]),
    )
    again = entities.ManagedOnlineDeployment.of(asleep, spec)
    again.data_collector = wanted
    assert again.said().collecting.collections == ("model_inputs",) and again.said().collecting.headers == ("x-b",)


def test_what_opens_an_endpoint_has_azure_mls_names() -> None:
    keys = keys_of(EndpointKeys("key", "p", "s"))
    assert isinstance(keys, EndpointAuthKeys) and (keys.primary_key, keys.secondary_key) == ("p", "s")
    token = keys_of(EndpointKeys("aml_token", token="t", expires_at=5.0))
    assert isinstance(token, EndpointAuthToken) and token.access_token == "t"
