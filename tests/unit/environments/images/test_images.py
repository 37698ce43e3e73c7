"""What an image holds, what its name says, and what an engine's complaint means."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from muster.environments.failures import Failure, classify_engine
from muster.environments.images import probe
from muster.environments.images.registries import registry_of, secret_name
from muster.wire.codec import from_json, to_json
from muster.wire.node.containers import Build, Container, Login

WHOLE: dict[str, Any] = {"required": (), "programs": (), "shell": False, "mpi": False, "deepspeed": False}


def contents(**more: Any) -> probe.Contents:
    fields: dict[str, Any] = {"python": (3, 8, 1), "modules": {}, "programs": {}, "mpi": "", "env": {}, **more}
    return probe.Contents(**fields)


def test_the_probe_runs_in_a_python_and_is_read_back() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", probe.SCRIPT], capture_output=True, text=True, check=True)
    found = probe.read("a banner\n" + done.stdout)
    assert found is not None
    assert found.python == sys.version_info[:3]
    assert "HOME" not in found.env
    assert probe.read("something else\n") is None


@pytest.mark.parametrize(
    ("image", "asked", "code", "words"),
    [
        (contents(python=(3, 6, 0)), {}, "environment", "no python3 that starts"),
        (contents(), {"mpi": True}, "launcher_missing", "no mpirun"),
        (contents(programs={"mpirun": "/m"}), {"mpi": True, "deepspeed": True}, "environment", "needs mpi4py"),
        (contents(), {"programs": ("torchrun",)}, "launcher_missing", "begins with torchrun"),
        (contents(), {"required": ("torch",)}, "environment", "has no torch"),
        (contents(), {"shell": True}, "environment", "runs under bash"),
    ],
)
def test_a_job_that_cannot_run_in_its_image_is_told(
    image: probe.Contents, asked: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(Failure) as caught:
        probe.check("img:1", image, **{**WHOLE, **asked})
    assert caught.value.code == code
    assert words in caught.value.message
    assert "img:1" in caught.value.message
    assert caught.value.next


def test_a_job_whose_image_has_everything_passes() -> None:
    image = contents(programs={"mpirun": "/m", "bash": "/b"}, modules={"mpi4py": "4", "deepspeed": "1"})
    probe.check("img", image, **{**WHOLE, "mpi": True, "deepspeed": True, "shell": True, "required": ("deepspeed",)})


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("python:3.12", "docker.io"),
        ("library/python", "docker.io"),
        ("ghcr.io/a/b:1", "ghcr.io"),
        ("localhost/a", "localhost"),
        ("box:5000/a", "box:5000"),
    ],
)
def test_an_image_names_its_registry(image: str, registry: str) -> None:
    assert registry_of(image) == registry


def test_a_container_travels_as_json_and_its_password_is_not_shown() -> None:
    container = Container(
        build=Build("abc", args={"A": "1"}),
        args=("--memory", "1g"),
        login=Login("r.io", "u", "hidden"),
        push_to="r.io/t",
    )
    assert from_json(Container, json.loads(json.dumps(to_json(container)))) == container
    assert "hidden" not in repr(container)


def test_a_built_image_is_named_by_its_content() -> None:
    one = Build("abc", args={"A": "1", "B": "2"})
    assert one.tag == Build("abc", args={"B": "2", "A": "1"}).tag
    assert len({one.tag, Build("abd").tag, Build("abc").tag, Build("abc", "Other").tag}) == 4


@pytest.mark.parametrize(
    ("line", "pulled", "code", "words"),
    [
        ("unauthorized: authentication required", True, "environment", "refused the credentials"),
        ("manifest unknown: manifest unknown", True, "environment", "no such image"),
        ("dial tcp: lookup x: no such host", True, "environment", "cannot be reached"),
        ("write /x: no space left on device", True, "disk_full", "disk is full"),
        ("write /x: no space left on device", False, "disk_full", "disk is full"),
        ("E: 404 not found", False, "environment", "ended with code 7"),
    ],
)
def test_an_engines_complaint_is_understood(line: str, pulled: bool, code: str, words: str) -> None:
    failure = classify_engine("pulling x failed", 7, ["begin", line], "registry_x", pulled=pulled)
    assert failure.code == code
    assert words in failure.message
    assert line in failure.lines


def test_a_killed_engine_says_so() -> None:
    assert "SIGKILL" in classify_engine("x", -9, [], "", pulled=True).message


def test_a_registrys_secret_has_a_name_that_secrets_may_have() -> None:
    assert secret_name("box.example.org:5000") == "registry_box_example_org_5000"
