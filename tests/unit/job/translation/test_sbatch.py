"""Batch scripts of Slurm as jobs."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.translation.sbatch import from_sbatch, seconds

SCRIPT = r"""#!/bin/bash
#SBATCH --job-name=bert
#SBATCH -N 4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:8
#SBATCH --time=1-12:00:00
#SBATCH -p gpu --account=abc
#SBATCH -o logs/%j.out
set -euo pipefail
module load cuda/12
export OMP_NUM_THREADS=8
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=29500
GPUS=$SLURM_GPUS_ON_NODE
echo "starting"
srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $GPUS \
    --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT \
    train.py --data "$DATA" --epochs 3
"""


def test_a_whole_script_is_a_job_file() -> None:
    found = from_sbatch(SCRIPT, "bert.sbatch")
    assert found.text("bert.sbatch") == (
        "# From bert.sbatch.\n"
        "display_name: bert\n"
        "code: .\n"
        "command: |\n"
        "  module load cuda/12\n"
        "  GPUS=8\n"
        '  exec python train.py --data "$DATA" --epochs 3\n'
        "resources: {instance_count: 4, gpus_per_node: 8}\n"
        "distribution: {type: pytorch, process_count_per_instance: 8}\n"
        "environment_variables: {OMP_NUM_THREADS: '8'}\n"
        "limits: {timeout: 129600}\n"
    )
    make_spec(yaml.safe_load(found.text()))
    said = "\n".join(found.notices)
    for text in ("Muster sets it: MASTER_ADDR", "the account, the partition", "`muster logs`", "`module load cuda/12`"):
        assert text in said


def test_slurms_names_become_musters() -> None:
    found = from_sbatch("#SBATCH -n 8 -N 2\nsrun python t.py --rank $SLURM_PROCID --nodes ${SLURM_NNODES}\n")
    assert (found.command, found.nodes, found.per_node) == ("python t.py --rank $RANK --nodes 2", 2, 4)


def test_without_srun_a_command_runs_once() -> None:
    found = from_sbatch("#SBATCH -N 2\npython t.py\n")
    assert (found.nodes, found.per_node) == (1, None)
    assert "once, on the first node" in found.notices[0]


def test_mpirun_takes_the_allocation() -> None:
    found = from_sbatch("#SBATCH --nodes=2 --ntasks-per-node=4\nmpirun python t.py\n")
    assert (found.nodes, found.per_node, found.kind) == (2, 4, "mpi")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#SBATCH --array=1-3\nsrun python a.py", "line 1: --array has no meaning here"),
        ("#SBATCH --dependency=afterok:1\nsrun a.py", "muster wait"),
        ("python a.py\npython b.py", "starts 2 commands, on lines 1 and 2"),
        ("for i in 1 2; do\npython a.py\ndone", "line 1: `for i in 1 2; do` is more than one command"),
        ("#SBATCH --bogus=2\n", "line 1: --bogus is not known"),
        ("#SBATCH -N two\nsrun python t.py", "line 1: --nodes two is no number"),
        ("#SBATCH --time=soon\nsrun python t.py", "--time soon is no time"),
        ("#SBATCH -N\nsrun python t.py", "line 1: --nodes has no value"),
        ("#SBATCH -n 7 -N 2\nsrun python t.py", "--ntasks 7 cannot be shared equally by 2 nodes"),
        ("srun python t.py --id $SLURM_ARRAY_TASK_ID", "$SLURM_ARRAY_TASK_ID, which no rank has"),
        ("srun python 'open", "line 1: the line has an unclosed quote"),
        ("echo nothing", "starts nothing that Muster knows"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(JobError) as caught:
        from_sbatch(text, "x.sh")
    assert said in str(caught.value) and "x.sh" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30", 1800), ("30:15", 1815), ("1:30:00", 5400), ("2-0", 172_800), ("2-12:30", 217_800), ("1-0:0:9", 86_409)],
)
def test_times_as_slurm_writes_them(text: str, expected: int) -> None:
    assert seconds(text, "x") == expected


@given(st.text(max_size=400))
def test_any_text_is_a_job_or_a_refusal(text: str) -> None:
    try:
        from_sbatch(f"#SBATCH -N 2\n{text}\nsrun python t.py")
    except JobError:
        pass
