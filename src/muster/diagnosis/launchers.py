"""Processes inside one rank's log: the reports of `torchrun` (also under other names) and `mpirun` on their children.

A launcher is one rank for Muster, and its log holds what all of its children printed. Its own report names the
children that failed; lines that carry a rank (`[rank3]: …`) belong to that child, and so do the stacks that the
keeper asked for.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.diagnosis.log import Log, Stack, read
from muster.diagnosis.text import bounded, owner_of
from muster.wire.verdicts import Evidence, RankEvidence, Verdict

# One child in the report of torch's elastic launcher.
_ELASTIC = re.compile(
    r"^\s*rank\s*:\s*(?P<rank>\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(?P<code>-?\d+) \(pid: \d+\)"
    r"(?:[^\n]*\n\s*error_file:[^\n]*\n\s*traceback : (?P<traceback>Traceback[^\n]*\n(?:    "
    r"[^\n]*\n|  [A-Za-z_][^\n]*\n)*))?",
    re.M,
)
_ROOT_CAUSE = "Root Cause (first observed failure):"
_ELASTIC_REPORT = re.compile(r"^torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError:", re.M)
# Where the launcher's own output begins after its children's.
_LAUNCHER_SPEAKS = re.compile(
    r"^(?:[WE]\d{4} \S+ \d+ [^\n]*torch/distributed/elastic/|torch\.distributed\.elastic\.\S{1,60}ChildFailedError:"
    r"|(?:ERROR|WARNING):torch\.distributed\.elastic|\[\d{4}-\d\d-\d\d [\d:,]+\] torch\.distributed\.(?:elastic|run)"
    r"|-{40,}\n(?:MPI_ABORT was invoked|(?:mpirun|prterun|mpiexec) (?:noticed|detected|has exited)|Primary job)"
    r"|=+\n=\s+BAD TERMINATION)",
    re.M,
)
_MPI = (
    re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+\s+exited\s+on\s+signal (?P<signal>\d+)"),
    re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)[\s\S]{0,200}?[Ee]rrorcode:? (?P<code>\d+)"),
    re.compile(
        r"Process name: \[(?:[^\]\n]{0,200},\s*|\[[^\]\n]{0,200}\],)(?P<rank>\d+)\]\s*\n\s*Exit code:\s+(?P<code>\d+)"
    ),
    re.compile(
        r"has exited due to process rank (?P<rank>\d+) with PID \d+ on node \S+\s+"
        r"(?:calling\s+\"abort\"|exiting\s+(?P<improperly>improperly))"
    ),
    re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>\d+)\.", re.M),
    re.compile(r"^Abort\((?P<code>\d+)\) on node (?P<rank>\d+) \(rank \d+ in comm \d+\): ", re.M),
    re.compile(r"=\s+RANK (?P<rank>\d+) PID \d+ RUNNING AT \S+\n=\s+KILLED BY SIGNAL: (?P<signal>\d+)"),
)
_MPI_MARKS = (
    " with PID ",
    "MPI_ABORT was invoked",
    "Process name: [",
    "exit with status code",
    "KILLED BY SIGNAL",
    "BAD TERMINATION",
)
"""One of them is in every text that a pattern of `_MPI` fits."""
_MPI_ERROR = re.compile(
    r"^\[[^\]\n]*\] \*\*\* An error occurred in [^\n]*\n[^\n]*\*\*\* reported by process \[\d+,(?P<rank>\d+)\]\n"
    r"(?:\[[^\]\n]*\] \*\*\*[^\n]*\n)*",
    re.M,
)
_MPI_ABORT = re.compile(r"^Abort\((\d+)\) on node \d+ \(rank \d+ in comm \d+\): application called MPI_Abort", re.M)
_PROCESSES = re.compile(
    r"(?:--(?:nproc[-_]per[-_]node|num[-_]processes)[= ]"
    r"|(?:mpirun|mpiexec)\b[^|;&\n]{0,300}? -{1,2}(?:n|np|c)[ =])(\d+)"
)
_MPIRUN = re.compile(r"(?<!\S)(?:\S{0,200}/)?(?:mpirun|mpiexec|prterun|orterun)(?!\S)")
_SPEAKER = re.compile(r"\W{0,2}(?:rank|process|proc|worker|task|tile|domain|pe)[ _#=:]{0,2}(\d{1,6})\b", re.I)
_DIGITS = re.compile(r"\d+")
_MOST_SAID = 1 << 15
_MANY_NODES = re.compile(r"--(?:nnodes|num[-_]machines)[= ](?!1\b)")
_ABORTS = re.compile(
    r"^(?:terminate called.*|  what\(\):.*|.*Assertion `.*|.*Check failed: .*|(?:double free|malloc).*)$", re.M
)
_LAUNCHER_USAGE = re.compile(
    r": (?:torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec)\b.{0,80}: error: "
    r"|\bon the (?:mpirun|mpiexec|prterun) command line|\bnot enough slots available|unable to open (?:the )?host ?file"
)
_LAUNCHER_REJECTS = re.compile(r": (?:\w+\.){0,6}(?:Value|Key)Error: (.{1,200}?)(?: \(caused by|$)")
_NOT_FINALIZED = 'mpirun: it exited without calling "finalize" (MPI_Finalize)\n'
_BY_FORCE = "forcefully exiting via"
_LEAVING = "terminate called without an active exception"
_OWN_STACK = re.compile(r"torch/distributed/(?:elastic|run\.py|launcher)|accelerate/commands")


@dataclass(frozen=True)
class Process:
    """One process of an attempt: its record, and its log, parsed."""

    rank: RankEvidence
    log: Log
    shared: bool = False
    """The log may contain output of others too."""


@dataclass(frozen=True)
class _Report:
    """A launcher's report on one child."""

    rank: int
    exit_code: int | None
    signal: int | None
    traceback: str = ""


def processes_of(ranks: Sequence[RankEvidence]) -> list[Process]:
    """The processes of an attempt: its ranks, and in place of a launcher the children that it reports."""
    told = with_mpi_errors([replace(rank, tail=bounded(rank.tail)) for rank in ranks])
    known = {rank.rank: rank for rank in told if rank.role != "launcher"}
    found: list[Process] = []
    for rank in told:
        if rank.failed:
            found += of_mpirun(rank, known) if rank.role == "launcher" else split(rank)
        else:
            found += stopped(rank)
    return found


def split(rank: RankEvidence) -> list[Process]:
    """The children in a launcher's log; the rank itself where there are none."""
    reports = _reports(rank.tail)
    if not reports:
        number = _last_speaker(rank)
        own = rank if number is None else replace(rank, rank=number, launcher_rank=rank.rank)
        # A library may have started further ranks, which print to the same log (r-lib-lightning-ddp-one-fails).
        return [Process(own, read(rank.tail), shared=len(owned_lines(rank.tail)) > 1)]
    owned = owned_lines(rank.tail)
    rest = _unowned(rank.tail)
    # Lines with a rank's own number in front are its own, though the launcher does not mark them.
    spoken = _by_their_words(replace(rank, tail=rest)) if owned else {}
    stacks = read(rank.tail).stacks if "muster: where rank " in rank.tail else ()
    children = []
    alike = _say_the_same([owned.get(report.rank, "") for report in reports])
    for position, report in enumerate(reports):
        text = owned.get(report.rank, "")
        # The launcher ends the others once it has seen one fail, and kills those that do not react.
        by_launcher = (signal.SIGTERM, signal.SIGKILL) if _BY_FORCE in rank.tail else (signal.SIGTERM,)
        ended = report.signal in by_launcher and position > 0
        # Lines without a rank are from a child that failed before it had one, or that printed it in its own way.
        if not text and not ended and not (owned and report.signal is not None):
            text = _without_others(rest, spoken, report.rank)
        elif not text and report.signal == signal.SIGABRT:
            # A child that was leaving by itself may have said why.
            text = rest if position == 0 and _LEAVING in rest else "\n".join(_ABORTS.findall(rest))
        elif text and not ended and position == 0 and (alike or _is_lost_peer(text)):
            # The child that failed first may have printed before, without its rank, what the others were told.
            text = _without_others(rest, spoken, report.rank) + text
        if text and report.rank in owned and text == owned[report.rank]:
            text = spoken.get(report.rank, "") + text
        if report.traceback == _NOT_FINALIZED:
            text += _NOT_FINALIZED
        children.append(
            Process(
                replace(
                    rank,
                    rank=report.rank,
                    exit_code=report.exit_code if report.exit_code or report.signal else rank.exit_code,
                    signal=report.signal,
                    expected=ended,
                    tail=text or report.traceback,
                    launcher_rank=rank.rank,
                    oom_killed=rank.oom_killed and report.signal == signal.SIGKILL,
                    role="",
                ),
                replace(read(text or report.traceback), stacks=tuple(one for one in stacks if one.rank == report.rank)),
                shared=bool(text) and report.rank not in owned,
            )
        )
    return children + _unreported(rank, {report.rank for report in reports})


def stopped(rank: RankEvidence) -> list[Process]:
    """A rank that Muster ended or that ended well; where it was a launcher, its children, as their stacks show them."""
    log = read(rank.tail)
    stacks = [stack for stack in log.stacks if not any(_OWN_STACK.search(frame.file) for frame in stack.frames)]
    owned = owned_lines(rank.tail) if rank.expected and rank.role != "launcher" else {}
    if rank.expected and not owned and not stacks and is_mpirun(rank):
        owned = _by_their_words(rank)
    if not rank.expected or not (log.stacks or owned) or (len(log.stacks) < 2 and not _PROCESSES.search(rank.command)):
        return [Process(rank, log)]
    if not stacks and not owned and log.stacks:
        # It had not started any yet.
        return [Process(rank, log)]
    if "ChildFailedError" in rank.tail and any(report.signal != signal.SIGTERM for report in _reports(rank.tail)):
        # It had seen its own processes fail, and was ended while leaving.
        seen = split(replace(rank, expected=False))
        return [replace(one, rank=replace(one.rank, expected=True)) if _is_told(one) else one for one in seen]
    by_rank = {stack.rank: stack for stack in stacks}
    numbers = set(by_rank) | set(owned) | _all_of(rank)
    # A process that shows no stack is exiting; one that waits for others did not print what ended them.
    silent = [number for number in sorted(numbers) if number not in by_rank]
    busy = [number for number in sorted(by_rank) if not by_rank[number].waits]
    speaker = silent[0] if len(silent) == 1 else busy[0] if len(busy) == 1 else None
    children = []
    for number in sorted(numbers):
        own = read(owned.get(number, "") + (_unowned(rank.tail) if number == speaker else ""))
        mine: tuple[Stack, ...] = (by_rank[number],) if number in by_rank else ()
        child = replace(rank, rank=number, launcher_rank=rank.rank, tail="", role="")
        children.append(Process(child, replace(own, stacks=mine)))
    nobodys = Process(replace(rank, essential=False), read(_unowned(rank.tail)))
    return children if speaker is not None else [*children, nobodys]


def _is_told(process: Process) -> bool:
    return process.rank.signal == signal.SIGTERM


def with_mpi_errors(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The ranks, each with the errors that Open MPI makes mpirun print for it, such as a lost peer."""
    said: dict[int, str] = defaultdict(str)
    for launcher in ranks:
        if launcher.role == "launcher":
            for match in _MPI_ERROR.finditer(launcher.tail):
                said[int(match["rank"])] += f"{match[0]}\n"
    told = [rank if rank.role == "launcher" else replace(rank, tail=rank.tail + said[rank.rank]) for rank in ranks]
    aborts = {rank.rank: int(abort[1]) for rank in told if (abort := _MPI_ABORT.search(rank.tail))}
    # After MPI_Abort, MPICH's launcher kills all ranks, the one that called it too.
    return [_after_abort(rank, aborts) if aborts and rank.signal == signal.SIGKILL else rank for rank in told]


def of_mpirun(rank: RankEvidence, known: Mapping[int, RankEvidence]) -> list[Process]:
    """The ranks that mpirun names, each on its own node and with its own output."""
    named = []
    for child in split(rank):
        own = known.get(child.rank.rank) if child.rank.launcher_rank is not None else None
        if own is None:
            named.append(child)
            continue
        early = _NOT_FINALIZED if _NOT_FINALIZED in child.rank.tail else ""
        tail = f"{own.tail.rstrip()}\n{early}" if early else own.tail or child.rank.tail
        named.append(Process(replace(child.rank, node=own.node, tail=tail, launcher_rank=None), read(tail)))
    return named


def names_children(text: str) -> bool:
    """Whether a launcher's own report names processes that failed."""
    return bool(_reports(text))


def children_of(rank: RankEvidence) -> int:
    """How many processes a launcher was to start on its node; 0 where it is no launcher or gives no number."""
    count = _PROCESSES.search(rank.command) if rank.role != "launcher" and rank.launcher_rank is None else None
    return int(count[1]) if count else 0


def raised_by_launcher(lines: Sequence[str]) -> bool:
    """Whether a traceback is the launcher's own: it ends in its code, or in a library that it called."""
    frames = [line for line in lines if line.startswith('  File "')]
    return bool(frames) and bool(_OWN_STACK.search(frames[-1]))


def is_mpirun(rank: RankEvidence) -> bool:
    """Whether a rank's own command starts processes by mpirun."""
    return rank.role != "launcher" and rank.launcher_rank is None and bool(_MPIRUN.search(rank.command))


def started_by(child: RankEvidence) -> set[int]:
    """The ranks that the launcher started together with a child; none without a launcher."""
    if child.launcher_rank is None:
        return set()
    return _all_of(replace(child, rank=child.launcher_rank, launcher_rank=None))


def first_of_program(rank: RankEvidence, program: str) -> int | None:
    """The first rank that mpirun was to start a program as, where its command names several."""
    parts = rank.command.split(" : ")
    if len(parts) < 2 or not program:
        return None
    first = 0
    for part in parts:
        if f" {program}" in part:
            return first
        count = re.search(r" -{1,2}(?:n|np|c)[ =](\d+)", part)
        first += int(count[1]) if count else 1
    return None


def as_the_job_counts(made: Verdict, evidence: Evidence) -> Verdict:
    """Of a launcher that failed by itself, before it had processes: none of theirs is to blame where it was the only
    one, or all failed; otherwise the first rank that it was to start."""
    if made.rank is None or made.evidence.launcher_rank is not None:
        return made
    if made.code == "bad_input" and _LAUNCHER_USAGE.search(made.message) and all(r.failed for r in evidence.ranks):
        return replace(made, rank=None)
    told = re.search(r": Executable: (\S+)", made.message)
    if told and (started := first_of_program(evidence.ranks[0], told[1])) is not None:
        return replace(made, rank=started)
    itself = made.code in ("exception", "port_trouble") and raised_by_launcher(made.lines)
    if itself and made.code == "exception" and (rejected := _LAUNCHER_REJECTS.search(made.message)):
        made = replace(made, code="bad_input", next=f"Put the launcher's option right in the command: {rejected[1]}.")
    launchers = [rank for rank in evidence.ranks if children_of(rank) > 1 or told or itself]
    own = next((rank for rank in launchers if rank.rank == made.rank), None)
    if own is None:
        return made
    if all(rank.failed for rank in launchers):
        return replace(made, rank=None)
    return replace(made, rank=own.rank * children_of(own))


def _say_the_same(texts: Sequence[str]) -> bool:
    """Whether all of several processes end with the same line."""
    return len(texts) > 1 and len({text.rstrip().rpartition("\n")[2] for text in texts}) == 1 and bool(texts[0])


def _is_lost_peer(text: str) -> bool:
    return "gloo/transport" in text or "ncclRemoteError" in text


def _after_abort(rank: RankEvidence, aborts: Mapping[int, int]) -> RankEvidence:
    if rank.rank in aborts:
        return replace(rank, expected=False, exit_code=aborts[rank.rank], signal=None)
    return replace(rank, expected=True)


def _all_of(rank: RankEvidence) -> set[int]:
    """The ranks that a launcher starts; of several nodes, those that it starts unless they find each other freely."""
    count = _PROCESSES.search(rank.command)
    if not count:
        return set()
    first = rank.rank * int(count[1]) if _MANY_NODES.search(rank.command) else 0
    return set(range(first, first + int(count[1])))


def _unreported(rank: RankEvidence, reported: set[int]) -> list[Process]:
    """Children of torch's launcher that its report omits: they had ended well."""
    started = _all_of(rank)
    if not _ELASTIC_REPORT.search(rank.tail) or not reported <= started:
        return []
    well = replace(rank, exit_code=0, signal=None, tail="", launcher_rank=rank.rank, oom_killed=False)
    return [Process(replace(well, rank=number), read("")) for number in sorted(started - reported)]


def _reports(text: str) -> list[_Report]:
    """Children that the launcher names, the one that failed first in front."""
    elastic = list(_ELASTIC_REPORT.finditer(text)) if "ChildFailedError" in text else []
    if elastic:
        report = text[elastic[-1].start() :]
        others, _, root = report.partition(_ROOT_CAUSE)
        return [_of(match) for part in (root, others) for match in _ELASTIC.finditer(part)]
    found: dict[int, _Report] = {}
    if not any(mark in text for mark in _MPI_MARKS):
        return []
    plain = "\n".join(owner_of(line)[1] for line in text.split("\n")) if "<std" in text else text
    for pattern in _MPI:
        for match in pattern.finditer(plain):
            report_of = _of(match)
            found.setdefault(report_of.rank, report_of)
    return list(found.values())


def _of(match: re.Match[str]) -> _Report:
    groups = match.groupdict()
    rank = int(groups["rank"])
    if groups.get("signal") is not None:
        return _Report(rank, None, int(groups["signal"]))
    if groups.get("code") is None:
        return _Report(rank, None, None, _NOT_FINALIZED if groups.get("improperly") else "")
    code = int(groups["code"])
    traceback = "\n".join(line.removeprefix("  ") for line in (groups.get("traceback") or "").split("\n"))
    return _Report(rank, None, -code, traceback) if code < 0 else _Report(rank, code, None, traceback)


def owned_lines(text: str) -> Mapping[int, str]:
    """What each child printed under its own rank."""
    lines: dict[int, list[str]] = defaultdict(list)
    for line in text.split("\n"):
        number, said = owner_of(line)
        if number is not None:
            lines[number].append(said)
    return {number: "\n".join(found) + "\n" for number, found in lines.items()}


def _by_their_words(rank: RankEvidence) -> Mapping[int, str]:
    """The output of mpirun's processes, where each begins its lines with its number."""
    lines: dict[int, list[str]] = defaultdict(list)
    for line in rank.tail.split("\n"):
        if speaker := _SPEAKER.match(line):
            lines[int(speaker[1])].append(line)
    if not lines or not set(lines) <= _all_of(rank):
        return {}
    return {number: "\n".join(found) + "\n" for number, found in lines.items()}


def _last_speaker(rank: RankEvidence) -> int | None:
    """Where mpirun says nothing of its processes: the one that begins the last line with its number, if none of the
    others said the like."""
    lines = [line for line in rank.tail[-_MOST_SAID:].split("\n") if line.strip()]
    said = _SPEAKER.match(lines[-1]) if lines and is_mpirun(rank) else None
    if said is None or int(said[1]) not in _all_of(rank):
        return None
    alike = [line for line in lines if _DIGITS.sub("#", line) == _DIGITS.sub("#", lines[-1])]
    return int(said[1]) if len(alike) == 1 else None


def _without_others(text: str, spoken: Mapping[int, str], number: int) -> str:
    """Lines without a mark of the launcher, except those that other children begin with their own numbers."""
    theirs = {line for other, lines in spoken.items() if other != number for line in lines.split("\n") if line}
    return "\n".join(line for line in text.split("\n") if line not in theirs) if theirs else text


def _unowned(text: str) -> str:
    """Lines without a rank, up to the launcher's own output."""
    speaks = _LAUNCHER_SPEAKS.search(text)
    before = text[: speaks.start()] if speaks else text
    before = before.partition("muster: where rank ")[0]
    return "\n".join(line for line in before.split("\n") if owner_of(line)[0] is None)
