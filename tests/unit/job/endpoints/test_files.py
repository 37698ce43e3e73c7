"""Files of online endpoints and deployments: each key is done, or refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.endpoints.deployment import read_deployment_file
from muster.job.endpoints.endpoint import read_endpoint_file

DEPLOYMENT = """
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: blue
endpoint_name: digits
type: managed
model: azureml:net:3
code_configuration: {code: src, scoring_script: score.py}
environment: azureml:env:1
environment_variables: {COLOR: blue}
instance_type: Standard_DS3_v2
instance_count: 2
request_settings: {request_timeout_ms: 3000, max_concurrent_requests_per_instance: 4, max_queue_wait_ms: 100}
liveness_probe: {period: 5, initial_delay: PT1M, timeout: 1, failure_threshold: 3}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "score.py").write_text("def run(data): return data\n")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    file = folder / "file.yml"
    file.write_text(text)
    return file


def test_a_deployment_as_azure_ml_writes_it(folder: Path) -> None:
    said = read_deployment_file(written(folder, DEPLOYMENT))
    assert (said.name, said.endpoint, said.model) == ("blue", "digits", "azureml:net:3")
    assert said.script == Path("score.py") and said.code == folder / "src"
    assert (said.scaling.least, said.scaling.most) == (2, 2)
    assert (said.limits.timeout_ms, said.limits.concurrency, said.limits.queue_wait_ms) == (3000, 4, 100)
    assert (said.probe.period_s, said.probe.delay_s, said.probe.failures) == (5.0, 60.0, 3)
    assert any("instance_type" in text for text in said.notices)
    assert not said.says_idempotent


def test_variables_of_azure_mls_server_that_do_nothing_here_are_named(folder: Path) -> None:
    text = DEPLOYMENT.replace("COLOR: blue", "COLOR: blue, WORKER_COUNT: 4, AML_CORS_ORIGINS: '*'")
    said = " ".join(read_deployment_file(written(folder, text)).notices)
    assert "environment_variables.WORKER_COUNT has no effect: instance_count" in said
    assert "AML_CORS_ORIGINS" not in said and "COLOR" not in said


def test_a_server_of_an_images_own_is_replaced_where_a_script_answers(folder: Path) -> None:
    own = "environment: {image: example/serving, inference_config: {scoring_route: {port: 8501, path: /predict}}}"
    text = DEPLOYMENT.replace("environment: azureml:env:1", own)
    said = read_deployment_file(written(folder, text))
    assert said.environment == {"image": "example/serving"}
    assert "environment.inference_config has no effect" in " ".join(said.notices)
    alone = [line for line in text.splitlines() if not line.startswith("code_configuration")]
    with pytest.raises(JobError, match=r"environment\.inference_config: the image's own server is not run"):
        read_deployment_file(written(folder, "\n".join(alone)))


def test_options_win_over_names_in_the_file(folder: Path) -> None:
    said = read_deployment_file(written(folder, DEPLOYMENT), "letters", "green")
    assert (said.name, said.endpoint) == ("green", "letters")


def test_a_number_of_replicas_that_follows_the_load(folder: Path) -> None:
    text = DEPLOYMENT + "scale_settings: {type: target_utilization, min_instances: 1, max_instances: 5}\n"
    assert (read_deployment_file(written(folder, text)).scaling.most) == 5


def test_it_may_go_down_to_none(folder: Path) -> None:
    text = DEPLOYMENT + "scale_settings: {type: target_utilization, min_instances: 0, idle_s: 60}\n"
    scaling = read_deployment_file(written(folder, text)).scaling
    assert (scaling.least, scaling.most, scaling.idle_s) == (0, 1, 60.0)


def test_what_is_collected(folder: Path) -> None:
    text = DEPLOYMENT + (
        "data_collector: {rolling_rate: Day, sampling_rate: 0.1, request_logging: {capture_headers: [x-a]}, "
        "collections: {request: {enabled: 'True'}, response: {enabled: 'False'}, model_inputs: {enabled: true}}}\n"
    )
    found = read_deployment_file(written(folder, text)).collecting
    assert (found.collections, found.sampling_rate, found.rolling_rate) == (("request", "model_inputs"), 0.1, "day")
    assert found.headers == ("x-a",)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("data_collector: {collections: {request: {enabled: true, data: {name: mine}}}}", "collections.request"),
        ("data_collector: {collections: {../up: {enabled: true}}}", "data_collector.collections"),
        ("data_collector: {collections: 3}", "data_collector.collections"),
        ("data_collector: {sampling_rate: 2}", "data_collector.sampling_rate"),
        ("data_collector: {rolling_rate: week}", "data_collector.rolling_rate"),
        ("data_collector: {request_logging: {capture_headers: x}}", "capture_headers"),
        ("model_mount_path: /var/model", "model_mount_path"),
        ("environment_variables: {MLFLOW_TRACKING_URI: http://other}", "MLFLOW_TRACKING_URI"),
        ("environment_variables: 3", "environment_variables"),
        ("request_settings: {request_timeout: 3}", "request_settings.request_timeout"),
        ("request_settings: {request_timeout_ms: soon}", "request_settings.request_timeout_ms"),
        ("request_settings: [1]", "request_settings"),
        ("scale_settings: {type: sometimes}", "scale_settings.type"),
        ("scale_settings: {type: target_utilization, min_instances: 3, max_instances: 2}", "max_instances"),
        ("instance_count: 0", "instance_count"),
        ("liveness_probe: {path: /}", "liveness_probe.path"),
        ("code_configuration: {code: src, scoring_script: other.py}", "other.py"),
        ("code_configuration: {code: src}", "scoring_script"),
        ("model: azureml://registries/azureml/models/x/versions/1", "registries"),
        ("name: a", "name"),
        ("endpoint_name: 9lives", "endpoint_name"),
        ("idempotent: maybe", "idempotent"),
        ("replicas: 3", "replicas"),
    ],
)
def test_what_a_deployment_cannot_have_is_refused_by_name(folder: Path, line: str, named: str) -> None:
    key = line.partition(":")[0]
    kept = [text for text in DEPLOYMENT.splitlines() if not text.startswith(f"{key}:")]
    with pytest.raises(JobError) as refused:
        read_deployment_file(written(folder, "\n".join([*kept, line, ""])))
    assert named in refused.value.message and refused.value.hint


def test_an_endpoint_as_azure_ml_writes_it(folder: Path) -> None:
    said = read_endpoint_file(
        written(folder, "name: digits\nauth_mode: aml_token\ntags: {team: vision}\ntraffic: {blue: 90, green: 10}\n")
    )
    assert (said.name, said.auth_mode, said.traffic) == ("digits", "aml_token", {"blue": 90, "green": 10})


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("auth_mode: none", "auth_mode"),
        ("identity: {type: system_assigned}", "identity"),
        ("traffic: {blue: 60, green: 60}", "120"),
        ("traffic: {blue: -1}", "traffic.blue"),
        ("mirror_traffic: {blue: 51}", "mirror_traffic"),
        ("mirror_traffic: {blue: 5, green: 5}", "mirror_traffic"),
        ("name: no_good", "no_good"),
        ("name: a", "name"),
        ("deployments: [blue]", "deployments"),
    ],
)
def test_what_an_endpoint_cannot_have_is_refused_by_name(folder: Path, line: str, named: str) -> None:
    head = "" if line.startswith("name") else "name: digits\n"
    with pytest.raises(JobError) as refused:
        read_endpoint_file(written(folder, f"{head}{line}\n"))
    assert named in refused.value.message


def test_all_wrong_keys_are_told_at_once(folder: Path) -> None:
    file = folder / "wrong.yml"
    file.write_text(
        "name: blue\nendpoint_name: digits\ninstance_cout: 2\n"
        "code_configuration: {code: ., scoring_scrpt: score.py}\n"
        "request_settings:\n  request_timeout: 3\n"
    )
    with pytest.raises(JobError) as told:
        read_deployment_file(file)
    lines = told.value.message.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "an online deployment has no key 'instance_cout'",
        "an online deployment has no key 'code_configuration.scoring_scrpt'",
        "an online deployment has no key 'request_settings.request_timeout'",
    ]
    assert "instance_count" in told.value.hint and "Keys of request_settings: request_timeout_ms" in told.value.hint
