"""Whole plans, one file per convention. After a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/launch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.job.parts import Distribution, Mpi, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.describe import describe
from muster.launch.plan import plan, sample_slots
from muster.wire.codec import from_json, to_json
from muster.wire.node.plan import Plan, Slot

GOLDEN = Path(__file__).parent / "golden"
TRAIN = ("python", "train.py", "--epochs", "3")


@dataclass(frozen=True)
class Case:
    spec: JobSpec
    slots: tuple[Slot, ...]


def job(distribution: Distribution | None, nodes: int, command: str | tuple[str, ...] = TRAIN) -> JobSpec:
    return JobSpec(command=command, distribution=distribution, resources=Resources(instance_count=nodes))


def machines(*ports: tuple[int, ...], gpus: tuple[str, ...] = ()) -> tuple[Slot, ...]:
    return tuple(
        Slot(f"gpu-{rank}", f"10.0.0.{rank + 4}", cpus=8, gpus=gpus, ports=held) for rank, held in enumerate(ports)
    )


def simulated(spec: JobSpec, cpus: int = 2) -> Case:
    return Case(spec, sample_slots(spec, cpus=cpus))


TORCHRUN = (
    "torchrun --nnodes 2 --nproc-per-node 4 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py"
)
PER_RANK = ("python3", "train.py", "--local_rank", "$LOCAL_RANK", "--tag", "two words", "--cost", "5$$")

CASES = {
    "single": simulated(job(None, 1, "python train.py | tee outputs/log")),
    "pytorch_1x1": simulated(job(PyTorch(process_count_per_instance=1), 1)),
    "pytorch_2x2": Case(
        job(PyTorch(process_count_per_instance=2, communication_backend="Nccl"), 2, PER_RANK),
        machines((6105,), (), gpus=("0", "1")),
    ),
    "pytorch_2x2_simulated": simulated(job(PyTorch(process_count_per_instance=2), 2, PER_RANK)),
    "pytorch_2_per_node": Case(job(PyTorch(), 2, TORCHRUN), machines((6107,), ())),
    "mpi_2x2": Case(
        job(Mpi(process_count_per_instance=2), 2, ("python", "train.py", "--rank", "$OMPI_COMM_WORLD_RANK")),
        machines((6105,), (6605,)),
    ),
    "tensorflow_2_workers": Case(job(TensorFlow(), 2), machines((2222,), (2222,))),
    "tensorflow_2_workers_1_ps": Case(
        job(TensorFlow(worker_count=2, parameter_server_count=1), 2), machines((2222, 2223), (2222,))
    ),
    "tensorflow_chief_evaluator": simulated(
        job(TensorFlow(worker_count=2, parameter_server_count=1, chief=True, evaluator=True), 2)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_the_one_on_file(name: str) -> None:
    case = CASES[name]
    made = plan(case.spec, case.slots, run_id="amber-fox-1", attempt=1, python="/usr/bin/python3.11")
    as_json = json.dumps(to_json(made), indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / f"{name}.json").write_text(as_json)
        (GOLDEN / f"{name}.txt").write_text(describe(made))
    assert (GOLDEN / f"{name}.json").read_text() == as_json
    assert (GOLDEN / f"{name}.txt").read_text() == describe(made)
    assert from_json(Plan, json.loads(as_json)) == made


def test_no_file_is_left_of_a_case_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)
