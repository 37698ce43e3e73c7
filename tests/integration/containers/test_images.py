"""Images that are built from a Dockerfile, and a registry with a password."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.containers.conftest import Site
from tests.integration.environments.conftest import Shelf, shelf
from tools import images

__all__ = ["shelf"]

PASSWORD = "s3cret-of-the-registry"


def dockerfile(site: Site, image: str, *lines: str) -> dict[str, object]:
    folder = site.folder / "box"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text("\n".join([f"FROM {image}", *lines]) + "\n")
    (folder / "hello.txt").write_text("hello from the folder")
    return {"build": {"path": "box", "args": {"COLOUR": "blue"}}}


def test_an_image_is_built_once_from_a_dockerfile(boxes: Site, image: str) -> None:
    built = dockerfile(boxes, image, "ARG COLOUR", "ENV COLOUR=$COLOUR", "COPY hello.txt /hello.txt")
    command = ["python3", "-c", "import os; print(open('/hello.txt').read(), os.environ['COLOUR'])"]
    first, second = (boxes.run(command=command, environment=built) for _ in range(2))
    tags = set()
    try:
        for run in (first, second):
            view = boxes.wait(run)
            assert view["status"] == "Completed", view["verdict"]
            assert b"hello from the folder blue" in boxes.log(run)
            tags.add(view["environment"]["key"])
        assert len(tags) == 1
        # Whichever came first built it, and has the log of that; the other one waited.
        build_log = "user_logs/environment_node_0.txt"
        builders = [run for run in (first, second) if build_log in {file.path for file in boxes.client.files(run)}]
        assert any(b"COPY hello.txt" in boxes.log(run, build_log) for run in builders)
    finally:
        subprocess.run(["podman", "rmi", "--force", *tags], check=False, capture_output=True)


def test_a_build_that_fails_is_a_verdict_with_its_last_lines(boxes: Site, image: str) -> None:
    run = boxes.run(command="true", environment=dockerfile(boxes, image, "RUN echo about to fail && exit 3"))
    verdict = boxes.wait(run)["verdict"]
    assert verdict["code"] == "environment"
    assert "about to fail" in json.dumps(verdict)


@dataclass(frozen=True)
class Registry:
    """A registry that asks for a password."""

    host: str

    def tags(self, name: str) -> list[str]:
        token = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(f"http://{self.host}/v2/{name}/tags/list")
        request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return list(json.load(answer)["tags"] or [])
        except urllib.error.HTTPError:
            return []


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    program = shutil.which("docker-registry")
    if program is None or shutil.which("htpasswd") is None:
        pytest.skip("docker-registry or htpasswd is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    users = subprocess.run(["htpasswd", "-Bbn", "anna", PASSWORD], capture_output=True, check=True).stdout
    (tmp_path / "users").write_bytes(users)
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "auth": {"htpasswd": {"realm": "muster", "path": str(tmp_path / "users")}},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(settings))
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    monkeypatch.setenv("MUSTER_IMAGE_REGISTRY", f"127.0.0.1:{port}/team")
    with (tmp_path / "registry.log").open("wb") as out:
        server = subprocess.Popen([program, "serve", str(tmp_path / "registry.yml")], stdout=out, stderr=out)
    try:
        wait_until(lambda: _answers(port), 20.0, "the registry")
        yield Registry(f"127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(10)


def test_a_built_image_goes_to_the_registry_and_comes_back(registry: Registry, boxes: Site, image: str) -> None:
    built = dockerfile(boxes, image, "COPY hello.txt /pushed.txt")
    command = ["python3", "-c", "print(open('/pushed.txt').read())"]
    run = boxes.run(command=command, environment=built)
    assert boxes.wait(run)["status"] == "Completed"
    assert registry.tags("team/muster-build") == [], "without its password nothing is taken"
    notes = [event.text for event, _ in boxes.client.stream(run, follow=False) if event.kind == "note"]
    assert any(f"the image {registry.host}/team/muster-build:" in note and "was not pushed" in note for note in notes)

    secret = "registry_" + registry.host.replace(".", "_").replace(":", "_")
    boxes.client.calls.send("PUT", f"/secrets/{secret}", message={"value": f"anna:{PASSWORD}"})
    _remove_images(registry)
    again = boxes.run(command=command, environment=built)
    assert boxes.wait(again)["status"] == "Completed"
    (tag,) = registry.tags("team/muster-build")

    _remove_images(registry)
    pulled = boxes.run(command=command, environment={"image": f"{registry.host}/team/muster-build:{tag}"})
    assert boxes.wait(pulled)["status"] == "Completed"
    assert b"hello from the folder" in boxes.log(pulled)
    for name in (again, pulled):
        told = boxes.log(name, "user_logs/environment_node_0.txt").decode() + json.dumps(boxes.view(name))
        assert PASSWORD not in told
    _remove_images(registry)


def test_an_image_of_the_repository_is_built_pushed_and_pulled_by_an_mpi_job(
    registry: Registry, boxes: Site, mpi_image: str, tmp_path: Path
) -> None:
    """`make images` with a base that is here already: the others need packages from outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        login = ["podman", "login", "--tls-verify=false", "--username", "anna", "--password-stdin", registry.host]
        subprocess.run(login, input=PASSWORD.encode(), check=True, capture_output=True)
        assert images.main(["mpi", "--base", mpi_image, "--registry", f"{registry.host}/team"]) == 0
    (tag,) = registry.tags("team/muster-mpi")
    _remove_images(registry)
    boxes.client.set_secret("registry_" + registry.host.replace(".", "_").replace(":", "_"), f"anna:{PASSWORD}")
    run = boxes.run(
        command=["python3", "-c", "from mpi4py import MPI; print('ranks', MPI.COMM_WORLD.allreduce(1))"],
        environment={"image": f"{registry.host}/team/muster-mpi:{tag}"},
        distribution={"type": "mpi", "process_count_per_instance": 2},
    )
    view = boxes.wait(run, timeout_s=120.0)
    assert view["status"] == "Completed", view["verdict"]
    assert b"ranks 2" in boxes.log(run, "user_logs/std_log_process_1.txt")
    _remove_images(registry)


def test_packages_on_an_image_come_from_the_registry_where_another_node_put_them(
    registry: Registry, shelf: Shelf, boxes: Site, image: str
) -> None:
    shelf.wheel("small", "1.0")
    secret = "registry_" + registry.host.replace(".", "_").replace(":", "_")
    boxes.client.calls.send("PUT", f"/secrets/{secret}", message={"value": f"anna:{PASSWORD}"})
    job = {
        "command": ["python3", "-c", "import small; print(small.VERSION)"],
        "environment": {"image": image, "pip": [*shelf.options, "small"]},
    }
    logs, locks = [], []
    for _ in range(2):
        run = boxes.run(**job)
        view = boxes.wait(run)
        assert view["status"] == "Completed", view["verdict"]
        assert boxes.log(run) == b"1.0\n" and len(registry.tags("team/muster-packages")) == 1
        logs.append(boxes.log(run, "user_logs/environment_node_0.txt").decode())
        locks.append(boxes.client.environment_of_run(run).lock)
        _remove_images(registry)
    assert "Successfully installed small" in logs[0] and "Successfully installed" not in logs[1]
    assert locks[0] == locks[1] and locks[0][0].startswith("small==1.0 --hash=")
    assert PASSWORD not in "".join(logs)


def test_wrong_credentials_are_a_verdict_that_names_the_secret(registry: Registry, boxes: Site) -> None:
    run = boxes.run(command="true", environment={"image": f"{registry.host}/team/none:1"})
    verdict = json.dumps(boxes.wait(run)["verdict"])
    assert "refused the credentials" in verdict
    assert "registry_127_0_0_1_" in verdict


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


def _remove_images(registry: Registry) -> None:
    listed = subprocess.run(
        ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True
    )
    for name in listed.stdout.split():
        if name.startswith(registry.host):
            subprocess.run(["podman", "rmi", "--force", name], check=True, capture_output=True)
