"""Services of a job: their ports, what is started beside rank 0, and how people reach it."""

from __future__ import annotations

import json
import subprocess

from muster.job.explain import make_spec
from muster.job.spec import JobSpec
from muster.launch.conventions import ports_wanted
from muster.launch.plan import plan, sample_slots
from muster.wire.node.plan import Plan

SERVICES = {
    "tb": {"type": "tensor_board", "log_dir": "${{outputs.tb}}/x$y"},
    "lab": {"type": "jupyter_lab"},
    "own": {"type": "custom", "port": 8080},
    "door": {"type": "ssh", "ssh_public_keys": "ssh-ed25519 AAAA it's me"},
}


def spec_of(**changes: object) -> JobSpec:
    return make_spec({"command": "true", "outputs": {"tb": {}}, "services": SERVICES, **changes})  # type: ignore[dict-item]


def planned(spec: JobSpec) -> Plan:
    return plan(spec, sample_slots(spec), run_id="r-1", attempt=1)


def test_services_are_started_beside_rank_0_and_nothing_waits_for_them() -> None:
    made = planned(spec_of(distribution={"type": "mpi"}, resources={"instance_count": 2}))
    first = made.nodes[0].ranks
    assert [(rank.rank, rank.role) for rank in first] == [
        (2, "launcher"),
        (0, "worker"),
        (3, "service"),
        (4, "service"),
        (5, "service"),
    ]
    assert not any(rank.essential for rank in first if rank.role == "service")
    assert [rank.role for rank in made.nodes[1].ranks] == ["worker"]


def test_every_rank_knows_the_ports_and_the_master_keeps_its_own() -> None:
    spec = spec_of(distribution={"type": "pytorch", "process_count_per_instance": 1}, resources={"instance_count": 2})
    assert ports_wanted(spec, 0).count == 4
    assert ports_wanted(spec, 1).count == 0
    for rank in planned(spec).ranks:
        ports = [rank.env[f"MUSTER_SERVICE_{name}_PORT"] for name in SERVICES]
        assert len(set(ports)) == 4 and ports[2] == "8080"
        assert rank.env.get("MASTER_PORT") not in ports


def test_the_parts_of_tensorflow_keep_their_ports() -> None:
    made = planned(spec_of(distribution={"type": "tensorflow", "worker_count": 1, "parameter_server_count": 1}))
    config = json.loads(made.ranks[0].env["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["127.0.0.1:2222"], "ps": ["127.0.0.1:2223"]}
    assert made.ranks[0].env["MUSTER_SERVICE_tb_PORT"] == "2224"


def test_the_plan_says_how_each_is_reached() -> None:
    said = "\n".join(planned(spec_of()).notices)
    assert "service own (custom) is on port 8080 of rank 0's node: `muster forward r-1 8080` reaches it" in said


def test_the_commands_are_bash() -> None:
    for rank in planned(spec_of()).ranks:
        if rank.role == "service":
            subprocess.run(["bash", "-n", "-c", rank.argv[2]], check=True)
    tensorboard = planned(spec_of()).ranks[1].argv[2]
    assert '--logdir "${MUSTER_OUTPUT_tb}/x\\$y"' in tensorboard
