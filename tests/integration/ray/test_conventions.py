"""The launch conventions on every engine: the same job, with only `compute` changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import _end_workspace as end_workspace
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS as SLURM_OPTIONS
from tests.sites.slurm import SlurmSite
from tests.sites.slurm import missing as slurm_missing

from muster.client.connect import connect
from muster.client.workspace import create_workspace

TWO_NODES = {"instance_count": 2}
PATIENCE_S = 120.0


@dataclass
class Place:
    """Where a job runs."""

    site: Site
    compute: str

    def run(self, **job: Any) -> tuple[dict[str, Any], list[str]]:
        """The run's view and what each rank printed."""
        run_id = self.site.run(compute=self.compute, **job)
        view = self.site.wait(run_id, timeout_s=PATIENCE_S)
        assert view["status"] == "Completed", view["verdict"]
        ranks = [rank for rank in view["attempts"][-1]["ranks"] if rank["role"] != "launcher"]
        return view, [self.site.log(run_id, rank["log"]).decode() for rank in ranks]


@pytest.fixture(scope="module")
def slurm_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    lacking = slurm_missing()
    if lacking:
        pytest.skip(f"Slurm is not installed: {', '.join(lacking)} (apt-get install slurmctld slurmd munge)")
    slurm, folder = SlurmSite(), tmp_path_factory.mktemp("conventions")
    with pytest.MonkeyPatch.context() as patch:
        try:
            slurm.start()
            for name, value in slurm.environment.items():
                patch.setenv(name, value)
            client = connect(create_workspace(folder, "conventions"))
            client.create_cluster("hpc", "slurm", SLURM_OPTIONS)
            yield Site(folder, client)
            client.close()
            end_workspace(folder)
        finally:
            slurm.close()


@pytest.fixture(params=["local", "slurm", "ray"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    fixture, compute = {"local": ("shared", "local"), "slurm": ("slurm_place", "hpc"), "ray": ("shared", "many")}[
        request.param
    ]
    site = request.getfixturevalue(fixture)
    monkeypatch.chdir(site.folder)
    return Place(site, compute)


def test_a_single_process_has_no_rank_variables(place: Place):
    _, printed = place.run(command='echo "$MUSTER_NODE_RANK [$RANK] [$WORLD_SIZE]"')
    assert printed == ["0 [] []\n"]


def test_ranks_see_nothing_of_how_ray_itself_is_set_up(site: Site):
    _, printed = Place(site, "many").run(command="env")
    assert [line for line in printed[0].splitlines() if line.startswith(("RAY_", "GRPC_"))] == []


def test_pytorch_per_process(place: Place):
    command = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT"
    job = {"type": "pytorch", "process_count_per_instance": 2}
    view, printed = place.run(command=command, resources=TWO_NODES, distribution=job)
    said = [line.split() for line in printed]
    assert [line[:3] for line in said] == [
        ["0/4", "0/2", "0"], ["1/4", "1/2", "0"], ["2/4", "0/2", "1"], ["3/4", "1/2", "1"],
    ]  # fmt: skip
    assert len({line[3] for line in said}) == 1
    assert len({rank["node"] for rank in view["attempts"][0]["ranks"]}) == 2


def test_pytorch_per_node(place: Place):
    command = 'echo $NODE_RANK $RANK $WORLD_SIZE "[$LOCAL_RANK]"'
    _, printed = place.run(command=command, resources=TWO_NODES, distribution={"type": "pytorch"})
    assert printed == ["0 0 2 []\n", "1 1 2 []\n"]


def test_tensorflow_workers(place: Place):
    job = {"type": "tensorflow", "worker_count": 2}
    _, printed = place.run(command="echo $TF_CONFIG", resources=TWO_NODES, distribution=job)
    told = [json.loads(text) for text in printed]
    assert [item["task"]["index"] for item in told] == [0, 1]
    assert len(told[0]["cluster"]["worker"]) == 2
    assert "ps" not in told[0]["cluster"]


def test_mpi_ranks_reduce_together(place: Place):
    script = (
        "from mpi4py import MPI; import os; c = MPI.COMM_WORLD; "
        "print(c.Get_rank(), c.Get_size(), c.allreduce(1), os.environ['OMPI_COMM_WORLD_RANK'])"
    )
    (place.site.folder / "code").mkdir(exist_ok=True)
    (place.site.folder / "code" / "reduce.py").write_text(script)
    # The nodes of this Slurm are daemons of one machine, whose name Open MPI takes for that of a single node.
    nodes = 1 if place.compute == "hpc" else 2
    job = {"type": "mpi", "process_count_per_instance": 2 // nodes}
    python = Path(sys.executable).name
    view, printed = place.run(
        command=f"{python} reduce.py", code="code", resources={"instance_count": nodes}, distribution=job
    )
    assert sorted(printed) == ["0 2 2 0\n", "1 2 2 1\n"]
    assert len({rank["node"] for rank in view["attempts"][0]["ranks"]}) == nodes


def test_arguments_are_expanded_in_each_rank_and_outputs_are_kept(place: Place):
    (place.site.folder / "code").mkdir(exist_ok=True)
    body = 'import sys; print(sys.argv[1]); open("outputs/" + sys.argv[1], "w").write("x")'
    (place.site.folder / "code" / "show.py").write_text(body)
    job = {"type": "pytorch", "process_count_per_instance": 1}
    view, printed = place.run(
        command=["python", "show.py", "rank-$RANK"], code="code", resources=TWO_NODES, distribution=job
    )
    assert printed == ["rank-0\n", "rank-1\n"]
    assert {"outputs/rank-0", "outputs/rank-1"} <= {file["path"] for file in view["files"]}
