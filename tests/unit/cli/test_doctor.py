"""What the facts of a machine mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.cli.console import Paint
from muster.cli.doctor.checks import Finding, check
from muster.cli.doctor.facts import Facts, Filesystem, Gpu, Interface, _rdma_devices, gather, parse_gpus
from muster.cli.views.findings import finding_lines

GOOD = Facts(
    python=(3, 12, 1),
    executable="/usr/bin/python",
    system="Linux",
    cpus=8,
    usable_cpus=8,
    memory_bytes=64 << 30,
    memory_limit_bytes=None,
    shm_bytes=32 << 30,
    limits={"nofile": 65536, "memlock": None, "nproc": None},
    ports_taken=(),
    interfaces=(Interface("eth0", "10.0.0.4", True, 10_000),),
    rdma_devices={},
    extras={"torch": "2.9.0", "mpi": None},
    mpirun="/usr/bin/mpirun",
    workspace=Filesystem("/home/ada", "ext4", 500 << 30, True, 0.01),
    now=1_800_000_000.0,
    gpus=(Gpu("NVIDIA H200", 143_771, "570.1"), Gpu("NVIDIA H200", 143_771, "570.1")),
)


def findings(**changes: Any) -> dict[str, list[Finding]]:
    by_topic: dict[str, list[Finding]] = {}
    for finding in check(replace(GOOD, **changes)):
        by_topic.setdefault(finding.topic, []).append(finding)
    return by_topic


def test_a_good_machine_has_nothing_but_good_lines() -> None:
    found = check(GOOD)
    assert {finding.level for finding in found} == {"ok"}
    assert "2 x NVIDIA H200, 151 GB, driver 570.1" in [finding.said for finding in found]


@pytest.mark.parametrize(
    ("topic", "level", "changes"),
    [
        ("python", "fail", {"python": (3, 10, 4)}),
        ("system", "warn", {"system": "Darwin"}),
        ("system", "fail", {"system": "Windows"}),
        ("memory", "warn", {"memory_limit_bytes": 1 << 30}),
        ("gpus", "fail", {"gpus": (), "gpu_trouble": "NVIDIA-SMI has failed"}),
        ("gpus", "warn", {"gpus": (), "nvidia_devices": 2}),
        ("gpus", "warn", {"extras": {"torch": "2.9.0+cpu"}}),
        ("shared memory", "warn", {"shm_bytes": 64 << 20}),
        ("ranks", "fail", {"isolation": "sandbox", "sandbox_trouble": "bubblewrap is not installed"}),
        ("shared memory", "fail", {"shm_bytes": None}),
        ("open files", "warn", {"limits": {"nofile": 1024, "memlock": None, "nproc": None}}),
        ("processes", "warn", {"limits": {"nofile": None, "memlock": None, "nproc": 100}}),
        ("locked memory", "fail", {"limits": {"memlock": 65536}, "rdma_devices": {"mlx5_0": True}}),
        ("ports", "warn", {"ports_taken": (6105,)}),
        ("network", "warn", {"interfaces": ()}),
        ("network", "warn", {"interfaces": (Interface("docker0", "172.17.0.1", True),)}),
        ("network", "warn", {"interfaces": (Interface("eth0", "10.0.0.4", False),)}),
        ("rdma", "warn", {"rdma_devices": {"mlx5_0": False}}),
        ("workspace", "fail", {"workspace": Filesystem("/w", "ext4", 500 << 30, False, None)}),
        ("workspace", "fail", {"workspace": Filesystem("/w", "ext4", 1 << 20, True, 0.0)}),
        ("workspace", "warn", {"workspace": Filesystem("/w", "ext4", 5 << 30, True, 0.0)}),
        ("workspace", "warn", {"workspace": Filesystem("/w", "nfs4", 500 << 30, True, 0.0)}),
        ("clock", "fail", {"now": 0.0}),
        ("clock", "warn", {"workspace": Filesystem("/w", "ext4", 500 << 30, True, 120.0)}),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(topic: str, level: str, changes: dict[str, Any]) -> None:
    wrong = [finding for finding in findings(**changes)[topic] if finding.level == level]
    assert wrong
    assert all(finding.advice for finding in wrong)
    others = {finding.topic for group in findings(**changes).values() for finding in group if finding.level != "ok"}
    assert others == {topic}


def test_a_small_lock_limit_does_not_matter_without_rdma() -> None:
    assert findings(limits={"memlock": 65536})["locked memory"][0].level == "ok"


def test_the_answer_of_nvidia_smi_is_read() -> None:
    assert parse_gpus("NVIDIA A100, 80GB, 81920, 550.54\nTesla K80, [N/A], 470.1\n\n") == (
        Gpu("NVIDIA A100, 80GB", 81920, "550.54"),
        Gpu("Tesla K80", 0, "470.1"),
    )


def test_rdma_devices_are_read_with_their_state(tmp_path: Path) -> None:
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    assert _rdma_devices(tmp_path) == {"mlx5_0": True, "mlx5_1": False}
    assert _rdma_devices(tmp_path / "absent") == {}


def test_the_facts_of_this_machine_can_be_gathered() -> None:
    facts = gather()
    assert facts.cpus >= 1
    assert facts.memory_bytes > 0
    assert facts.workspace.kind != ""
    assert check(facts)


def test_the_report_gives_advice_below_each_line() -> None:
    lines = finding_lines([Finding("a", "ok", "fine"), Finding("long", "warn", "hm", "Do it.")], Paint(False))
    assert lines == ["ok    a     fine", "warn  long  hm", "            → Do it."]


def test_it_says_what_ranks_reach() -> None:
    assert "run as ada, and reach all that this account can" in findings(account="ada")["ranks"][0].said
    assert findings(sandbox_trouble="no bwrap")["sandbox"][0].said == "none: no bwrap"
    assert "in a sandbox" in findings(isolation="sandbox")["ranks"][0].said and "sandbox" not in findings(
        isolation="sandbox"
    )
