"""Stacks of many ranks on one page."""

from __future__ import annotations

from muster.cli.views.stacks import grouped, page, ranges, short_path
from muster.wire.tunnels import ProcessStacks, StackFrame, ThreadStack

WORK = "/w/.muster/nodes/local-0/attempts/bert-1.1/work"


def process(rank: int, function: str, *, pid: int = 0, threads: int = 1, trouble: str = "") -> ProcessStacks:
    frames = (StackFrame(function, f"{WORK}/train.py", 3), StackFrame("<module>", f"{WORK}/train.py", 9))
    main = ThreadStack("MainThread", frames)
    others = tuple(ThreadStack(f"t{number}", frames[:1]) for number in range(1, threads))
    return ProcessStacks(rank, pid or 100 + rank, "python train.py", () if trouble else (main, *others), trouble)


def test_ranks_at_the_same_place_are_shown_together() -> None:
    found = grouped([process(rank, "fetch" if rank == 1 else "reduce") for rank in (3, 1, 0, 2, 4)])
    assert list(page(found)) == [
        "ranks 0, 2–4:",
        "  reduce    train.py:3",
        "  <module>  train.py:9",
        "",
        "rank 1:",
        "  fetch     train.py:3",
        "  <module>  train.py:9",
    ]


def test_children_stand_apart_and_trouble_is_said() -> None:
    shown = "\n".join(page(grouped([process(0, "reduce"), process(0, "load", pid=7), process(1, "", trouble="gone")])))
    assert "1 child process of rank 0:\n  load" in shown
    assert "rank 1:\n  not known: gone" in shown


def test_threads_are_shown_where_they_are_asked_for() -> None:
    shown = "\n".join(page(grouped([process(0, "reduce", threads=2)], all_threads=True)))
    assert "  thread MainThread\n    reduce " in shown and "  thread t1\n" in shown
    assert "thread" not in "\n".join(page(grouped([process(0, "reduce", threads=2)])))


def test_ranges_and_paths_are_short() -> None:
    assert ranges([0, 2, 3, 4, 7, 8]) == "0, 2–4, 7, 8"
    assert short_path(f"{WORK}/a/b.py") == "a/b.py"
    assert short_path("/x/lib/python3.11/site-packages/torch/nn/f.py") == "torch/nn/f.py"
    assert short_path("/usr/lib/python3.11/threading.py") == "python3.11/threading.py"
    assert short_path("/home/me/x.py") == "/home/me/x.py"


def test_the_calls_that_python_makes_for_an_import_are_left_out() -> None:
    frames = [StackFrame("<module>", f"{WORK}/net.py", 4)]
    frames += [StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1176)] * 5
    frames += [StackFrame("<module>", f"{WORK}/train.py", 1)]
    stacks = ProcessStacks(0, 100, "python train.py", (ThreadStack("MainThread", tuple(frames)),), "")
    assert list(page(grouped([stacks]))) == ["rank 0:", "  <module>  net.py:4", "  <module>  train.py:1"]
    nothing_else = ProcessStacks(0, 100, "python", (ThreadStack("MainThread", tuple(frames[1:2])),), "")
    assert "_find_and_load" in list(page(grouped([nothing_else])))[1]
