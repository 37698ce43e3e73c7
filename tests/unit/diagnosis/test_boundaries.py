"""Which of two codes that lie close together a failure gets."""

from __future__ import annotations

import pytest

from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Evidence, JobFacts, NodeEvidence, RankEvidence, Verdict


def judged(tail: str, exit_code: int, command: str = "python train.py", gpus: int = 0) -> Verdict:
    rank = RankEvidence(0, "node-0", tail=tail, exit_code=exit_code, signal=None, ended_at=1.0, command=command)
    facts = JobFacts(gpus=gpus)
    return judge(Evidence((rank,), (NodeEvidence(0, "node-0"),), stop_reason="rank_failed", facts=facts))


@pytest.mark.parametrize(
    ("tail", "exit_code", "command", "code"),
    [
        (
            "usage: train.py [--lr LR]\ntrain.py: error: unrecognized arguments: --x\n",
            2,
            "python train.py --x",
            "bad_input",
        ),
        ("usage: run.sh DATA OUT\n", 64, "bash run.sh", "bad_input"),
        ("usage: run.sh DATA OUT\n", 1, "bash run.sh", "bad_input"),
        # Of another program, and nothing was rejected.
        ("usage: other DATA OUT\nthe cache is stale\n", 1, "bash run.sh", "exit_code"),
        ("disk usage: 93 of 100 GB\nthe quota is nearly used up\n", 1, "bash run.sh", "exit_code"),
        ("usage: run.sh DATA OUT\n", 7, "bash run.sh", "exit_code"),
        ("head: unrecognized option '--x'\nTry 'head --help' for more information.\n", 1, "head --x a", "bad_input"),
    ],
)
def test_arguments_that_a_program_rejects(tail: str, exit_code: int, command: str, code: str) -> None:
    assert judged(tail, exit_code, command).code == code


NO_NCCL = (
    'Traceback (most recent call last):\n  File "/job/work/train.py", line 2, in <module>\n'
    '    dist.init_process_group("nccl")\n'
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!\n"
)


def test_a_device_that_the_node_lacks_is_the_scripts_affair_and_one_that_it_has_the_environments() -> None:
    assert judged(NO_NCCL, 1).code == "exception"
    found = judged(NO_NCCL, 1, gpus=4)
    assert found.code == "environment"
    assert "no GPU:" not in found.next


def test_what_a_launcher_could_not_start_is_no_exception_of_the_script() -> None:
    frames = (
        '  File "/v/site-packages/torch/distributed/elastic/agent.py", line 9, in _popen\n    return Popen(\n'
        '  File "/usr/lib/python3.11/subprocess.py", line 7, in _execute_child\n    raise child_exception_type(\n'
    )
    own = '  File "/job/work/train.py", line 3, in <module>\n    subprocess.run(["tool"])\n'
    head, said = (
        "Traceback (most recent call last):\n",
        "FileNotFoundError: [Errno 2] No such file or directory: './a'\n",
    )
    assert judged(head + frames + said, 1, "torchrun --no-python ./a").code == "launcher_missing"
    assert judged(head + own + frames[frames.index("  File", 9) :] + said, 1).code == "exception"
