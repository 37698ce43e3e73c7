"""Command lines of container engines, against what is written down in a file."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from muster.environments.images.command import (
    APPTAINER,
    DOCKER,
    PODMAN,
    AttemptContainer,
    Engine,
    Host,
    Mount,
    build_command,
    list_command,
    pull_command,
    push_command,
    run_command,
)

GOLDEN = Path(__file__).parent / "golden_commands.txt"
ATTEMPT = AttemptContainer(
    "muster-r-1-abc", "abcdef", "r", 1, "/n/attempts/r.1/work",
    [Mount("/n/attempts/r.1", "/n/attempts/r.1", True), Mount("/n/runtime", "/n/runtime"), Mount("/data", "/data")],
)  # fmt: skip
INSIDE = ["python3", "-I", "-S", "/n/runtime/1-keeper/inside.py", "/n/runtime/1-keeper", "/n/attempts/r.1"]
PLAIN = Host(1000, 100)
RICH = Host(1000, 100, True, ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"], True, ["--runtime", "runc"])
ENGINES = [
    Engine(PODMAN, "/usr/bin/podman", rootless=True),
    Engine(PODMAN, "/usr/bin/podman"),
    Engine(DOCKER, "/usr/bin/docker"),
    Engine(APPTAINER, "/usr/bin/apptainer"),
]


def commands() -> str:
    lines = []
    for engine in ENGINES:
        lines.append(f"# {engine.kind}{' rootless' if engine.rootless else ''}")
        for host, args in ((PLAIN, ()), (RICH, ("--memory", "8g"))):
            lines.append(shlex.join(run_command(engine, "sha256:1", ATTEMPT, host, 2 << 30, args, INSIDE)))
    return "\n".join(lines) + "\n"


def test_containers_start_as_written_down() -> None:
    assert commands() == GOLDEN.read_text()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_node_that_shares_its_machine_has_a_name_of_its_own(engine: Engine) -> None:
    named = run_command(engine, "sha256:1", ATTEMPT._replace(hostname="127.0.0.2"), PLAIN, 1, (), INSIDE)
    assert named[named.index("--hostname") + 1] == "127.0.0.2"
    assert named.index("--hostname") < named.index("sha256:1")


@pytest.mark.parametrize("engine", ENGINES[:3])
def test_credentials_are_named_by_their_file_alone(engine: Engine) -> None:
    made = [
        pull_command(engine, "r.io/a:1", "/tmp/x/config.json"),
        push_command(engine, "r.io/a:1", "/tmp/x/config.json"),
        build_command(engine, "r.io/a:1", "/f", "Dockerfile", {"A": "1"}, "/tmp/x/config.json"),
    ]
    wanted = ["--authfile", "/tmp/x/config.json"] if engine.kind == PODMAN else ["--config", "/tmp/x"]
    for command in made:
        assert shlex.join(wanted) in shlex.join(command)
        assert shlex.join(wanted) not in shlex.join(pull_command(engine, "r.io/a:1"))


def test_one_attempts_containers_are_found_by_their_labels() -> None:
    command = list_command(ENGINES[2], "abcdef", ("r", 2))
    assert [word for word in command if word.startswith("label=")] == [
        "label=muster.mark=abcdef",
        "label=muster.run=r",
        "label=muster.attempt=2",
    ]
