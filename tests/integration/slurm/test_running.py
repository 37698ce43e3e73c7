"""The launch conventions on a real Slurm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import muster
from tests.sites.slurm import SlurmSite

from muster.client.storage import Storage
from muster.host.network import address_towards
from muster.wire.data.datastores import NewDatastore

TWO_NODES = {"instance_count": 2}


def test_a_single_process_runs_and_the_job_ends_well_in_the_eyes_of_slurm(site: Site, slurm: SlurmSite):
    run_id = site.run(command="echo hello from $MUSTER_NODE_RANK", compute="hpc")
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run_id) == b"hello from 0\n"
    assert view["attempts"][0]["nodes"][0]["name"] in slurm.nodes

    def said() -> str:
        return next(
            line for line in slurm.command("squeue", "-h", "-t", "all", "-o", "%j %T").splitlines() if run_id in line
        )

    wait_until(lambda: not said().endswith(("RUNNING", "COMPLETING")), 20, "the end of the job")
    assert said().endswith(" COMPLETED")


def test_pytorch_with_a_process_count_gets_its_ranks_over_two_nodes(site: Site, slurm: SlurmSite):
    command = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT"
    job = {"type": "pytorch", "process_count_per_instance": 2}
    run_id = site.run(command=command, compute="hpc", resources=TWO_NODES, distribution=job)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    printed = [site.log(run_id, rank["log"]).decode().split() for rank in view["attempts"][0]["ranks"]]
    assert [line[:3] for line in printed] == [
        ["0/4", "0/2", "0"], ["1/4", "1/2", "0"], ["2/4", "0/2", "1"], ["3/4", "1/2", "1"],
    ]  # fmt: skip
    assert {line[3] for line in printed} == {printed[0][3]}
    assert {rank["node"] for rank in view["attempts"][0]["ranks"]} <= set(slurm.nodes)
    assert len({rank["node"] for rank in view["attempts"][0]["ranks"]}) == 2


def test_ranks_of_two_nodes_reduce_together_under_torch(site: Site):
    script = (
        "import torch, torch.distributed as d; d.init_process_group('gloo'); "
        "x = torch.ones(1); d.all_reduce(x); print(int(x)); d.destroy_process_group()"
    )
    job = {"type": "pytorch", "process_count_per_instance": 1}
    run_id = site.run(
        command=f'python -c "{script}"',
        compute="hpc",
        resources=TWO_NODES,
        distribution=job,
        environment_variables={"OMP_NUM_THREADS": "1"},
    )
    view = site.wait(run_id, timeout_s=120)
    assert view["status"] == "Completed", view["verdict"]
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"2\n", b"2\n"]


def test_pytorch_per_node_and_tensorflow_see_what_their_contract_says(site: Site):
    per_node = site.run(
        command='echo $NODE_RANK $RANK $WORLD_SIZE "[$LOCAL_RANK]"',
        compute="hpc",
        resources=TWO_NODES,
        distribution={"type": "pytorch"},
    )
    tensorflow = site.run(
        command="echo $TF_CONFIG",
        compute="hpc",
        resources=TWO_NODES,
        distribution={"type": "tensorflow", "worker_count": 2},
    )
    view = site.wait(per_node)
    assert view["status"] == "Completed", view["verdict"]
    logs = [site.log(per_node, rank["log"]) for rank in view["attempts"][0]["ranks"]]
    assert logs == [b"0 0 2 []\n", b"1 1 2 []\n"]
    view = site.wait(tensorflow)
    assert view["status"] == "Completed", view["verdict"]
    told = [json.loads(site.log(tensorflow, rank["log"])) for rank in view["attempts"][0]["ranks"]]
    assert [item["task"]["index"] for item in told] == [0, 1]
    assert len(told[0]["cluster"]["worker"]) == 2


def test_ranks_see_the_gpus_that_slurm_gave_and_nothing_else_of_slurm(site: Site):
    command = 'echo "$CUDA_VISIBLE_DEVICES"; env | grep -E "^(SLURM|PMI|PMIX|OMPI)" || echo clean'
    run_id = site.run(command=command, compute="hpc", resources={"instance_count": 1, "gpus_per_node": 1})
    first = site.wait(run_id)
    assert first["status"] == "Completed", first["verdict"]
    assert site.log(run_id) == b"0\nclean\n"
    assert first["attempts"][0]["nodes"][0]["gpus"] == ["0"]


def test_two_jobs_on_one_node_get_different_gpus(site: Site, cluster: Callable[..., str], tmp_path: Path):
    cluster("one", exclude="n[2-4]")
    command = f'echo "$CUDA_VISIBLE_DEVICES"; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done'
    resources = {"instance_count": 1, "gpus_per_node": 1}
    runs = [site.run(command=command, compute="one", resources=resources) for _ in range(2)]
    for run_id in runs:
        site.wait(run_id, "Running")
    (tmp_path / "go").touch()
    assert all(site.wait(run_id)["status"] == "Completed" for run_id in runs)
    assert sorted(site.log(run_id) for run_id in runs) == [b"0\n", b"1\n"]


def test_agents_that_cannot_reach_the_server_use_the_shared_folder(site: Site, cluster: Callable[..., str]):
    cluster("apart", connection="files")
    job = {"type": "pytorch", "process_count_per_instance": 1}
    command = "echo rank $RANK; mkdir -p outputs; head -c 3000000 /dev/zero > outputs/model.$RANK"
    run_id = site.run(command=command, compute="apart", resources=TWO_NODES, distribution=job)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"rank 0\n", b"rank 1\n"]
    sizes = {file["path"]: file["size"] for file in view["files"]}
    assert sizes["outputs/model.0"] == sizes["outputs/model.1"] == 3_000_000


def test_data_that_only_the_server_reaches_goes_through_the_shared_folder(
    site: Site, cluster: Callable[..., str], tmp_path: Path
):
    cluster("apart-with-data", connection="files")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "large").write_bytes(os.urandom(20_000_000))
    (tmp_path / "in" / "small").write_bytes(b"few")
    Storage(site.client.calls).create_datastore(NewDatastore("servers", "local", {"path": str(tmp_path)}))
    run_id = site.run(
        command="cp ${{inputs.data}}/large ${{inputs.data}}/small ${{outputs.copy}}/",
        compute="apart-with-data",
        inputs={"data": {"type": "uri_folder", "path": "azureml://datastores/servers/paths/in"}},
        outputs={"copy": {"type": "uri_folder", "path": "azureml://datastores/servers/paths/out", "mode": "upload"}},
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    for name in ("large", "small"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "in" / name).read_bytes()


def test_agents_reach_the_server_over_tls_alone(site: Site, cluster: Callable[..., str]):
    cluster("near", connection="tls")
    view = site.wait(site.run(command="true", compute="near"))
    assert view["status"] == "Completed", view["verdict"]


def test_the_address_of_a_server_is_the_clusters_own_and_changes_at_once(site: Site, cluster: Callable[..., str]):
    # The server listens to IPv4 alone.
    cluster("astray", connection="tls", server_address="::1")
    run_id = site.run(command="true", compute="astray")
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"], len(view["attempts"])) == ("Failed", "bad_input", 1), view[
        "verdict"
    ]
    verdict = view["verdict"]
    assert verdict["node"] in ("n1", "n2", "n3", "n4")
    assert verdict["message"].startswith(f"{verdict['node']}: its agent cannot reach the server: https://[::1]:")
    assert "[Errno " in verdict["message"]
    assert "`muster cluster set astray server_address=ADDRESS`" in verdict["next"]

    muster("cluster", "set", "astray", "server_address=127.0.0.1")
    view = site.wait(site.run(command="true", compute="astray"))
    assert view["status"] == "Completed", view["verdict"]


def test_without_an_address_nodes_are_given_one_that_other_machines_reach(site: Site, cluster: Callable[..., str]):
    cluster("plain", connection="tls", server_address=None)
    run_id = site.run(command="true", compute="plain")
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    config = json.loads((site.folder / ".muster" / "nodes" / f"{run_id}.1.0" / "agent.json").read_text())
    host = urlsplit(config["server"][0]).hostname
    assert host == address_towards([]), "the nodes of this site are this machine"


def test_the_script_is_kept_with_the_run_and_holds_no_token(site: Site):
    run_id = site.run(command="true", compute="hpc", limits={"timeout": 600})
    site.wait(run_id)
    script = site.log(run_id, "logs/submitted.sh").decode()
    assert script.startswith(f"#!/bin/bash\n#SBATCH --job-name={run_id}.1@muster-")
    assert "#SBATCH --time=13\n" in script
    assert "muster_" not in script
