"""A served model against real clients: the inference server's contract, a replica that is killed, an orderly end."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli

__all__ = ["cli"]

SCRIPT = """
import json, os
from azureml.contrib.services.aml_response import AMLResponse

def init():
    global suffix
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "suffix.txt")) as file:
        suffix = file.read()

def run(data, request_headers):
    given = json.loads(data)
    if given.get("teapot"):
        return AMLResponse("short and stout", 418)
    return {"said": given["text"] + suffix, "agent": request_headers.get("user-agent")}
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(cli: Any, port: int) -> Iterator[str]:
    (cli.folder / "model").mkdir()
    (cli.folder / "model" / "suffix.txt").write_text("!")
    cli.script("score.py", SCRIPT)
    done = cli(
        "serve", "score.py", "--model", "./model", "--port", str(port), "--replicas", "2", "--detach",
        "--set", "environment_variables.AML_CORS_ORIGINS=https://app.example.org",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    wait_until(lambda: cli("logs", run).stdout.count("is ready") == 2, 60, "two replicas")
    yield run
    cli("cancel", run, "--force")
    cli("wait", run)


def ask(port: int, body: bytes | str | None, path: str = "/score", method: str = "POST") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {"User-Agent": "test"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def test_the_inference_servers_contract(cli: Any, served: str, port: int) -> None:
    shown = subprocess.run(
        ["curl", "-si", "-d", '{"text": "hi"}', f"http://127.0.0.1:{port}/score"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "200 OK" in shown and '"said": "hi!"' in shown
    assert "x-ms-run-function-failed: false" in shown and "x-request-id" in shown
    assert "access-control" not in shown
    page = subprocess.run(
        [
            "curl",
            "-si",
            "-d",
            '{"text": "hi"}',
            "-H",
            "Origin: https://app.example.org",
            f"http://127.0.0.1:{port}/score",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "access-control-allow-origin: https://app.example.org" in page
    assert ask(port, None, "/", "GET") == (200, "Healthy")
    assert ask(port, '{"teapot": 1}') == (418, "short and stout")
    assert ask(port, None, "/score?text=hello", "GET")[1]["said"] == "hello!"
    assert ask(port, b"\xff\xfe")[0] == 400
    assert ask(port, "{}")[0] == 500 and ask(port, "no json")[0] == 500
    assert ask(port, "{}", method="DELETE")[0] == 405 and ask(port, "{}", "/nowhere")[0] == 404
    assert ask(port, None, "/swagger.json", "GET")[1]["swagger"] == "2.0"
    assert ask(port, None, "/swagger.json?version=9", "GET")[0] == 404
    assert ask(port, None, "/v2/health/ready", "GET")[1] == {"ready": True}
    assert ask(port, '{"text": "x", "instances": []}', "/v1/models/model:predict")[1]["predictions"]["said"] == "x!"


def test_a_killed_replica_is_replaced_while_the_other_answers(cli: Any, served: str, port: int) -> None:
    replicas = replicas_of(cli.folder)
    assert len(replicas) == 2
    failures: list[str] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            try:
                status, _ = ask(port, '{"text": "hi"}')
                if status != 200:
                    failures.append(str(status))
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    replicas[0].kill()
    wait_until(lambda: cli("logs", served).stdout.count("is ready") == 3, 60, "a new replica")
    over.set()
    for thread in threads:
        thread.join()
    # Only what was inside the dead replica, at most one of each client.
    assert len(failures) <= len(threads), failures
    assert "was ended by SIGKILL" in cli("logs", served).stdout
    assert cli("cancel", served).returncode == 0
    cli("wait", served)
    wait_until(lambda: not replicas_of(cli.folder), 30, "the end of the replicas")


def replicas_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[1:3] == ["-m", "muster.scoring.serve.replica"] and process.cwd().startswith(str(folder)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_what_cannot_be_served_is_refused_or_fails_with_its_reason(cli: Any, port: int) -> None:
    (cli.folder / "m.bin").write_text("m")
    assert cli("model", "register", "net", "--path", "m.bin").returncode == 0
    refused = cli("serve", "net:1", "--port", str(port))
    assert refused.returncode != 0 and "neither an MLflow model nor a TorchScript file" in refused.stderr
    cli.script("bad.py", "def init():\n    raise RuntimeError('no weights')\ndef run(data):\n    return data\n")
    failed = cli("serve", "bad.py", "--port", str(port))
    assert failed.returncode == 1 and "no weights" in failed.stdout + failed.stderr
