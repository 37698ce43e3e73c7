"""Processes inside one rank's log: what `torchrun` (also under other names) and `mpirun` say of their children.

A launcher is one rank for Muster, and its log holds what all of its children printed. Its own report names the
children that failed; lines that carry a rank (`[rank3]: …`) belong to that child.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.wire.verdicts import RankEvidence

# One child in the report of torch's elastic launcher.
_ELASTIC = re.compile(
    r"^\s*rank\s*:\s*(?P<rank>\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(?P<code>-?\d+) \(pid: \d+\)", re.M
)
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ELASTIC_REPORT = re.compile(r"^torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError:", re.M)
# Where the launcher itself begins to speak after its children.
_LAUNCHER_SPEAKS = re.compile(
    r"^(?:[WE]\d{4} \S+ \d+ .*torch/distributed/elastic/"
    r"|-{40,}\n(?:MPI_ABORT was invoked|(?:mpirun|prterun|mpiexec) (?:noticed|detected|has exited)|Primary job)"
    r"|=+\n=\s+BAD TERMINATION)",
    re.M,
)
_MPI = (
    re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+\s+exited\s+on\s+signal (?P<signal>\d+)"),
    re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)[\s\S]{0,200}?[Ee]rrorcode:? (?P<code>\d+)"),
    re.compile(r"Process name: \[(?:[^\]]*,\s*|\[[^\]]*\],)(?P<rank>\d+)\]\s*\n\s*Exit code:\s+(?P<code>\d+)"),
    re.compile(r"=\s+RANK (?P<rank>\d+) PID \d+ RUNNING AT \S+\n=\s+KILLED BY SIGNAL: (?P<signal>\d+)"),
)
_MPI_ERROR = re.compile(
    r"^\[[^\]]*\] \*\*\* An error occurred in [^\n]*\n[^\n]*\*\*\* reported by process \[\d+,(?P<rank>\d+)\]\n"
    r"(?:\[[^\]]*\] \*\*\*[^\n]*\n)*",
    re.M,
)
_MPI_ABORT = re.compile(r"^Abort\((\d+)\) on node \d+ \(rank \d+ in comm \d+\): application called MPI_Abort", re.M)
_PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d+)")
_MANY_NODES = re.compile(r"--(?:nnodes|num[-_]machines)[= ](?!1\b)")
_OWNED_LINE = re.compile(r"^\[rank(\d+)\]: ?(.*)$|^\[\d+,(\d+)\]<std(?:out|err)>: ?(.*)$")


@dataclass(frozen=True)
class _Report:
    """What a launcher said of one child."""

    rank: int
    exit_code: int | None
    signal: int | None


def split(rank: RankEvidence) -> list[RankEvidence]:
    """The children that a launcher's log tells of, as ranks of their own; the rank itself where it tells of none."""
    reports = _reports(rank.tail)
    if not reports:
        return [rank]
    owned = _owned_lines(rank.tail)
    rest = _unowned(rank.tail)
    children = []
    for position, report in enumerate(reports):
        text = owned.get(report.rank, "")
        # What carries no rank was printed by a child that failed before it had one.
        if not text and not (owned and report.signal is not None):
            text = rest
        children.append(
            replace(
                rank,
                rank=report.rank,
                exit_code=report.exit_code,
                signal=report.signal,
                # The launcher ends the others by SIGTERM once it has seen one fail.
                expected=position > 0 and report.signal == signal.SIGTERM,
                tail=text,
                launcher_rank=rank.rank,
                oom_killed=rank.oom_killed and report.signal == signal.SIGKILL,
                role="",
            )
        )
    return children + _unreported(rank, {report.rank for report in reports})


def with_mpi_errors(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The ranks, each with what Open MPI has mpirun print of its errors: that it lost a peer, say."""
    said: dict[int, str] = defaultdict(str)
    for launcher in ranks:
        if launcher.role == "launcher":
            for match in _MPI_ERROR.finditer(launcher.tail):
                said[int(match["rank"])] += f"{match[0]}\n"
    told = [rank if rank.role == "launcher" else replace(rank, tail=rank.tail + said[rank.rank]) for rank in ranks]
    aborts = {rank.rank: int(abort[1]) for rank in told if (abort := _MPI_ABORT.search(rank.tail))}
    # After MPI_Abort, MPICH's launcher kills all ranks, the one that called it too.
    return [_after_abort(rank, aborts) if aborts and rank.signal == signal.SIGKILL else rank for rank in told]


def of_mpirun(rank: RankEvidence, known: Mapping[int, RankEvidence]) -> list[RankEvidence]:
    """The ranks that mpirun names, each on its own node and with what it printed itself."""
    named = []
    for child in split(rank):
        own = known.get(child.rank) if child is not rank else None
        named.append(replace(child, node=own.node, tail=own.tail or child.tail, launcher_rank=None) if own else child)
    return named


def _after_abort(rank: RankEvidence, aborts: Mapping[int, int]) -> RankEvidence:
    if rank.rank in aborts:
        return replace(rank, expected=False, exit_code=aborts[rank.rank], signal=None)
    return replace(rank, expected=True)


def _unreported(rank: RankEvidence, reported: set[int]) -> list[RankEvidence]:
    """Children of torch's launcher on a single node that its report leaves out: they had ended well."""
    count = _PROCESSES.search(rank.command)
    if not count or _MANY_NODES.search(rank.command) or not _ELASTIC_REPORT.search(rank.tail):
        return []
    absent = set(range(int(count[1]))) - reported
    well = replace(rank, exit_code=0, signal=None, tail="", launcher_rank=rank.rank, oom_killed=False)
    return [replace(well, rank=number) for number in sorted(absent)]


def _reports(text: str) -> list[_Report]:
    """Children that the launcher names, the one that it saw fail first in front."""
    elastic = list(_ELASTIC_REPORT.finditer(text))
    if elastic:
        report = text[elastic[-1].start() :]
        others, _, root = report.partition(_ROOT_CAUSE)
        return [_of(match) for part in (root, others) for match in _ELASTIC.finditer(part)]
    found: dict[int, _Report] = {}
    for pattern in _MPI:
        for match in pattern.finditer(text):
            report_of = _of(match)
            found.setdefault(report_of.rank, report_of)
    return list(found.values())


def _of(match: re.Match[str]) -> _Report:
    groups = match.groupdict()
    rank = int(groups["rank"])
    if groups.get("signal") is not None:
        return _Report(rank, None, int(groups["signal"]))
    code = int(groups["code"])
    return _Report(rank, None, -code) if code < 0 else _Report(rank, code, None)


def _owned_lines(text: str) -> Mapping[int, str]:
    """What each child printed under its own rank."""
    lines: dict[int, list[str]] = defaultdict(list)
    for line in text.split("\n"):
        match = _OWNED_LINE.match(line)
        if match:
            lines[int(match[1] if match[1] is not None else match[3])].append(_said(line))
    return {number: "\n".join(found) + "\n" for number, found in lines.items()}


def _unowned(text: str) -> str:
    """What carries no rank, up to where the launcher begins to speak."""
    speaks = _LAUNCHER_SPEAKS.search(text)
    before = text[: speaks.start()] if speaks else text
    return "\n".join(line for line in before.split("\n") if not _OWNED_LINE.match(line))


def without_prefixes(text: str) -> str:
    """The same text without the ranks in front of lines."""
    return "\n".join(_said(line) for line in text.split("\n"))


def _said(line: str) -> str:
    match = _OWNED_LINE.match(line)
    if not match:
        return line
    return match[2] if match[1] is not None else match[4]
