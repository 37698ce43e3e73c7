"""Nodes in network namespaces of their own: which network a gang takes, and how `muster doctor` sees it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MUSTER
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import find_workspace
from muster.job.explain import make_spec

PER_NODE = {"distribution": {"type": "pytorch"}, "resources": {"instance_count": 2}}
SHOW = "import os, json; print(json.dumps(dict(os.environ)))"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[list[str]]:
    """Two machines with two networks between them: `lan`, which carries their addresses, and `fast`."""
    if os.getuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need root and iproute2")
    names = [f"muster-{os.getpid()}-{index}" for index in range(2)]
    for name in names:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    for third, link in enumerate(("lan", "fast")):
        ip("link", "add", link, "netns", names[0], "type", "veth", "peer", "name", link, "netns", names[1])
        for index, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.{third}.{index + 1}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
    yield names
    for name in names:
        ip("netns", "delete", name)


@pytest.fixture
def site(workspace: Path, namespaces: list[str]) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    engines = {"fake": "muster.testing.engine:FakeEngine"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "engines": engines}))
    client = connect(find_workspace(workspace))
    site = Site(workspace, client)
    farm(site, namespaces, "farm")
    yield site
    client.close()


def farm(site: Site, namespaces: list[str], name: str, **options: Any) -> None:
    (site.folder / name).mkdir()
    site.client.create_cluster(
        name,
        "fake",
        {
            "folder": str(site.folder / name),
            "max_nodes": 2,
            "addresses": ["10.77.0.1", "10.77.0.2"],
            "namespaces": namespaces,
            **options,
        },
    )


def notes(site: Site, run_id: str) -> str:
    return "\n".join(event.text for event, _ in site.client.stream(run_id, follow=False) if event.kind == "note")


def environments(site: Site, run_id: str) -> list[dict[str, str]]:
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    return [json.loads(site.log(run_id, rank["log"])) for rank in view["attempts"][-1]["ranks"]]


def test_ranks_talk_over_the_interface_of_their_nodes_addresses_and_are_told_so(site: Site) -> None:
    run_id = site.run(command=["python", "-c", SHOW], compute="farm", **PER_NODE)
    for env in environments(site, run_id):
        assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == env["TP_SOCKET_IFNAME"] == "lan"
        assert env["NCCL_IB_DISABLE"] == "1"
        assert env["MASTER_ADDR"] == "10.77.0.1"
    told = notes(site, run_id)
    assert "ranks talk over the interface lan (farm-0 10.77.0.1, farm-1 10.77.0.2)" in told
    assert "no InfiniBand is used" in told
    printed = subprocess.run([MUSTER, "logs", run_id], cwd=site.folder, capture_output=True, text=True, check=True)
    assert "ranks talk over the interface lan" in printed.stderr


def test_mpi_ranks_reach_each_other_with_these_settings(site: Site) -> None:
    (site.folder / "sum.py").write_text(
        "from mpi4py import MPI\n"
        "import json, os\n"
        "print(json.dumps({'SUM': MPI.COMM_WORLD.allreduce(1), **os.environ}))\n"
    )
    mpi = {"distribution": {"type": "mpi", "process_count_per_instance": 2}, "resources": {"instance_count": 2}}
    run_id = site.run(command=["python", "sum.py"], code=".", compute="farm", **mpi)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    ranks = [rank for rank in view["attempts"][-1]["ranks"] if rank["role"] == "worker"]
    assert len(ranks) == 4
    for rank in ranks:
        env = json.loads(site.log(run_id, rank["log"]))
        assert env["SUM"] == 4
        assert env["OMPI_MCA_btl_tcp_if_include"] == "lan"
        assert env["OMPI_MCA_pml"] == "ob1"


def test_the_clusters_interface_wins_and_one_that_does_not_exist_is_refused(site: Site, namespaces: list[str]) -> None:
    farm(site, namespaces, "quick", interface="fast")
    run_id = site.run(
        command=["python", "-c", SHOW], compute="quick", environment_variables={"GLOO_SOCKET_IFNAME": "lan"}, **PER_NODE
    )
    for env in environments(site, run_id):
        assert env["MASTER_ADDR"] == "10.77.1.1"
        assert env["NCCL_SOCKET_IFNAME"] == "fast"
        assert env["GLOO_SOCKET_IFNAME"] == "lan", "what the job sets wins"

    farm(site, namespaces, "wrong", interface="eth7")
    view = site.wait(site.run(command="echo started", compute="wrong", **PER_NODE))
    assert view["status"] == "Failed"
    assert view["verdict"]["code"] == "bad_input"
    assert "has no network interface 'eth7'" in view["verdict"]["message"]
    assert "lan (10.77.0.1)" in view["verdict"]["message"]

    variables = {"GLOO_SOCKET_IFNAME": "eth9"}
    view = site.wait(site.run(command="true", compute="farm", environment_variables=variables, **PER_NODE))
    assert view["verdict"]["code"] == "bad_input"
    assert "GLOO_SOCKET_IFNAME is 'eth9'" in view["verdict"]["message"]
    assert "fast, lan, lo" in view["verdict"]["message"]


def test_different_versions_of_a_framework_are_a_verdict_that_names_both(site: Site, tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        package = tmp_path / version / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (tmp_path / version / f"torch-{version}.dist-info").mkdir()
    # Each node looks once; whoever comes first finds the older one.
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nif mkdir {tmp_path}/first 2>/dev/null; then PYTHONPATH={tmp_path}/1.0; else "
        f'PYTHONPATH={tmp_path}/2.0; fi\nexport PYTHONPATH\nexec {sys.executable} -S "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    spec = make_spec({"command": ["python", "-c", "print('started')"], "compute": "farm", **PER_NODE})
    view = site.wait(submit(site.client, spec, site.folder, python=str(python)).id)
    assert view["verdict"]["code"] == "environment"
    assert "torch is " in view["verdict"]["message"]
    for part in ("1.0 on farm-", "2.0 on farm-"):
        assert part in view["verdict"]["message"]
    assert view["attempts"][-1]["ranks"] == []


def test_the_doctor_calls_a_slow_link_slow_and_a_fast_one_not(site: Site, namespaces: list[str]) -> None:
    command = [MUSTER, "doctor", "--nodes", "2", "--compute", "farm", "--images-per-s", "1245", "--json"]

    def examined() -> dict[str, Any]:
        done = subprocess.run(command, cwd=site.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    fast = examined()
    assert [node["name"] for node in fast["nodes"]] == ["farm-0", "farm-1"]
    shaped = "qdisc add dev lan root tbf rate 100mbit burst 64kb latency 50ms"
    subprocess.run(["ip", "netns", "exec", namespaces[0], "tc", *shaped.split()], check=True)
    slow = examined()
    assert slow["pairs"][0]["bytes_per_s"] < 40e6 < fast["pairs"][0]["bytes_per_s"]
    assert slow["judgement"]["level"] == "warn"
    assert "too slow" in slow["judgement"]["said"]
    assert slow["judgement"]["speedup"] < fast["judgement"]["speedup"]
