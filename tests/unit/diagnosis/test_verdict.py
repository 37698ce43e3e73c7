"""How an attempt ended and why."""

import pytest

from muster.diagnosis.verdict import judge
from muster.wire.codec import from_json, to_json
from muster.wire.verdicts import CODES, Evidence, JobFacts, NodeEvidence, RankEvidence, Refusal

TRACEBACK = """step 10 loss 2.3
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    main()
ValueError: labels out of range
"""
RESET = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    dist.all_reduce(x)
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41234
"""


def rank(number, tail="", *, code=1, signal=None, at=100.0, **more):
    return RankEvidence(
        number, f"node-{number}", code if signal is None else None, signal, ended_at=at, tail=tail, **more
    )


def test_all_well():
    verdict = judge(Evidence(ranks=[rank(0, code=0), rank(1, code=0)]))
    assert verdict.code == "completed"


def test_an_exception_shows_its_traceback_and_its_last_line():
    verdict = judge(Evidence(ranks=[rank(0, TRACEBACK)]))
    assert (verdict.code, verdict.rank, verdict.node) == ("exception", 0, "node-0")
    assert verdict.message == "rank 0 on node-0: ValueError: labels out of range"
    assert verdict.lines[0].startswith("Traceback")


def test_what_mlflow_says_in_farewell_is_no_program_that_went_on():
    """Its address was taken for a path to look at, and the warning before it for a word on an exception."""
    tail = (
        "2026/11/18 21:51:31 WARNING mlflow.models.model: `artifact_path` is deprecated. Please use `name` instead.\n"
        + TRACEBACK.partition("\n")[2]
        + "\N{RUNNER} View run m08 at: http://127.0.0.1:58751/rank/0/#/experiments/0/runs/m08\n"
        + "\N{TEST TUBE} View experiment at: http://127.0.0.1:58751/rank/0/#/experiments/0\n"
    )
    verdict = judge(Evidence(ranks=[rank(0, tail)]))
    assert (verdict.code, verdict.message) == ("exception", "rank 0 on node-0: ValueError: labels out of range")


def test_the_rank_that_failed_first_is_named_and_not_those_that_lost_their_peer():
    """Rank 1 exits slowly: the others are gone before it."""
    ranks = [rank(0, RESET, at=100.0), rank(2, RESET, at=100.1), rank(1, TRACEBACK, at=100.4)]
    verdict = judge(Evidence(ranks=ranks, stop_reason="rank_failed"))
    assert (verdict.code, verdict.rank) == ("exception", 1)


def test_a_signal_outranks_lost_connections():
    verdict = judge(Evidence(ranks=[rank(0, RESET, at=99.0), rank(3, signal=9, at=100.0)]))
    assert (verdict.code, verdict.rank) == ("signal", 3)
    assert verdict.message == "rank 3 on node-3 was ended by SIGKILL"


def test_a_connection_lost_to_a_lost_node_is_the_nodes_fault():
    nodes = [NodeEvidence(0, "node-0"), NodeEvidence(1, "node-1", lost=True)]
    verdict = judge(Evidence(ranks=[rank(0, RESET)], nodes=nodes, stop_reason="node_lost"))
    assert (verdict.code, verdict.node) == ("node_lost", "node-1")


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu_oom"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("RuntimeError: unable to allocate shared memory(shm) for file", "shm_too_small"),
        ("MemoryError", "host_oom"),
        ("RuntimeError: The server socket has failed to listen: EADDRINUSE", "port_trouble"),
        ("ModuleNotFoundError: No module named 'torch'", "environment"),
    ],
)
def test_what_a_program_says_at_its_end_tells_causes_apart(tail, code):
    text = f"Traceback (most recent call last):\n  File 'x'\n{tail}\n"
    assert judge(Evidence(ranks=[rank(0, text)])).code == code


def test_an_earlier_traceback_that_was_handled_does_not_decide():
    tail = "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\nretrying\n" + TRACEBACK
    assert judge(Evidence(ranks=[rank(0, tail)])).code == "exception"


def test_a_missing_local_rank_says_to_count_processes():
    tail = "Traceback (most recent call last):\n  File 'x'\nKeyError: 'LOCAL_RANK'\n"
    assert "--procs 1" in judge(Evidence(ranks=[rank(0, tail)])).next


def test_cancel_says_by_whom():
    ended = [rank(0, signal=15, expected=True)]
    verdict = judge(Evidence(ranks=ended, stop_reason="cancelled", cancel_by="owner"))
    assert (verdict.code, verdict.message) == ("cancelled", "cancelled by owner")


def test_a_run_that_was_done_before_the_cancel_reached_it_has_completed():
    done = [rank(0, code=0)]
    verdict = judge(Evidence(ranks=done, nodes=[NodeEvidence(0, "node-0")], stop_reason="killed", cancel_by="owner"))
    assert verdict.code == "completed"


def test_a_cancel_of_the_delivery_says_what_is_missing():
    node = NodeEvidence(0, "node-0", refusal=Refusal("cancelled", "not delivered: 3 of 7 files", late=True))
    verdict = judge(Evidence(ranks=[rank(0, code=0)], nodes=[node], cancel_by="owner"))
    said = "cancelled by owner after its ranks had ended; not delivered: 3 of 7 files"
    assert (verdict.code, verdict.message) == ("cancelled", said)


def test_a_run_whose_output_did_not_arrive_has_not_completed():
    late = Refusal("data_unavailable", "output m could not be written to blob: 403", "Give it a key.", late=True)
    verdict = judge(Evidence(ranks=[rank(0, code=0)], nodes=[NodeEvidence(0, "node-0", refusal=late)]))
    assert (verdict.code, verdict.next) == ("data_unavailable", "Give it a key.")
    assert verdict.message == "every rank ended well, but output m could not be written to blob: 403"


def test_an_output_that_did_not_arrive_is_not_why_a_rank_failed():
    late = NodeEvidence(0, "node-0", refusal=Refusal("data_unavailable", "output m: 403", late=True))
    failed = [rank(0, code=3)]
    assert judge(Evidence(ranks=failed, nodes=[late], stop_reason="rank_failed")).code == "exit_code"


def test_timeout_names_the_limit():
    verdict = judge(Evidence(ranks=[rank(0, signal=15, expected=True)], stop_reason="timeout", timeout_s=60))
    assert (verdict.code, verdict.message) == ("timeout", "the time limit of 60 s passed")


def test_a_refusal_keeps_its_code():
    node = NodeEvidence(0, "node-0", refusal=Refusal("data_unavailable", "no folder /data"))
    verdict = judge(Evidence(nodes=[node], stop_reason="refused"))
    assert (verdict.code, verdict.message) == ("data_unavailable", "node-0: no folder /data")


def test_a_plain_exit_code():
    verdict = judge(Evidence(ranks=[rank(0, "bye\n", code=3)]))
    assert (verdict.code, verdict.message) == ("exit_code", "rank 0 on node-0 exited with code 3; its last line: bye")


def test_every_code_says_what_to_do_next():
    assert all(code.next for code in CODES.values() if code.name != "completed")


ELASTIC = """W1115 05:04:23 15493 torch/distributed/elastic/multiprocessing/api.py:1028] closing signal SIGTERM
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 1)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 2)
============================================================
"""


def prefixed(number, text):
    return "".join(f"[rank{number}]: {line}\n" for line in text.splitlines())


def test_the_child_of_a_launcher_that_failed_first_is_named():
    verdict = judge(Evidence(ranks=[rank(0, prefixed(0, RESET) + prefixed(3, TRACEBACK) + ELASTIC)]))
    assert (verdict.code, verdict.rank, verdict.evidence.launcher_rank) == ("exception", 3, 0)
    assert verdict.lines[-1] == "ValueError: labels out of range"


def test_a_traceback_without_a_rank_belongs_to_the_child_that_failed():
    verdict = judge(Evidence(ranks=[rank(0, TRACEBACK + ELASTIC)]))
    assert (verdict.code, verdict.rank) == ("exception", 3)


def test_a_child_that_the_launcher_does_not_speak_of_had_left_early():
    report = prefixed(0, RESET) + ELASTIC.replace("-15 (pid: 1)  (SIGTERM)", "1 (pid: 1)")
    report = report.partition("Failures:")[0] + "Root Cause (first observed failure):\n[0]:\n"
    report += "  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 2)\n"
    launcher = rank(0, report, command="torchrun --standalone --nproc-per-node 2 train.py")
    verdict = judge(Evidence(ranks=[launcher]))
    assert (verdict.code, verdict.rank) == ("collective", 1)
    assert "had ended (exit code 0)" in verdict.message


def test_a_culprit_that_exits_slowly_is_known_by_its_last_words():
    """Muster had to end it, after the others had given up on it."""
    slow = rank(1, TRACEBACK, signal=15, expected=True, at=101.0)
    verdict = judge(Evidence(ranks=[rank(0, RESET, at=100.0), slow], stop_reason="rank_failed"))
    assert (verdict.code, verdict.rank) == ("exception", 1)


def test_the_only_one_that_did_not_answer_is_named():
    silent = rank(2, "step 7\n", signal=15, expected=True)
    verdict = judge(Evidence(ranks=[rank(0, RESET), rank(1, RESET), silent], stop_reason="rank_failed"))
    assert (verdict.code, verdict.rank) == ("collective", 2)
    assert "did not answer" in verdict.message


def test_a_crash_while_tidying_up_is_not_the_cause():
    tail = TRACEBACK + "terminate called without an active exception\n"
    assert judge(Evidence(ranks=[rank(0, tail, signal=6)])).code == "exception"
    assert judge(Evidence(ranks=[rank(0, "terminate called\n", signal=6)])).code == "signal"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    ],
)
def test_faults_of_a_gpu_are_known_by_their_text(line):
    assert (
        judge(Evidence(ranks=[rank(0, f"Traceback (most recent call last):\n  File 'x'\n{line}\n")])).code
        == "gpu_fault"
    )


def test_memory_is_blamed_only_where_the_kernel_counted_a_kill():
    assert judge(Evidence(ranks=[rank(0, signal=9, oom_killed=True)])).code == "host_oom"
    assert judge(Evidence(ranks=[rank(0, signal=9)])).code == "signal"
    assert judge(Evidence(ranks=[rank(0, TRACEBACK, oom_killed=True)])).code == "exception"


def test_a_node_that_was_told_to_go_is_a_preemption_even_if_it_is_lost_then():
    nodes = [NodeEvidence(0, "node-0"), NodeEvidence(1, "node-1", lost=True, leaving=True)]
    ranks = [rank(0, RESET), rank(1, signal=15, expected=True)]
    verdict = judge(Evidence(ranks=ranks, nodes=nodes, stop_reason="preempted"))
    assert (verdict.code, verdict.node) == ("preempted", "node-1")


def test_ranks_that_were_done_when_the_time_was_up_have_completed():
    done = [rank(0, code=0), rank(1, code=0)]
    assert judge(Evidence(ranks=done, stop_reason="timeout")).code == "completed"
    saved = [rank(0, code=0, expected=True)]
    assert judge(Evidence(ranks=saved, stop_reason="timeout")).code == "timeout"
    assert judge(Evidence(ranks=saved, stop_reason="preempted")).code == "preempted"


def test_a_lone_process_has_no_peer_to_lose():
    assert judge(Evidence(ranks=[rank(0, RESET)], nodes=[NodeEvidence(0, "node-0")])).code == "exception"


def test_evidence_can_be_kept():
    evidence = Evidence(
        [rank(0, TRACEBACK)], [NodeEvidence(0, "node-0", refusal=Refusal("x"))], "rank_failed", "me", 3.0
    )
    assert judge(from_json(Evidence, to_json(evidence))) == judge(evidence)


TORCH_ASKS = (
    "Traceback (most recent call last):\n"
    '  File "/work/train.py", line 2, in <module>\n'
    '    dist.init_process_group("gloo")\n'
    "ValueError: Error initializing torch.distributed using env:// rendezvous: "
    "environment variable RANK expected, but not set\n"
)


def test_a_script_that_asks_for_a_rank_is_told_to_count_processes():
    found = judge(Evidence(ranks=[rank(0, TORCH_ASKS)]))
    assert "`muster run SCRIPT --procs 1`" in found.next
    assert "RANK" in found.next


def test_a_port_that_a_lone_process_takes_is_its_own_choice():
    tail = "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 98] Address already in use: port 29500\n"
    found = judge(Evidence(ranks=[rank(0, tail)], facts=JobFacts(master_port=0)))
    assert (found.code, found.of_script) == ("port_trouble", True)
    assert "fixes port 29500 itself" in found.next


@pytest.mark.parametrize("line", ['s.bind(("", 29500))', "uvicorn.run(app, port=29500)", "Server(('0.0.0.0', 29500))"])
def test_a_port_that_stands_in_the_script_is_its_own_choice_in_a_gang_too(line):
    tail = (
        f'Traceback (most recent call last):\n  File "/work/train.py", line 6, in <module>\n    {line}\n'
        "OSError: [Errno 98] Address already in use\n"
    )
    found = judge(Evidence(ranks=[rank(0, tail)], facts=JobFacts(master_port=41000)))
    assert (found.code, found.of_script) == ("port_trouble", True)
    assert "fixes port 29500 itself" in found.next


def test_a_file_that_hides_a_module_of_a_package_is_named():
    tail = (
        "Traceback (most recent call last):\n"
        '  File "/work/train.py", line 1, in <module>\n'
        "    import torch\n"
        '  File "/venv/lib/python3.11/site-packages/torch/cuda/_utils.py", line 9, in <module>\n'
        "    from cuda.bindings import driver\n"
        '  File "/work/cuda.py", line 2, in <module>\n'
        "    x = torch.zeros(3)\n"
        "AttributeError: partially initialized module 'torch' has no attribute 'zeros' "
        "(most likely due to a circular import)\n"
    )
    found = judge(Evidence(ranks=[rank(0, tail)], facts=JobFacts(files=("cuda.py", "train.py"))))
    assert "`cuda.py` in the code folder" in found.next
    assert "rename it" in found.next


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (JobFacts(), "Add `einops` to the Python that the job uses (`pip: [einops]`"),
        (JobFacts(packages=("torch==2.13.0",)), "Add `pip: [einops]` in `environment` of the job."),
        (JobFacts(environment="pytorch"), "Add `pip: [einops]` in the environment `pytorch`."),
    ],
)
def test_a_missing_package_is_installed_where_the_job_takes_its_packages_from(facts: JobFacts, step: str) -> None:
    tail = "ModuleNotFoundError: No module named 'einops'\n"
    assert step in judge(Evidence(ranks=[rank(0, tail)], facts=facts)).next


def judged(tail, code=1):
    return judge(Evidence((rank(0, tail, code=code),), [NodeEvidence(0, "node-0")], "rank_failed"))


def test_a_flood_of_one_kind_after_an_exception_is_no_sign_of_a_program_that_went_on() -> None:
    flood = "dumping the state\n" + "".join(f"slot {n:05}: idle, owner none\n" for n in range(200))
    made = judged(f'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: no\n{flood}', 70)
    assert (made.code, made.message) == ("exception", "rank 0 on node-0: ValueError: no")


def test_where_nothing_sounds_like_a_failure_the_last_lines_are_shown() -> None:
    made = judged("report: line 3 of scores.txt has 1 field\nsum 7\n", 9)
    assert made.code == "exit_code"
    assert "its last lines: report: line 3 of scores.txt has 1 field / sum 7" in made.message


def test_the_stack_of_a_remote_task_is_part_of_its_exception() -> None:
    made = judged(
        "Traceback (most recent call last):\n"
        '  File "/job/work/sums.py", line 20, in <module>\n'
        "    print(ray.get(total.remote()))\n"
        '  File "/v/site-packages/ray/_private/worker.py", line 9, in get\n'
        "    raise value.as_instanceof_cause()\n"
        "ray.exceptions.RayTaskError(KeyError): \x1b[36mray::total()\x1b[39m (pid=7, ip=192.0.2.2)\n"
        "  At least one of the input arguments for this task could not be computed:\n"
        "ray.exceptions.RayTaskError: \x1b[36mray::load()\x1b[39m (pid=8, ip=192.0.2.2)\n"
        '  File "/job/work/sums.py", line 11, in load\n'
        "    return table[part]\n"
        "KeyError: 'c'\n"
    )
    assert (made.code, made.message) == ("exception", "rank 0 on node-0: KeyError: 'c'")
    assert "sums.py line 11, in load" in made.next


def test_a_title_is_followed_by_what_stands_below_it():
    tail = (
        'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    model.load_state_dict(state)\n'
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        "\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 16]) from checkpoint, the shape "
        "in current model is torch.Size([100, 16]).\n"
    )
    verdict = judge(Evidence(ranks=[rank(0, tail)]))
    assert "loading state_dict for Net: size mismatch for head.weight" in verdict.message
    assert "`head.weight` is [10, 16] there and [100, 16] here" in verdict.next


def test_the_interpreter_that_a_script_names_is_in_the_verdict():
    def refused(interpreter):
        said = f"the interpreter {interpreter!r} that /job/work/run.sh names in its first line does not exist"
        return judge(Evidence(ranks=[rank(0, code=127, refusal=said)]))

    assert "(CRLF)" in refused("/bin/bash\r").next
    assert "(/opt/conda/bin/python)" in refused("/opt/conda/bin/python").next
