"""Reading logs: the last lines of 1 GB against an empty log, a search through it, following 1,000 ranks against 2."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

import psutil

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace, wait_for_run
from muster.job.spec import JobSpec
from muster.paths import WorkspacePaths
from muster.store.streams import Streams
from muster.wire.node.agents import Chunk
from muster.wire.stream import LogPiece

LINE = "x" * 99
FEW, MANY = 2, 1000
FOLLOWED_LINES = 20_000


def main() -> None:
    is_quick = quick(__doc__)
    rounds = 2 if is_quick else 5
    with temporary_workspace() as workspace:
        figures = [*last_lines(workspace, 100 if is_quick else 1000, rounds), *following(workspace, rounds)]
    report("reading", figures, is_quick)


def last_lines(workspace: Workspace, megabytes: int, rounds: int) -> list[Figure]:
    """The time of `logs --tail 5` on a log of 1 GB, of `logs` on an empty one, and of a search through it all."""
    large, small = an_ended_run(workspace), an_ended_run(workspace)
    block = f"{LINE}\n".encode() * 10_000
    for number in range(megabytes):
        grow(workspace, large, {"user_logs/std_log.txt": block if number else b"first\n" + block})
    samples = interleave(
        rounds,
        {
            "empty": lambda: command(workspace, ["logs", small], ""),
            "tail": lambda: command(workspace, ["logs", large, "--tail", "5"], f"{LINE}\n" * 5),
            "grep": lambda: command(workspace, ["logs", large, "--grep", "firs[t]"], "first\n"),
        },
    )
    over = statistics.median(samples["tail"]) - statistics.median(samples["empty"])
    ratio = statistics.median(samples["tail"]) / statistics.median(samples["empty"])
    worked = interleave(
        rounds,
        {
            "empty": lambda: processor_s(workspace, ["logs", small], ""),
            "tail": lambda: processor_s(workspace, ["logs", large, "--tail", "5"], f"{LINE}\n" * 5),
        },
    )
    more = statistics.median(worked["tail"]) - statistics.median(worked["empty"])
    return [
        median("logs of an empty log", samples["empty"], "s"),
        median(f"logs --tail 5 of {megabytes} MB", samples["tail"], "s"),
        Figure("logs --tail 5, over an empty log", over, "s", at_most=0.5),
        Figure("logs --tail 5, times an empty log", ratio, "times"),
        Figure("logs --tail 5, over an empty log, of a processor", more, "s", at_most=0.5),
        median(f"logs --grep through {megabytes} MB", samples["grep"], "s"),
    ]


def following(workspace: Workspace, rounds: int) -> list[Figure]:
    """The same lines, delivered while somebody follows, by two ranks and by a thousand."""
    samples = interleave(rounds, {"few": lambda: follow(workspace, FEW), "many": lambda: follow(workspace, MANY)})
    cursors = {ranks: longest_cursor(workspace, ranks) for ranks in (FEW, MANY)}
    ratio = statistics.median(samples["many"]) / statistics.median(samples["few"])
    return [
        median(f"{FOLLOWED_LINES:,} lines of {FEW} ranks followed", samples["few"], "s"),
        median(f"{FOLLOWED_LINES:,} lines of {MANY:,} ranks followed", samples["many"], "s"),
        Figure(f"{MANY:,} ranks, times {FEW} ranks", ratio, "times"),
        Figure(f"longest cursor with {FEW} ranks", cursors[FEW], "bytes"),
        Figure(f"longest cursor with {MANY:,} ranks", cursors[MANY], "bytes", at_most=100),
    ]


def follow(workspace: Workspace, ranks: int) -> float:
    """Seconds until a follower that resumes from its cursor a few times has every line once."""
    run_id = an_ended_run(workspace)
    deliver(workspace, run_id, ranks)
    began = time.perf_counter()
    cursor: str | None = None
    lines = 0
    for part in range(1, 5):
        for item in workspace.client.stream(run_id, cursor=cursor, follow=False, metrics=False):
            cursor = item.cursor or cursor
            if isinstance(item.event, LogPiece):
                lines += item.event.data.count(b"\n")
            if lines >= part * FOLLOWED_LINES // 4 and part < 4:
                break
    taken = time.perf_counter() - began
    workspace.client.remove(run_id)
    if lines != FOLLOWED_LINES:
        raise SystemExit(f"run {run_id}: {lines} of {FOLLOWED_LINES} lines were followed")
    return taken


def longest_cursor(workspace: Workspace, ranks: int) -> int:
    run_id = an_ended_run(workspace)
    deliver(workspace, run_id, ranks)
    longest = max(len(item.cursor) for item in workspace.client.stream(run_id, follow=False, metrics=False))
    workspace.client.remove(run_id)
    return longest


def deliver(workspace: Workspace, run_id: str, ranks: int) -> None:
    line = f"{LINE}\n".encode() * (FOLLOWED_LINES // ranks)
    grow(workspace, run_id, {f"user_logs/std_log_process_{rank}.txt": line for rank in range(ranks)})


def an_ended_run(workspace: Workspace) -> str:
    """An ended run without output, to whose logs a benchmark can add."""
    run_id = workspace.client.submit(JobSpec(command=("true",)), python=sys.executable).id
    return wait_for_run(workspace.client, run_id).id


def grow(workspace: Workspace, run_id: str, added: dict[str, bytes]) -> None:
    """Add to the logs of a run as a delivery does; the server's index takes it in when it is asked."""
    streams = Streams(WorkspacePaths(workspace.folder / ".muster").store / "runs")
    lengths = {name: streams.length(run_id, 1, name) for name in added}
    streams.append([Chunk(run_id, 1, name, lengths[name], data) for name, data in added.items()])


def command(workspace: Workspace, arguments: list[str], expected: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", *arguments],
        cwd=workspace.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    taken = time.perf_counter() - began
    if done.stdout != expected:
        raise SystemExit(f"muster {' '.join(arguments)} printed {done.stdout[:200]!r}")
    return taken


def processor_s(workspace: Workspace, arguments: list[str], expected: str) -> float:
    """The CPU time of a command and its server, whatever else runs on the machine."""
    server = psutil.Process(workspace.client.health().pid)
    before = _used_s(server)
    command(workspace, arguments, expected)
    return _used_s(server) - before


def _used_s(server: psutil.Process) -> float:
    mine, its = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu_times()
    return mine.ru_utime + mine.ru_stime + its.user + its.system


if __name__ == "__main__":
    main()
