"""How an attempt ended and why."""

import pytest

from muster.control.verdict import NEXT, Evidence, NodeEvidence, RankEvidence, judge

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
    assert "process count" in judge(Evidence(ranks=[rank(0, tail)])).next


def test_cancel_says_by_whom():
    ended = [rank(0, signal=15, expected=True)]
    verdict = judge(Evidence(ranks=ended, stop_reason="cancelled", cancel_by="owner"))
    assert (verdict.code, verdict.message) == ("cancelled", "cancelled by owner")


def test_timeout_names_the_limit():
    verdict = judge(Evidence(ranks=[rank(0, signal=15, expected=True)], stop_reason="timeout", timeout_s=60))
    assert (verdict.code, verdict.message) == ("timeout", "the time limit of 60 s passed")


def test_a_refusal_keeps_its_code():
    node = NodeEvidence(0, "node-0", refusal={"code": "data_unavailable", "message": "no folder /data"})
    verdict = judge(Evidence(nodes=[node], stop_reason="refused"))
    assert (verdict.code, verdict.message) == ("data_unavailable", "node-0: no folder /data")


def test_a_plain_exit_code():
    verdict = judge(Evidence(ranks=[rank(0, "bye\n", code=3)]))
    assert (verdict.code, verdict.message) == ("exit_code", "rank 0 on node-0 exited with code 3")


def test_every_code_says_what_to_do_next():
    assert all(text for code, text in NEXT.items() if code != "completed")
