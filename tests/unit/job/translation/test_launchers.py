"""Command lines of other launchers as jobs."""

from __future__ import annotations

import shlex

import pytest
import yaml

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.translation.job import Translated
from muster.job.translation.launchers import from_arguments, is_launcher


def job(line: str, **variables: str) -> Translated:
    return from_arguments(shlex.split(line), variables)


@pytest.mark.parametrize(
    ("line", "command", "nodes", "per_node", "kind"),
    [
        ("torchrun --nproc-per-node 4 train.py --lr 0.1", "python train.py --lr 0.1", 1, 4, "pytorch"),
        ("torchrun --nnodes=2 --nproc_per_node=8 -m pkg.train x", "python -m pkg.train x", 2, 8, "pytorch"),
        ("torchrun --standalone train.py 'a b' '$HOME'", "python train.py 'a b' '$HOME'", 1, 1, "pytorch"),
        ("torchrun --no-python --nproc-per-node 2 ./run.sh", "./run.sh", 1, 2, "pytorch"),
        ("python -m torch.distributed.run --nproc-per-node 2 t.py", "python t.py", 1, 2, "pytorch"),
        (
            "python -m torch.distributed.launch --nproc_per_node 2 t.py --x",
            "python t.py --local-rank=$LOCAL_RANK --x",
            1,
            2,
            "pytorch",
        ),
        ("mpirun -np 8 -H a:4,b:4 python t.py", "python t.py", 2, 4, "mpi"),
        ("mpirun -n 8 --map-by ppr:2:node python t.py", "python t.py", 4, 2, "mpi"),
        ("mpiexec -n 4 -ppn 2 python t.py", "python t.py", 2, 2, "mpi"),
        ("horovodrun -np 4 -H a:2,b:2 python t.py", "python t.py", 2, 2, "mpi"),
        ("accelerate launch --num_processes 8 --num_machines 2 t.py --x", "python t.py --x", 2, 4, "pytorch"),
        (
            "deepspeed --num_gpus 4 t.py --deepspeed",
            "python t.py --local_rank=$LOCAL_RANK --deepspeed",
            1,
            4,
            "pytorch",
        ),
        ("deepspeed --num_gpus=2 --no_local_rank t.py", "python t.py", 1, 2, "pytorch"),
        ("srun -N2 --ntasks-per-node=4 python t.py", "python t.py", 2, 4, "pytorch"),
        ("srun -n 4 --mpi=pmix ./solver", "./solver", 1, 4, "mpi"),
        ("srun -N 2 torchrun --nproc-per-node 8 t.py", "python t.py", 2, 8, "pytorch"),
    ],
)
def test_a_launcher_is_a_job(line: str, command: str, nodes: int, per_node: int, kind: str) -> None:
    found = job(line)
    assert (found.command, found.nodes, found.per_node, found.kind) == (command, nodes, per_node, kind)
    # What is printed is a job file, and means the same.
    spec = make_spec(yaml.safe_load(found.text(line)))
    assert spec.command == command and spec.resources.instance_count == nodes
    assert spec.distribution is not None and spec.distribution.type == kind


def test_variables_go_along() -> None:
    found = job("mpirun -np 2 -x FOO=1 -x BAR --mca btl tcp python t.py", BAR="two")
    assert found.env == {"FOO": "1", "BAR": "two", "OMPI_MCA_btl": "tcp"}
    precise = job("accelerate launch --mixed_precision bf16 --cpu t.py")
    assert precise.env == {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"}


def test_what_muster_sees_to_is_left_out_with_a_notice() -> None:
    (said,) = job("torchrun --rdzv-backend c10d --rdzv_endpoint=h:1 --nnodes 1 t.py").notices
    assert "--rdzv-backend, --rdzv_endpoint of torchrun" in said
    assert "hosts" in job("mpirun -H a,b python t.py").notices[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torchrun", "torchrun is given no script"),
        ("torchrun --nproc-per-node gpu t.py", "depend on the machine"),
        ("torchrun --nnodes 1:4 t.py", "gangs have a fixed size"),
        ("torchrun --tee 3 t.py", "--tee has no meaning here"),
        ("torchrun --bogus t.py", "--bogus is not known to Muster"),
        ("torchrun --nproc-per-node", "has no value"),
        ("torchrun --nproc-per-node 0 t.py", "is no number"),
        ("mpirun -np 7 -H a,b python t.py", "7 processes cannot be shared equally by 2"),
        ("mpirun -H a:1,b:3 python t.py", "different numbers of ranks"),
        ("mpirun --hostfile hosts python t.py", "Nodes come from a cluster"),
        ("mpirun -x NOWHERE python t.py", "there is no NOWHERE"),
        ("accelerate config", "starts no training"),
        ("accelerate launch --config_file a.yml t.py", "docs/launchers.md"),
        ("deepspeed t.py", "Give --num_gpus"),
        ("deepspeed --include a:0,1 t.py", "Muster chooses"),
        ("srun --pty bash", "muster shell"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_next_step(line: str, said: str) -> None:
    with pytest.raises(JobError) as caught:
        job(line)
    assert said in str(caught.value)
    assert caught.value.hint


def test_only_launchers_are_translated() -> None:
    assert is_launcher(["torchrun", "x"]) and is_launcher(["/usr/bin/mpirun"])
    assert is_launcher(["python", "-m", "torch.distributed.run"])
    assert not is_launcher(["python", "train.py"]) and not is_launcher(["train.py"]) and not is_launcher([])
