"""How long the server takes to judge a gang of 1,024 ranks that failed, from the ends of their logs to the verdict."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from bench.measure import Figure, quick, report
from muster.diagnosis.verdict import judge
from muster.server.runs.evidence import gather
from muster.store.streams import Streams
from muster.wire.node.agents import Chunk

RANKS = 1024
HUNG = 700
MOST_S = 2.0
STEPS = 1200
COLLECTIVE = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/work/train.py", line 11, in <module>
[rank{rank}]:     dist.all_reduce(grads)
[rank{rank}]:   File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83, in wrapper
[rank{rank}]:     return func(*args, **kwargs)
[rank{rank}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation
"""
STACK = """\
muster: where rank {rank} (process 4711) was when it was stopped:
Current thread 0x00007f773bff7b80 (most recent call first):
  File "/job/work/train.py", line {line} in {function}
  File "/job/work/train.py", line 11 in <module>
"""
RAISED = """\
Traceback (most recent call last):
  File "/job/work/train.py", line 31, in <module>
    batch = load(step)
ValueError: shard {rank} has no labels
"""

# The long lines that torch's store and NCCL's watchdog print.
WARNING = (
    "[W1116 15:16:49.120085380 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=95, addr=[n7.example]:44370,"
    " remote=[n0.example]:34333): Broken pipe\n"
)
WATCHDOG = """\
[rank{rank}]:[E1116 15:16:49.120085380 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=731, OpType=ALLREDUCE, NumelIn=25557032, NumelOut=25557032, Timeout(ms)=600000) ran 600042 ms \
before timing out.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: [Rank \
{rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=731, OpType=ALLREDUCE, Timeout(ms)=600000)
Exception raised from checkTimeout at ProcessGroupNCCL.cpp:686 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f5c2f4b5eb0 in torch/lib/libc10.so)
"""


def hang(rank: int) -> tuple[int | None, bool, str]:
    """One rank hangs, a third of the others had given up waiting, the rest was ended: code, ended by Muster, log."""
    if rank == HUNG:
        return None, True, STACK.format(rank=rank, line=9, function="load")
    if rank % 3:
        return None, True, STACK.format(rank=rank, line=11, function="all_reduce")
    return 1, False, COLLECTIVE.format(rank=rank)


def all_raise(rank: int) -> tuple[int | None, bool, str]:
    return 1, False, RAISED.format(rank=rank)


def no_word(rank: int) -> tuple[int | None, bool, str]:
    """One rank exits without a word, and the others lose it."""
    return (7, False, "") if rank == HUNG else (1, False, COLLECTIVE.format(rank=rank))


def watchdog(rank: int) -> tuple[int | None, bool, str]:
    """One rank hangs, and NCCL's watchdog ends all the others after pages of warnings."""
    if rank == HUNG:
        return None, True, STACK.format(rank=rank, line=9, function="load")
    return 1, False, WARNING * 200 + WATCHDOG.format(rank=rank)


def main() -> None:
    is_quick = quick(__doc__)
    figures = []
    for name, of, rank in (
        ("hangs", hang, HUNG),
        ("all raise", all_raise, 0),
        ("exits silently", no_word, HUNG),
        ("long logs of c10d", watchdog, HUNG),
    ):
        worked, waited, named = judged(of, 2 if is_quick else 5)
        print(f"{name}: {statistics.median(worked):.2f} s of a core, rank {named}", flush=True)
        assert named == rank, (name, named)
        figures.append(
            Figure(f"{RANKS} ranks, {name}: slowest verdict, time of one core", max(worked), "s", at_most=MOST_S)
        )
        # This figure includes other load on the machine.
        load = os.getloadavg()[0]
        figures.append(Figure(f"{RANKS} ranks, {name}: fastest on the clock, load {load:.0f}", min(waited), "s"))
    report("verdicts", figures, is_quick)


def judged(
    of: Callable[[int], tuple[int | None, bool, str]], rounds: int
) -> tuple[list[float], list[float], int | None]:
    """For each round the CPU seconds and those on the clock, and the rank that is named."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        streams = Streams(Path(folder))
        rows = []
        for rank in range(RANKS):
            code, expected, tail = of(rank)
            log = f"user_logs/rank_{rank}.txt"
            said = "".join(f"rank {rank} step {step} loss 0.3174 lr 0.0003, as trainings do\n" for step in range(STEPS))
            streams.append([Chunk("run", 1, log, 0, (said + tail).encode())])
            rows.append(_row(rank, code, expected, log))
        nodes = [_node(number) for number in range(RANKS // 8)]
        run = SimpleNamespace(id="run", cancel_by=None, spec={})
        attempt = SimpleNamespace(number=1, stop_reason="rank_failed", plan=None, ending=None)
        worked, waited = [], []
        for _ in range(rounds):
            began, at = time.process_time(), time.perf_counter()
            verdict = judge(gather(streams, run, attempt, nodes, rows))
            worked.append(time.process_time() - began)
            waited.append(time.perf_counter() - at)
    return worked, waited, verdict.rank


def _node(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        run_id="run", number=1, node_rank=number, node=f"n{number}", host=f"n{number}", lost=False, leaving=False,
        refusal=None,
    )  # fmt: skip


def _row(rank: int, code: int | None, expected: bool, log: str) -> SimpleNamespace:
    return SimpleNamespace(
        rank=rank, node_rank=rank // 8, exit_code=code, signal=None if code is not None else 15, expected=expected,
        essential=True, state="ended", ended_at=1000.0 + rank / 1000, evidence={}, role="", log=log,
    )  # fmt: skip


if __name__ == "__main__":
    main()
