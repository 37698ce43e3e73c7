from __future__ import annotations

import subprocess

from muster.job.parts import Mpi, PyTorch, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.describe import command_line, describe
from muster.launch.plan import plan, sample_slots


def described(spec: JobSpec) -> str:
    return describe(plan(spec, sample_slots(spec), run_id="r", attempt=1))


def pasted(*elements: str) -> str:
    spec = JobSpec(command=("printf", "<%s>", *elements), distribution=PyTorch(process_count_per_instance=2))
    rank = plan(spec, sample_slots(spec), run_id="r", attempt=1).ranks[1]
    return command_line(rank)


def test_a_pasted_command_gives_the_arguments_of_the_rank() -> None:
    line = pasted("$LOCAL_RANK", "two words", "it's", "5$$", "`x`", "")
    shell = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert shell.stdout == "<1><two words><it's><5$><`x`><>"


def test_a_variable_that_only_the_node_knows_stays_a_reference() -> None:
    line = pasted('${MUSTER_INPUT_images}/a b/$RANK/"$$`\\')
    env = {"MUSTER_INPUT_images": "/data/my images"}
    shell = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=env)
    assert shell.stdout == '</data/my images/a b/1/"$`\\>'


def test_every_rank_is_described_with_its_log_and_variables() -> None:
    text = described(JobSpec(command="python train.py", distribution=PyTorch(process_count_per_instance=2)))
    assert text.startswith("1 node, 2 processes\n")
    assert text.count("    command: bash -c 'python train.py'\n") == 2
    assert "    log: user_logs/std_log_process_1.txt\n" in text
    assert "    RANK=1\n" in text
    assert "notice: 2 ranks take turns" in text


def test_what_is_special_about_a_rank_is_said() -> None:
    assert "rank 1: ps, stopped when the essential ranks have ended" in described(
        JobSpec(command="true", distribution=TensorFlow(parameter_server_count=1))
    )
    mpi = described(JobSpec(command="true", distribution=Mpi()))
    assert "rank 1: launcher\n" in mpi
    assert "rank 0: worker, started by the launcher\n" in mpi


def test_variables_that_all_ranks_have_in_common_are_shown_once() -> None:
    text = described(JobSpec(command="true", distribution=PyTorch(process_count_per_instance=2)))
    assert text.count("  WORLD_SIZE=2\n") == 1 and "every rank:\n" in text
    assert text.count(" RANK=") == 2
    assert "every rank" not in described(JobSpec(command="true"))
