"""Endpoints with real processes: traffic, keys, codes, an update under load, and what dies."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli

__all__ = ["cli"]

SCRIPT = """
import json, os, time

def init():
    if os.environ.get("BROKEN"):
        raise RuntimeError("no weights")

def pieces(gate):
    yield "first"
    while not os.path.exists(gate):
        time.sleep(0.01)
    yield "second"
    if os.path.exists(gate + ".broken"):
        raise RuntimeError("no more")

def run(data):
    given = json.loads(data)
    if "sleep" in given:
        time.sleep(given["sleep"])
    if given.get("die") and not os.path.exists(given["die"]):
        open(given["die"], "w").close()
        os._exit(9)
    if "gate" in given:
        return pieces(given["gate"])
    return {"color": os.environ["COLOR"], "pid": os.getpid()}
"""


def deployment(color: str, more: str = "") -> str:
    return (
        f"name: {color}\nendpoint_name: digits\ncode_configuration: {{code: src, scoring_script: score.py}}\n"
        f"environment_variables: {{COLOR: {color}}}\n{more}"
    )


MANY = "request_settings: {request_timeout_ms: 30000, max_concurrent_requests_per_instance: 16}\n"


class Asking:
    """A client of the endpoint."""

    def __init__(self, cli: Any) -> None:
        self._cli = cli
        self.address = urlsplit(self.view()["scoring_uri"])
        self.key = self.keys()["primary"]

    def view(self) -> Any:
        return json.loads(self._cli("endpoint", "show", "digits", "--json").stdout)

    def keys(self, *more: str) -> Any:
        return json.loads(self._cli("endpoint", "keys", "digits", "--json", *more).stdout)

    def __call__(self, body: bytes | str, key: str | None = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=60)
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("POST", "/score", body, {"Authorization": f"Bearer {key or self.key}", **shown})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, json.loads(text)

    def color(self, **headers: str) -> str:
        status, said = self("{}", **headers)
        assert status == 200, said
        return str(said["color"])

    @contextmanager
    def load(self, clients: int = 4) -> Iterator[Counter[str]]:
        """Requests without a pause while the block lasts; counts what came of them."""
        found: Counter[str] = Counter()
        over = threading.Event()

        def work() -> None:
            while not over.is_set():
                try:
                    found[str(self("{}")[0])] += 1
                except (OSError, http.client.HTTPException) as error:
                    found[repr(error)] += 1

        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield found
        finally:
            over.set()
            for thread in threads:
                thread.join()


@pytest.fixture
def deploy(cli: Any) -> Iterator[Any]:
    (cli.folder / "src").mkdir()
    cli.script("src/score.py", SCRIPT)

    def work(color: str, *options: str, more: str = MANY, fails: bool = False) -> Any:
        (cli.folder / f"{color}.yml").write_text(deployment(color, more))
        done = cli("endpoint", "deploy", "-f", f"{color}.yml", *options)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done

    assert cli("endpoint", "create", "digits").returncode == 0
    yield work
    cli("endpoint", "delete", "digits", "--yes")
    wait_until(lambda: not processes_of(cli.folder, ""), 60, "the end of all processes")


def processes_of(folder: Path, module: str) -> list[psutil.Process]:
    """Processes of endpoints that were started in a workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            is_one = len(words) > 2 and words[2].startswith(f"muster.scoring.{module}")
            if is_one and process.cwd().startswith(str(folder)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def server_of(folder: Path) -> psutil.Process:
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[1:3] == ["-m", "muster.server"] and str(folder / ".muster") in words:
                return process
        except (psutil.Error, OSError):
            continue
    raise AssertionError("there is no server")


@pytest.mark.timeout(300)
def test_traffic_keys_codes_and_a_model_that_is_in_use(cli: Any, deploy: Any) -> None:
    refused = cli("endpoint", "create", "letters", "--compute", "nowhere")
    assert refused.returncode == 2 and "there is no compute 'nowhere'" in refused.stderr
    assert "no address yet" in cli("endpoint", "invoke", "digits", "--data", "{}").stderr
    (cli.folder / "weights.txt").write_text("w")
    assert cli("model", "register", "net", "--path", "weights.txt").returncode == 0
    deploy("blue", "--all-traffic", more=MANY + "model: azureml:net:1\n")
    ask = Asking(cli)
    assert ask.color() == "blue"
    refused = cli("model", "delete", "net:1", "--yes")
    assert refused.returncode != 0 and "digits/blue" in refused.stderr
    # Green gets nothing until it is given something, but for who asks for it.
    deploy("green", more="request_settings: {request_timeout_ms: 400}\n")
    assert {ask.color() for _ in range(10)} == {"blue"}
    assert ask.color(azureml_model_deployment="green") == "green"
    assert ask("{}", azureml_model_deployment="red")[0] == 404
    assert cli("endpoint", "traffic", "digits", "blue=50", "green=50").returncode == 0
    wait_until(lambda: {ask.color() for _ in range(20)} == {"blue", "green"}, 60, "shared traffic")
    for wrong in (["blue=60"], ["red=100"], ["blue=much"], ["blue=100", "--mirror", "green=51"]):
        assert cli("endpoint", "traffic", "digits", *wrong).returncode != 0
    # Codes: the model's own error, a time limit, keys.
    for body in (b"\xff\xfe", b"", b"[", b"no json", b"3", b"\0" * 100):
        assert ask(body, azureml_model_deployment="blue")[0] == 424, body
    assert ask('{"sleep": 1}', azureml_model_deployment="green")[0] == 408
    assert ask("{}", key="wrong")[0] == 401
    fresh = ask.keys("--regenerate", "primary")
    assert ask("{}")[0] == 401
    pinned = {"azureml_model_deployment": "blue"}
    assert all(ask("{}", key=fresh[kind], **pinned)[0] == 200 for kind in ("primary", "secondary"))
    # Mirrored requests are answered by blue alone.
    ask.key = fresh["primary"]
    assert cli("endpoint", "traffic", "digits", "blue=100", "--mirror", "green=50").returncode == 0
    assert {ask.color() for _ in range(10)} == {"blue"}
    assert "is ready" in cli("endpoint", "logs", "digits", "-d", "blue").stdout
    wait_until(lambda: "424" in cli("endpoint", "show", "digits", "--json").stdout, 60, "figures by code")
    assert "P99" in cli("endpoint", "show", "digits").stdout
    assert cli("endpoint", "undeploy", "digits", "blue").returncode != 0
    assert cli("endpoint", "undeploy", "digits", "green").returncode == 0
    assert ask.color() == "blue"


@pytest.mark.timeout(300)
def test_an_update_loses_no_request_and_one_that_fails_changes_nothing(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic")
    ask = Asking(cli)
    before = ask("{}")[1]["pid"]
    with ask.load() as found:
        deploy("blue")
        wait_until(lambda: len(processes_of(cli.folder, "serve.replica")) == 1, 60, "the end of the old revision")
    assert set(found) == {"200"} and ask("{}")[1]["pid"] != before
    broken = MANY.replace("request_settings", "readiness_probe: {period: 1}\nrequest_settings")
    (cli.folder / "src" / "score.py").write_text(SCRIPT + "\nraise RuntimeError('no weights')\n")
    with ask.load() as found:
        said = deploy("blue", more=broken, fails=True)
    assert set(found) == {"200"} and "failed" in said.stdout + said.stderr


@pytest.mark.timeout(300)
def test_what_dies_costs_only_what_was_inside_it(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic", more="instance_count: 2\n" + MANY)
    ask = Asking(cli)
    died = str(cli.folder / "died")
    # The replica that had the request is gone: nobody knows how far it came.
    assert ask(json.dumps({"die": died}))[0] == 502
    wait_until(lambda: len(processes_of(cli.folder, "serve.replica")) == 2, 60, "another replica")
    with ask.load() as found:
        processes_of(cli.folder, "serve.replica")[0].kill()
        wait_until(lambda: found["200"] > 50, 60, "more answers")
    assert set(found) <= {"200", "502"} and found["502"] <= 4, found
    # Without the workspace's server requests are answered, and a front door that dies is replaced.
    server_of(cli.folder).kill()
    assert ask.color() == "blue"
    front = processes_of(cli.folder, "door.worker")
    assert len(front) == 2
    front[0].kill()
    front[1].kill()
    wait_until(lambda: _answers(ask), 60, "another front door")
    # The new server hears of the replicas within a moment.
    wait_until(lambda: ask.view()["state"] == "ready", 60, "word of the replicas")
    assert ask.color() == "blue"


def _answers(ask: Asking) -> bool:
    try:
        return ask("{}")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.timeout(300)
def test_idempotent_requests_are_repeated_and_too_many_are_refused(cli: Any, deploy: Any) -> None:
    limits = "request_settings: {request_timeout_ms: 30000, max_queue_wait_ms: 100}\nidempotent: true\n"
    deploy("blue", "--all-traffic", more=limits)
    ask = Asking(cli)
    assert ask(json.dumps({"die": str(cli.folder / "died")}))[0] == 200
    slow = threading.Thread(target=ask, args=('{"sleep": 3}',))
    slow.start()
    wait_until(lambda: ask("{}")[0] == 429, 60, "a queue that is full")
    slow.join()
    wait_until(lambda: ask("{}")[0] == 200, 60, "an answer again")


@pytest.mark.timeout(300)
def test_a_node_that_dies_costs_an_idempotent_deployment_no_request(cli: Any, deploy: Any) -> None:
    assert cli("cluster", "create", "away", "--max-nodes", "2").returncode == 0
    limits = "{request_timeout_ms: 120000, max_concurrent_requests_per_instance: 16, max_queue_wait_ms: 120000}"
    # The front door is where the first deployment is.
    deploy("green")
    (other,) = processes_of(cli.folder, "serve.replica")
    deploy("blue", "--all-traffic", more=f"compute: away\nrequest_settings: {limits}\nidempotent: true\n")
    ask = Asking(cli)
    (before,) = (item for item in processes_of(cli.folder, "serve.replica") if item.pid != other.pid)
    with ask.load(2) as found:
        wait_until(lambda: found["200"] > 5, 60, "answers")
        for process in on_its_node(before):
            process.kill()
        seen = found["200"]
        wait_until(lambda: found["200"] > seen + 20, 120, "answers of the next attempt")
    assert set(found) == {"200"}, found
    assert not before.is_running() and other.is_running()


def on_its_node(process: psutil.Process) -> list[psutil.Process]:
    """All of the node that a process belongs to: its agent, and everything below that."""
    agent = next(item for item in process.parents() if "muster.agent" in item.cmdline())
    return [agent, *agent.children(recursive=True)]


@pytest.mark.timeout(300)
def test_an_answer_in_pieces_passes_both_doors_as_it_is_made(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic")
    ask = Asking(cli)
    for name in ("whole", "cut"):
        gate = cli.folder / name
        connection = http.client.HTTPConnection("127.0.0.1", ask.address.port, timeout=60)
        body = json.dumps({"gate": str(gate)})
        connection.request("POST", "/score", body, {"Authorization": f"Bearer {ask.key}"})
        answer = connection.getresponse()
        # The model waits for the file: what is read here was sent before the rest was made.
        assert answer.status == 200 and answer.read1() == b"first"
        assert len(answer.headers.get_all("date", [])) == 1
        if name == "cut":
            (cli.folder / "cut.broken").touch()
        gate.touch()
        if name == "whole":
            assert answer.read() == b"second"
        else:
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        connection.close()
    assert ask.color() == "blue"


@pytest.mark.timeout(300)
def test_a_canary_that_fails_gives_its_traffic_back(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic")
    deploy("green")
    ask = Asking(cli)
    refused = cli("endpoint", "traffic", "digits", "blue=100", "--canary", "green")
    assert refused.returncode == 2 and "gets no traffic" in refused.stderr
    done = cli("endpoint", "traffic", "digits", "blue=50", "green=50", "--canary", "green")
    assert done.returncode == 0 and "green is watched" in done.stdout + done.stderr
    for _ in range(30):
        assert ask("{}", azureml_model_deployment="blue")[0] == 200
        assert ask("no JSON", azureml_model_deployment="green")[0] == 424
    wait_until(lambda: ask.view()["traffic"] == {"blue": 100}, 60, "the traffic to go back")
    shown = cli("endpoint", "show", "digits").stdout
    assert "green gave its traffic back" in shown and "of its" in shown
    assert {ask.color() for _ in range(10)} == {"blue"}


V2 = """
from muster.ml import MLClient
from muster.ml.entities import CodeConfiguration, ManagedOnlineDeployment, ManagedOnlineEndpoint, OnlineRequestSettings

client = MLClient.from_config()
endpoint = ManagedOnlineEndpoint(name="digits", auth_mode="key", tags={"team": "vision"})
client.online_endpoints.begin_create_or_update(endpoint).result()
deployment = ManagedOnlineDeployment(
    name="blue", endpoint_name="digits", instance_count=1, environment_variables={"COLOR": "blue"},
    code_configuration=CodeConfiguration(code="src", scoring_script="score.py"),
    request_settings=OnlineRequestSettings(request_timeout_ms=30000),
)
client.begin_create_or_update(deployment).result()
endpoint.traffic = {"blue": 100}
client.begin_create_or_update(endpoint).result()
print(client.online_endpoints.invoke("digits", input_data={"a": 1}, deployment_name="blue"))
print(client.online_deployments.get_logs("blue", "digits"))
print([item.name for item in client.online_deployments.list("digits")])
assert client.online_endpoints.get_keys("digits").primary_key
found = client.online_endpoints.get("digits")
assert found.provisioning_state == "Succeeded"
found.traffic = {"blue": 0}
assert not client.online_endpoints.begin_create_or_update(found).result().traffic
found.traffic = {"blue": 100}
client.online_endpoints.begin_create_or_update(found).result()
again = client.online_deployments.get("blue", "digits")
assert again.instance_count == 1 and again.code_configuration.scoring_script == "score.py"
again.environment_variables = {"COLOR": "azure"}
assert client.online_deployments.begin_create_or_update(again).result().provisioning_state == "Succeeded"
"""

V1 = """
import json, pathlib
from azureml.core import Environment, Model, Workspace
from azureml.core.model import InferenceConfig
from azureml.core.webservice import AksWebservice, LocalWebservice, Webservice
from azureml.exceptions import WebserviceException

workspace = Workspace.from_config()
model = Model.register(workspace, model_path="weights.txt", model_name="net")
config = InferenceConfig(entry_script="score.py", source_directory="v1")
service = Model.deploy(workspace, "words", [model], config, LocalWebservice.deploy_configuration())
service.wait_for_deployment(show_output=True)
print(service.state, service.run(json.dumps({"text": "hi"})), service.port)
try:
    service.run("no JSON")
except WebserviceException as error:
    print("refused:", error)
try:
    Model.deploy(workspace, "words", [model], config)
except WebserviceException as error:
    print("taken:", error)
more = Model.register(workspace, model_path="more", model_name="more")
service.update(models=[model, more], inference_config=config,
               deployment_config=AksWebservice.deploy_configuration(num_replicas=2, cpu_cores=1))
service.wait_for_deployment()
print(Webservice(workspace, "words").run({"text": "ho"}), [item.name for item in Webservice.list(workspace)])
script = pathlib.Path("v1/score.py")
script.write_text(script.read_text().replace('["text"]', '["text"].upper()'))
service.reload(wait=True)
print(service.run({"text": "ho"}))
assert "is ready" in service.get_logs() and len(service.get_keys()) == 2
service.delete()
"""

V1_SCORE = """
import glob, json, os
from azureml.core.model import Model

def init():
    global suffix
    # With several models, each is below its name and version.
    more = glob.glob(os.path.join(os.environ["AZUREML_MODEL_DIR"], "more", "1", "more", "*.txt"))
    suffix = "".join(open(path).read() for path in [Model.get_model_path("net"), *more])

def run(data):
    return json.loads(data)["text"] + suffix
"""


@pytest.mark.timeout(300)
def test_a_script_of_v2(cli: Any, deploy: Any) -> None:
    cli.script("v2.py", V2)
    done = subprocess.run([sys.executable, "v2.py"], cwd=cli.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"color": "blue"' in done.stdout and "['blue']" in done.stdout
    assert Asking(cli).color() == "azure"


@pytest.mark.timeout(300)
def test_a_script_of_v1(cli: Any) -> None:
    (cli.folder / "v1").mkdir()
    cli.script("v1/score.py", V1_SCORE)
    cli.script("v1.py", V1)
    (cli.folder / "weights.txt").write_text("!")
    (cli.folder / "more").mkdir()
    (cli.folder / "more" / "end.txt").write_text("?")
    command = [sys.executable, "-m", "muster.azureml", "v1.py"]
    done = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Healthy hi! " in done.stdout and "ho!? ['words']" in done.stdout and "HO!?" in done.stdout
    assert "refused: words answered 424" in done.stdout and "taken: there is a service words already" in done.stdout
