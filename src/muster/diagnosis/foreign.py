"""Logs of a job that did not run under Muster, as evidence: a Slurm output, a `torchrun` log, a file for each rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.diagnosis.causes import complaint
from muster.diagnosis.launchers import Process, names_children, owned_lines
from muster.diagnosis.log import read
from muster.diagnosis.passages import shortened
from muster.diagnosis.text import plain, without_stamps
from muster.diagnosis.verdict import judge
from muster.wire.verdicts import (
    CANCELLED,
    Candidate,
    Ending,
    Evidence,
    JobFacts,
    NodeEvidence,
    RankEvidence,
    RankExit,
    Verdict,
    VerdictEvidence,
)

_NUMBER = re.compile(r"(?:rank|task|process|proc|worker)[-_.]?(\d+)|[-_.](\d+)\.(?:out|err|log|txt)$", re.I)
_LABELLED = re.compile(r"\s{0,4}(\d{1,5}): ")
_TASKS = re.compile(
    r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[\d,-]+): (?:Exited with exit code "
    r"(?P<code>\d+)|(?P<how>[A-Z][^(\n]{2,60}))"
)
_ENDED = re.compile(
    r"\*\*\* (?P<what>JOB|STEP) \S+ ON (?P<node>\S+) (?:CANCELLED|FAILED) AT \S+"
    r"(?: DUE TO (?P<why>[A-Z ,]+?))?(?:,| \*\*\*)"
)
# What srun prints when it ends the rest of a step because one of its tasks failed.
_ENDS_THE_REST = re.compile(r"^srun: (?:error: )?Terminating (?:StepId|job step)", re.M)
_FROM_OUTSIDE = ("Terminated", "Killed")
_OUT_OF_MEMORY = re.compile(r"oom[-_]kill event|Out Of Memory|OOMKilled|Out of memory: Killed process")
_SHELL_SIGNALS = (
    ("Segmentation fault", re.compile(r"Segmentation fault"), 11),
    ("Aborted", re.compile(r"(?:^|[\s:])Aborted(?: \(core dumped\))?$"), 6),
    ("terminate called", re.compile(r"^(?:\[\S{1,40}\]:? ?)?terminate called after throwing"), 6),
    ("Bus error", re.compile(r"Bus error"), 7),
    ("Floating point exception", re.compile(r"Floating point exception"), 8),
    ("Illegal instruction", re.compile(r"Illegal instruction"), 4),
    ("Killed", re.compile(r"(?:^|\s)Killed$"), 9),
    ("Terminated", re.compile(r"(?:^|\s)Terminated$"), 15),
)
"""A word that is in every line that a pattern fits, the pattern, and the signal."""
# Python and argparse exit with 2 when they cannot start.
_BAD_START = re.compile(r"python[\d.]*: can't open file '|^\S+\.py: error: ")
_CODE = re.compile(r"(?:exit(?:ed)?(?: with)?(?: exit)? (?:code|status)[ :]+|exitcode[ :]+)(\d{1,3})\b", re.I)
_RETURNED = re.compile(r"return ?code = -(\d{1,2})\b|exit ?code:? -(\d{1,2})\b")
_REASONS: Mapping[str, tuple[str, str]] = {
    "TIME LIMIT": ("timeout", ""),
    "PREEMPTION": ("preempted", "Slurm took the nodes back for another job"),
    "NODE FAILURE": ("node_lost", "Slurm lost a node of the job"),
}
_SAID = " exited with code 1: "
_LAST_LINES = 40
_MOST_SILENT = 256
_MOST_SHOWN = 64
_FEW = 3
_LONGEST = 160


@dataclass(frozen=True)
class LogFile:
    """One file, and what the caller knows about the end of the process that wrote it."""

    name: str
    text: str
    exit_code: int | None = None
    signal: int | None = None


def explained(files: Sequence[LogFile], facts: JobFacts) -> Verdict:
    """The verdict on the logs of one failure."""
    made = evidence_of(files)
    if made.stop_reason == "rank_failed" and all(rank.expected for rank in made.ranks):
        ends = VerdictEvidence(tuple(RankExit(rank.rank, rank.node) for rank in made.ranks[:_MOST_SHOWN]))
        said = "; ".join(f"the last line of rank {rank.rank}: {_last_line(rank)}" for rank in made.ranks[:_FEW])
        message = f"none of {len(made.ranks)} ranks said anything that sounds like a failure; {said}"
        return Verdict("exit_code", message, evidence=ends, confidence="unsure")
    # Where it is unknown how a process ended, it is taken to have failed: its log was given.
    untold = {rank.rank for rank in made.ranks if rank.exit_code is None and rank.signal is None and not rank.expected}
    ranks = tuple(replace(rank, exit_code=1) if rank.rank in untold else rank for rank in made.ranks)
    ranks = tuple(replace(rank, tail=shortened(rank.tail, rank)) for rank in ranks)
    given = replace(made, ranks=ranks, facts=facts)
    verdict = _before_it_was_cancelled(given) if made.stop_reason == "cancelled" else None
    verdict = verdict or judge(given)
    shown = tuple(replace(end, exit_code=None) if end.rank in untold else end for end in verdict.evidence.ranks)
    verdict = replace(verdict, evidence=replace(verdict.evidence, ranks=shown))
    if verdict.code != "exit_code" or verdict.rank not in untold:
        return verdict
    if _SAID in verdict.message:
        return replace(verdict, message=verdict.message.replace(_SAID, ": ", 1), confidence="likely")
    message = verdict.message.replace(" exited with code 1", " said nothing that sounds like a failure", 1)
    return replace(verdict, message=message, confidence="unsure")


def _before_it_was_cancelled(given: Evidence) -> Verdict | None:
    """The failure of a rank that others waited for until somebody cancelled the job; None where none had failed."""
    found = judge(replace(given, stop_reason="timeout"))
    if found.code == "timeout":
        return None
    message = found.message.replace("the time limit passed", "the job was cancelled")
    second = Candidate(CANCELLED, judge(given).message)
    evidence = replace(found.evidence, stop_reason=given.stop_reason)
    return replace(found, message=message, evidence=evidence, confidence="likely", second=second)


def _last_line(rank: RankEvidence) -> str:
    return plain(rank.tail.rstrip().rpartition("\n")[2])[:_LONGEST]


def evidence_of(files: Sequence[LogFile]) -> Evidence:
    """The evidence in the logs of one failure, in the form that Muster would have recorded."""
    texts = [replace(file, text=without_stamps(file.text)) for file in files]
    ranks = [rank for number, file in enumerate(texts) for rank in _ranks(file, number, len(texts))]
    ended = next((match for file in texts for match in [_end_of_job(file.text)] if match), None)
    nodes = tuple(NodeEvidence(index, name) for index, name in enumerate(sorted({rank.node for rank in ranks})))
    made = Evidence(tuple(_by_task(ranks, texts)), nodes, "rank_failed")
    return _stopped(made, ended) if ended else made


def _ranks(file: LogFile, position: int, count: int) -> Iterable[RankEvidence]:
    """The ranks in one file: one for each label of `srun --label` or of torch, otherwise one."""
    if parts := _parts(file.text):
        for number, text in sorted(parts.items()):
            rank = _rank(number, replace(file, text=text), len(parts))
            yield rank if count > 1 else replace(rank, node="")
        return
    named = _NUMBER.search(file.name)
    number = int(next(group for group in named.groups() if group)) if named and count > 1 else position
    yield _rank(number, file, count)


def _rank(number: int, file: LogFile, count: int) -> RankEvidence:
    signal, code = file.signal, file.exit_code
    last = [plain(line) for line in file.text.rstrip().split("\n")[-_LAST_LINES:] if line.strip()]
    if signal is None and code is None:
        signal, code = _end(last)
    rank = RankEvidence(
        number, "" if count == 1 else file.name, code, signal, tail=file.text, oom_killed=_killed(last, signal)
    )
    # Of several logs, those without any error belong to processes that somebody ended.
    quiet = count > 1 and file.exit_code is None and file.signal is None and _is_quiet(rank)
    return replace(rank, expected=quiet)


def _end(last: Sequence[str]) -> tuple[int | None, int | None]:
    """The signal or the exit code that the last lines name."""
    for line in reversed(last):
        for word, pattern, number in _SHELL_SIGNALS:
            if word in line and pattern.search(line):
                return number, None
        if found := _RETURNED.search(line):
            return int(found[1] or found[2]), None
        if "xit" in line.lower() and (found := _CODE.search(line)) and int(found[1]):
            return None, int(found[1])
    return None, 2 if any(_BAD_START.search(line) for line in last[-3:]) else None


def _killed(last: Sequence[str], signal: int | None) -> bool:
    return signal == 9 and any(_OUT_OF_MEMORY.search(line) for line in last)


def _is_quiet(rank: RankEvidence) -> bool:
    log = read(shortened(rank.tail, rank))
    process = Process(rank, log)
    return not any(raised.line for raised in log.raised) and complaint(process) is None and rank.signal is None


def _parts(text: str) -> Mapping[int, str]:
    return _by_label(text) or _by_mark(text)


def _by_label(text: str) -> dict[int, str]:
    lines = [line for line in text.split("\n") if line.strip()]
    labelled = [line for line in lines if _LABELLED.match(line)]
    if len(lines) < 4 or len(labelled) < 0.7 * len(lines):
        return {}
    parts: dict[int, list[str]] = defaultdict(list)
    for line in labelled:
        match = _LABELLED.match(line)
        assert match is not None
        parts[int(match[1])].append(line[match.end() :])
    return {number: "\n".join(found) + "\n" for number, found in parts.items()} if len(parts) > 1 else {}


def _by_mark(text: str) -> Mapping[int, str]:
    """The lines that torch marked with a rank (`[rank3]: …`), unless a launcher names the processes."""
    if "[rank" not in text or names_children(text):
        return {}
    return owned_lines("\n".join(line for line in text.split("\n") if line.startswith("[rank")))


def _by_task(ranks: Sequence[RankEvidence], files: Sequence[LogFile]) -> list[RankEvidence]:
    """The ranks, with srun's messages on the ends of its tasks."""
    told = [match for file in files for match in _TASKS.finditer(file.text)]
    if not told:
        return list(ranks)
    ends: dict[int, re.Match[str]] = {}
    by_srun: set[int] = set()
    for position, match in enumerate(told):
        for number in _numbers(match["tasks"]):
            ends.setdefault(number, match)
            if match is ends[number] and not _by_itself(match) and any(map(_by_itself, told[:position])):
                by_srun.add(number)
    if len(ranks) == 1 and len(files) == 1 and not _parts(files[0].text):
        # The log of all of them.
        first = next((match for match in told if _by_itself(match)), told[0])
        return [_ended_by(replace(ranks[0], rank=min(_numbers(first["tasks"]))), first)]
    known = [_ended_by(rank, ends[rank.rank]) if rank.rank in ends else rank for rank in ranks]
    # A task that printed nothing of its own may still be the one that failed.
    silent = sorted(ends.keys() - {rank.rank for rank in ranks}) if len(files) == 1 else []
    known += [_ended_by(RankEvidence(number, ""), ends[number]) for number in silent[:_MOST_SILENT]]
    return [replace(rank, expected=True) if rank.rank in by_srun else rank for rank in known]


def _by_itself(told: re.Match[str]) -> bool:
    """Whether a task failed, rather than being ended from outside."""
    return told["code"] is not None or not told["how"].startswith(_FROM_OUTSIDE)


def _ended_by(rank: RankEvidence, told: re.Match[str]) -> RankEvidence:
    if told["code"] is not None:
        return replace(rank, node=told["node"], exit_code=int(told["code"]), signal=None, expected=False)
    memory = bool(_OUT_OF_MEMORY.search(told["how"]))
    signal = 9 if memory else next((number for _, pattern, number in _SHELL_SIGNALS if pattern.search(told["how"])), 9)
    killed = memory or rank.oom_killed
    return replace(rank, node=told["node"], exit_code=None, signal=signal, expected=False, oom_killed=killed)


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1)
    return found[:4096] or [0]


def _stopped(evidence: Evidence, ended: re.Match[str]) -> Evidence:
    """A job that Slurm ended: by its time limit, for another job, or because somebody cancelled it."""
    why = (ended["why"] or "").strip()
    # An exception before it says more than the end does.
    ranks = tuple(replace(rank, exit_code=None, signal=15, expected=True) for rank in evidence.ranks)
    if why not in _REASONS:
        return replace(evidence, ranks=ranks, stop_reason="cancelled", cancel_by="Slurm or a person")
    code, message = _REASONS[why]
    if code == "timeout":
        return replace(evidence, ranks=ranks, stop_reason="timeout")
    nodes = tuple(replace(node, leaving=code == "preempted", lost=code == "node_lost") for node in evidence.nodes)
    return replace(evidence, ranks=ranks, nodes=nodes, stop_reason=code, ending=Ending(code, message))


def _end_of_job(text: str) -> re.Match[str] | None:
    """Slurm's message on the end, unless it only ended the rest of a step after one of its tasks had failed."""
    ends = list(_ENDED.finditer(text))
    of_job = [end for end in ends if end["what"] == "JOB" or (end["why"] or "").strip() in _REASONS]
    if of_job or not ends:
        return of_job[-1] if of_job else None
    failed = any(_by_itself(told) for told in _TASKS.finditer(text, 0, ends[0].start()))
    return None if failed or _ENDS_THE_REST.search(text) else ends[-1]
