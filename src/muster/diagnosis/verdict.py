"""How an attempt ended and why: a pure judgement over recorded evidence.

First cause, not last symptom: causes are ordered by kind, then by time, because clocks differ and culprits
exit slowly. "The peer closed the connection" is never first while something else is known.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import replace

from muster.diagnosis import accused, gangs, meant, meeting, remote, waiting, wording
from muster.diagnosis.advice import peers, steps
from muster.diagnosis.advice.case import port_in
from muster.diagnosis.causes import (
    COLLECTIVE,
    PASSED_ON,
    RENDEZVOUS,
    Cause,
    cause_of,
    complaint,
    headline_of,
)
from muster.diagnosis.launchers import Process, as_the_job_counts, processes_of
from muster.diagnosis.ranking import ranking
from muster.diagnosis.table.machines import HAND_MADE_MEETING, NO_GPU
from muster.diagnosis.words import sounds_like_failure, telling_line
from muster.wire.verdicts import (
    CANCELLED,
    COMPLETED,
    Candidate,
    Confidence,
    Evidence,
    NodeEvidence,
    RankEvidence,
    RankExit,
    Verdict,
    VerdictEvidence,
    code_of,
)

_MOST_SHOWN = 64
_MPI_ERR_UNKNOWN = 14
"""The exit code with which Open MPI ends a rank that has lost a peer, whether or not it can report it."""

_ASKED_TO_END = re.compile(r"SignalException|got signal: 15|SIGTERM|signal 15\b")
_SOURCE = re.compile(r"\[/[^\]\s]{1,300}\.(?:cc|cpp|h|hpp):\d{1,5}\] ")
_SAYS_ITS_RANK = re.compile(r"\[Rank \d+\]|\bRank \d+\] ")
_GAVE_UP = re.compile(r"(?i)time(?:d )?-?out|within \d|\bwait(?:ed|ing)\b|only \d|DEADLINE|not all\b|clients joined")
_OF_NO_RANK = ("preempted", "node_lost", "platform", COMPLETED, CANCELLED)
_MPI_LOG = "The log of mpirun, user_logs/mpi_log.txt, says more."


def judge(evidence: Evidence) -> Verdict:
    """The verdict of an attempt that has ended."""
    if evidence.stop_reason in ("cancelled", "killed") and not _done_in_time(evidence):
        return _verdict(CANCELLED, f"cancelled{_by(evidence)}", evidence)
    if _taken_back(evidence):
        assert evidence.ending is not None
        gone_to, code = _gone(evidence), evidence.ending.code
        # Only a lost node should be avoided next time.
        lost = gone_to.name if gone_to and code == "node_lost" else None
        return _verdict(code, evidence.ending.message, evidence, node=lost)
    if _done_in_time(evidence):
        return _of_delivery(evidence)
    refused = next((node for node in evidence.nodes if node.refusal and not node.refusal.late), None)
    if refused and refused.refusal:
        why = refused.refusal
        message = f"{refused.name}: {why.message or 'refused'}"
        code = why.code or "platform"
        return _verdict(
            code, message, evidence, node=refused.name, lines=why.lines, hint=why.next or code_of(code).next
        )
    processes = processes_of(evidence.ranks)
    causes = causes_of(evidence, processes)
    made = _weighed(_of_processes(evidence, processes, causes), causes, processes, evidence)
    return as_the_job_counts(waiting.with_last_lines(made, processes), evidence)


def _weighed(made: Verdict, causes: Sequence[Cause], processes: Sequence[Process], evidence: Evidence) -> Verdict:
    """The result of the rules, unless many more signs point to another rank; one that is close becomes the second."""
    other = ranking.suspect(made, causes, processes) if made.code not in _OF_NO_RANK else None
    if other is None:
        return made
    who = wording.where(other.process.rank)
    if not other.is_likelier:
        confidence: Confidence = "likely" if made.confidence == "certain" else made.confidence
        second = made.second or Candidate(made.code, f"{who} {other.why}", other.process.rank.rank)
        return replace(made, confidence=confidence, second=second)
    blame = gangs.Blame(other.process, other.why, where=waiting.place_of(other.process), sure=False)
    return _verdict(
        made.code,
        f"{who} {blame.why}{_its_words(blame, processes)}; {made.message}",
        evidence,
        other.process.rank,
        lines=made.lines,
        hint=peers.why_not_there(blame),
        confidence="likely",
        second=Candidate(made.code, made.message, made.rank) if made.rank is not None else made.second,
    )


def _of_processes(evidence: Evidence, processes: Sequence[Process], causes: Sequence[Cause]) -> Verdict:
    first = causes[0] if causes else None
    gone = _gone(evidence)
    if evidence.stop_reason == "preempted" and not gone and (first is None or first.weight >= RENDEZVOUS):
        return _verdict("preempted", "its nodes were wanted elsewhere", evidence)
    mpi = any(rank.role == "launcher" for rank in evidence.ranks)
    if gone and (
        first is None or first.weight >= RENDEZVOUS or first.code == "platform" or (mpi and _by_mpirun(first))
    ):
        return _of_node(gone, evidence)
    if (served := remote.of_server(causes, processes)) is not None:
        return _of_rank(served, evidence, causes)
    if first is not None and (hint := meeting.all_came(causes, processes)):
        message = f"{wording.where(first.rank)}: {first.headline}{meeting.size_in_script(first)}"
        return _verdict("rendezvous", message, evidence, lines=first.lines, hint=hint, confidence="likely")
    if first is not None and first.weight >= RENDEZVOUS:
        return _of_connection(causes, processes, evidence)
    if (waited := _waited_for_somebody(causes, processes, evidence)) is not None:
        return waited
    if first is not None:
        told = gangs.origin(causes, processes) or gangs.hinted(first, processes)
        told = told or meant.by_what_is_said(causes, processes)
        if told is None and (odd := meant.disagrees(causes, processes)) is not None:
            made = _of_rank(odd, evidence, causes)
            return replace(made, next=made.next or f"See why rank {made.rank} differs from the others in what it says.")
        return _of_rank(told or _left_the_others(first, causes, processes), evidence, causes)
    if evidence.stop_reason == "timeout":
        return _of_timeout(processes, evidence)
    unfinished = next((rank for rank in evidence.ranks if rank.essential and not rank.succeeded), None)
    if unfinished:
        return _verdict("platform", f"rank {unfinished.rank} has no record of its end", evidence, unfinished)
    return _of_delivery(evidence)


def _waited_for_somebody(causes: Sequence[Cause], processes: Sequence[Process], evidence: Evidence) -> Verdict | None:
    """Where some ranks gave up waiting, and another exited with only a code at the same moment: who they waited for.

    Waiting takes its time: whoever left just now is not the one, unless nobody else is found.
    """
    blame = accused.not_heard_of(causes, processes) if causes else None
    if blame is not None:
        return _of_blame(blame, causes[0], processes, evidence)
    waited = [cause for cause in causes if cause.weight >= RENDEZVOUS and _GAVE_UP.search(cause.headline)]
    if not waited or causes[0].code != "exit_code" or causes[0].signal is not None:
        return None
    made = _of_connection(waited, processes, evidence)
    return made if made.rank is not None and all(made.rank != cause.rank.rank for cause in causes) else None


def _of_blame(blame: gangs.Blame, first: Cause, processes: Sequence[Process], evidence: Evidence) -> Verdict:
    """Where one rank complains, and another is to blame."""
    assert blame.process is not None
    said = f"{wording.where(first.rank)}: {_SOURCE.sub('', first.headline)}"
    message = f"{_who(blame)} {blame.why}{_its_words(blame, processes)}; {said}"
    second = Candidate(first.code, wording.where(first.rank) + wording.what(first), first.rank.rank)
    return _verdict(
        meeting.code_of_waiting(first),
        message,
        evidence,
        blame.process.rank,
        lines=first.lines,
        hint=peers.why_not_there(blame),
        counted=[process.rank for process in processes],
        confidence="likely",
        second=second,
    )


def _of_delivery(evidence: Evidence) -> Verdict:
    """Every rank ended well: the run has completed if its outputs arrived at their destination."""
    for node in evidence.nodes:
        why = node.refusal
        if why is not None and why.code == CANCELLED:
            return _verdict(CANCELLED, f"cancelled{_by(evidence)} after its ranks had ended; {why.message}", evidence)
        if why is not None:
            message = f"every rank ended well, but {why.message}"
            return _verdict(why.code or "platform", message, evidence, node=node.name, hint=why.next)
    return _verdict(COMPLETED, "every rank ended well", evidence)


def _by(evidence: Evidence) -> str:
    return f" by {evidence.cancel_by}" if evidence.cancel_by else ""


def causes_of(evidence: Evidence, processes: Sequence[Process]) -> list[Cause]:
    """Why each process failed that failed by itself; the first cause in front."""
    alone = len(processes) == 1 and len(evidence.nodes) <= 1
    mpi = any(rank.role == "launcher" for rank in evidence.ranks)
    found = [_in_context(cause_of(process), alone, mpi) for process in processes if process.rank.failed]
    if evidence.facts.gpus:
        found = [replace(cause, code="environment") if _lacks_gpu(cause) else cause for cause in found]
    return sorted(remote.without_doubt(found, processes), key=lambda item: item.order)


def _lacks_gpu(cause: Cause) -> bool:
    """Whether a process found no GPU: on a node that has some, the script is not at fault."""
    return cause.finding is not None and cause.finding.rule.name == NO_GPU


def _by_mpirun(cause: Cause) -> bool:
    """Whether mpirun, which itself ends the processes that a lost node left, may be the cause."""
    return cause.rank.role == "launcher" or cause.signal in wording.FROM_OUTSIDE


def _taken_back(evidence: Evidence) -> bool:
    """Whether the lender of the nodes took them back before the job was done, rather than the job failing by itself."""
    if evidence.ending is None or not evidence.ending.code:
        return False
    asked_to_go = evidence.stop_reason in ("preempted", "node_lost", "refused")
    if asked_to_go and any(node.leaving for node in evidence.nodes):
        return True
    failed = [process for process in processes_of(evidence.ranks) if process.rank.failed]
    return not _done_in_time(evidence) and (asked_to_go or bool(failed)) and all(map(_by_signal, failed))


def _by_signal(process: Process) -> bool:
    """Whether something other than the job ended a process."""
    rank = process.rank
    if rank.lost_with or rank.signal in wording.FROM_OUTSIDE or rank.exit_code in (128 + 15, 128 + 9):
        return True
    cause = cause_of(process)
    return cause.weight >= RENDEZVOUS or bool(_ASKED_TO_END.search("\n".join(cause.lines)))


def _done_in_time(evidence: Evidence) -> bool:
    """Every rank had ended well before a stop reached it."""
    essential = [rank for rank in evidence.ranks if rank.essential]
    refused = any(node.refusal and not node.refusal.late for node in evidence.nodes)
    return bool(essential) and not refused and all(rank.succeeded and not rank.expected for rank in essential)


def _left_the_others(first: Cause, causes: Sequence[Cause], processes: Sequence[Process]) -> Cause:
    """A rank that was leaving by itself without any error, and that others lost.

    For r-gang-rank0-leaves-after-eval.
    """
    if first.code != "exit_code" or first.signal is None or sounds_like_failure(first.headline):
        return first
    lost = [item for item in processes if item is not first.process and complaint(item) is not None]
    return replace(first, code="collective", finding=None) if lost and len(causes) <= len(lost) + 1 else first


def _in_context(cause: Cause, alone: bool, mpi: bool) -> Cause:
    """A single process has no peer to lose: its connection was to something else. Under MPI an exit code that Open MPI
    itself uses to end ranks, or that mpirun does, says little next to any other.
    """
    if (
        mpi
        and cause.code == "exit_code"
        and (cause.rank.role == "launcher" or cause.rank.exit_code == _MPI_ERR_UNKNOWN)
    ):
        return replace(cause, weight=PASSED_ON)
    if not alone and cause.code == "signal" and cause.signal == signals.SIGPIPE:
        # It wrote to a rank that had left (apart-perl-client-leaves).
        return replace(cause, weight=COLLECTIVE)
    if alone and cause.code == "exit_code" and cause.signal is not None:
        return replace(cause, code="signal", weight=0)
    if remote.is_to_outside(cause) or remote.was_refused(cause.raised):
        return replace(cause, code="exception", weight=0)
    if not alone or cause.rank.launcher_rank is not None or cause.finding is None or not cause.finding.rule.victim:
        return cause
    if cause.code == "rendezvous" and cause.finding.rule.name != HAND_MADE_MEETING:
        return cause
    if cause.code == "collective" and _SAYS_ITS_RANK.search(cause.headline):
        # A library that counts ranks complains: the others exist, though their logs are not here.
        return cause
    return replace(cause, code="exception" if cause.raised else "exit_code", weight=0)


def _gone(evidence: Evidence) -> NodeEvidence | None:
    """The node that was lost; one that was asked to leave explains more than one that vanished.

    Once a node is lost, whoever lent it asks the healthy ones of the gang to go too.
    """
    nodes, ending = evidence.nodes, evidence.ending
    lost = next((node for node in nodes if node.lost), None)
    if ending is not None and ending.code == "node_lost":
        named = next((node for node in nodes if node.name in ending.lost), None) or lost
        return replace(named, lost=True, leaving=False) if named else None
    return next((node for node in nodes if node.leaving), None) or lost


def _of_node(node: NodeEvidence, evidence: Evidence) -> Verdict:
    code = "preempted" if node.leaving else "node_lost"
    what = f"node {node.name} was told to go" if node.leaving else f"node {node.name} or its agent went away"
    return _verdict(code, f"{what} while the job ran", evidence, node=node.name)


def _of_connection(causes: Sequence[Cause], processes: Sequence[Process], evidence: Evidence) -> Verdict:
    """Every failure is a lost peer: find the rank that the others lost."""
    spoken = gangs.spoken(processes)
    if spoken is not None:
        return _of_rank(spoken, evidence, causes)
    told_by = gangs.origin(causes, processes)
    if told_by is not None and told_by.code not in ("collective", "rendezvous"):
        return _of_rank(told_by, evidence, causes)
    first = causes[0]
    if (flagged := meant.flagged(first, processes)) is not None:
        return _of_rank(flagged, evidence, causes)
    if _went_elsewhere(first, causes, evidence):
        return _of_rank(first, evidence, causes)
    said = f"{wording.where(first.rank)}: {_SOURCE.sub('', first.headline)}"
    ranks = [process.rank for process in processes]
    code = meeting.code_of_waiting(first)
    if code == "rendezvous":
        said += meeting.how_many(processes, said)
    blame = remote.knocked_elsewhere(causes, processes) or _lost(causes, processes, evidence, said)
    if blame.process is not None and (own := accused.own_trouble(blame.process)) is not None:
        made = _of_rank(replace(own, sure=False), evidence, causes)
        hint = made.next or peers.why_not_there(blame)
        return replace(made, message=f"{made.message}; it {blame.why}; {said}", next=hint, confidence="likely")
    if blame.process is not None:
        message = f"{_who(blame)} {blame.why}{_its_words(blame, processes)}; {said}"
        hint = peers.why_not_there(blame)
        sure: Confidence = "certain" if blame.sure else "likely"
        of = blame.process.rank
        return _verdict(code, message, evidence, of, lines=first.lines, hint=hint, counted=ranks, confidence=sure)
    if first.code not in ("rendezvous", "collective"):
        return _of_rank(meant.disagrees(causes, processes) or first, evidence, causes)
    at = waiting.places(processes)
    in_question = peers.question(blame, len(processes))
    message = "; ".join(part for part in (said, in_question, at) if part)
    hint = peers.nobody_named(first, blame, processes)
    return _verdict(
        code, message, evidence, None, lines=first.lines, hint=hint, counted=ranks, confidence="unsure", seen=first.rank
    )


def _lost(causes: Sequence[Cause], processes: Sequence[Process], evidence: Evidence, said: str) -> gangs.Blame:
    """The rank that the complaining ranks had lost: by stacks and ends, then by words."""
    told = {process.rank.rank: found.line for process in processes if (found := complaint(process))}
    surely = any(cause.code in ("rendezvous", "collective") or remote.listened(cause) for cause in causes)
    failed = [cause.raised for cause in causes if cause.raised is not None]
    blame = gangs.culprit(processes, told, surely, failed)
    unsure = blame.process is None or not blame.sure
    if meeting.code_of_waiting(causes[0]) == "rendezvous":
        if "all that the job has: the world size" in said:
            blame = gangs.Blame(None, "", sure=False)
        elif unsure:
            blame = accused.met_elsewhere(processes, evidence.facts.master_port) or blame
            blame = accused.by_value(processes, blame)
    elif surely and unsure:
        blame = accused.by_words(processes, blame)
    elif surely and blame.why == gangs.LEFT:
        blame = accused.needed_more(processes) or blame
    if blame.process is None or blame.why == gangs.LEFT:
        away = (
            accused.missed(causes[0], processes) if blame.why == gangs.LEFT and causes[0].code == "exception" else None
        )
        blame = accused.uncounted(causes, processes) or away or blame
    return blame if blame.process is not None else remote.late(causes, processes) or blame


def _went_elsewhere(first: Cause, causes: Sequence[Cause], evidence: Evidence) -> bool:
    """Whether some ranks, and not all, look for the others at a port that Muster did not give them."""
    given, looked = evidence.facts.master_port, port_in(first.headline)
    alike = [cause for cause in causes if gangs.likeness(cause) == gangs.likeness(first)]
    met = first.finding is not None and first.finding.rule.name == HAND_MADE_MEETING
    if not met and "efused" not in first.headline:
        return False
    return bool(given) and looked not in (None, given) and len(alike) < len(evidence.ranks)


def _who(blame: gangs.Blame) -> str:
    assert blame.process is not None
    return peers.ranks(blame.all_of) if blame.all_of else wording.where(blame.process.rank)


def _its_words(blame: gangs.Blame, processes: Sequence[Process]) -> str:
    """The last words of the rank to blame, or its unique ones: for one that left or hangs, that may be all there is."""
    assert blame.process is not None
    if blame.next:
        return ""
    alone = accused.said_alone(blame.process, processes)[:160]
    also = f"; it alone had said: {alone}" if alone and alone not in blame.why else ""
    said = telling_line(blame.process.log)[:160] if not blame.process.log.raised else ""
    whose = f"the last line of rank {blame.process.rank.rank}" if blame.all_of else "its last line"
    return (f"; {whose}: {said}" if said else "") + (also if alone != said else "")


def _of_timeout(processes: Sequence[Process], evidence: Evidence) -> Verdict:
    """The time limit: a rank that had failed before is the cause; otherwise where the ranks were."""
    spoken = gangs.spoken(processes)
    limit = f"the time limit{f' of {evidence.timeout_s:g} s' if evidence.timeout_s else ''} passed"
    if spoken is not None:
        made = _of_rank(spoken, evidence, ())
        return replace(made, message=f"{made.message}; it did not end, and {limit}", confidence="likely")
    running = [p for p in processes if p.rank.essential and p.rank.expected and p.rank.role != "launcher"]
    # Only where all the others wait for one is it no lack of time.
    blame = accused.stays_behind(processes) or gangs.has_left(processes)
    blame = blame or (gangs.odd_one_out(running, len(running)) if len(running) > 1 else None)
    if len(running) > 1 and all(map(waiting.is_meeting, running)):
        found = accused.met_elsewhere(running, evidence.facts.master_port)
        if found is not None and found.process is not None:
            message = f"{limit} while ranks looked for each other; {_who(found)} {found.why}"
            hint = peers.why_not_there(found)
            return _verdict("rendezvous", message, evidence, found.process.rank, hint=hint, confidence="likely")
    if blame is None or blame.process is None:
        blame = accused.waits_with_another_value(running) or gangs.all_wait(running) or accused.by_progress(running)
        blame = blame or (accused.by_branch(running) if waiting.in_one_place(running) else None)
    if blame is not None and blame.process is not None:
        if (own := accused.said_trouble(blame.process)) is not None:
            made = _of_rank(own, evidence, ())
            hint = made.next or peers.why_not_there(blame)
            return replace(made, message=f"{made.message}; it {blame.why}, and {limit}", next=hint, confidence="likely")
        words = "" if blame.where is not None and blame.sure else _its_words(blame, processes)
        message = f"{limit}; {_who(blame)} {blame.why}{words}"
        hint = peers.why_not_there(blame)
        return _verdict("timeout", message, evidence, blame.process.rank, hint=hint, confidence="likely")
    if (last := gangs.still_going(processes)) is not None and last.process is not None:
        message = f"{limit}; {_who(last)} {last.why}{_its_words(last, processes)}"
        hint = peers.goes_on(last, telling_line(last.process.log))
        return _verdict("timeout", message, evidence, last.process.rank, hint=hint, confidence="likely")
    at = waiting.places(running)
    if not at and (len(running) == 1 or waiting.in_one_place(running)) and (doing := waiting.doing(running[0])):
        at = f"{wording.where(running[0].rank) if len(running) == 1 else 'every rank that was left'} {doing}"
    return _verdict("timeout", f"{limit}; {at}" if at else limit, evidence, hint=peers.needs_longer(running))


def _of_rank(cause: Cause, evidence: Evidence, causes: Sequence[Cause]) -> Verdict:
    rank = cause.rank
    hint = steps.next_step(cause, evidence.facts)
    if rank.role == "launcher" or "mpirun" in (rank.lost_with or ""):
        hint = _MPI_LOG
    second = _second(cause, causes)
    confidence: Confidence = "certain" if cause.sure and second is None else "likely"
    if cause.code == "exit_code" and not cause.headline:
        confidence = "unsure"
    message = wording.where(rank) + wording.what(cause)
    return _verdict(
        cause.code,
        message,
        evidence,
        rank,
        lines=cause.lines,
        hint=hint,
        confidence=confidence,
        second=second,
        of_script=steps.of_script(cause, evidence.facts),
    )


def _second(cause: Cause, causes: Sequence[Cause]) -> Candidate | None:
    """The next best explanation: another rank's definite failure of another kind, or an exception printed earlier."""
    mine = gangs.likeness(cause)
    for other in causes:
        if other.rank.rank != cause.rank.rank and other.weight == cause.weight and gangs.likeness(other) != mine:
            return Candidate(other.code, wording.where(other.rank) + wording.what(other), other.rank.rank)
    if cause.earlier is not None and cause.earlier.line and not cause.sure:
        return Candidate(
            "exception", f"{wording.where(cause.rank)} had printed {headline_of(cause.earlier)}", cause.rank.rank
        )
    return None


def _verdict(
    code: str,
    message: str,
    evidence: Evidence,
    rank: RankEvidence | None = None,
    *,
    node: str | None = None,
    lines: tuple[str, ...] = (),
    hint: str | None = None,
    counted: Sequence[RankEvidence] = (),
    confidence: Confidence = "certain",
    second: Candidate | None = None,
    of_script: bool = False,
    seen: RankEvidence | None = None,
) -> Verdict:
    shown = [item for item in counted or evidence.ranks if item.failed]
    if rank is not None and all(item.rank != rank.rank or item.node != rank.node for item in shown):
        shown.append(rank)
    of = rank or seen
    facts = VerdictEvidence(
        tuple(
            RankExit(item.rank, item.node, item.exit_code, item.signal, item.expected, item.ended_at)
            for item in shown[:_MOST_SHOWN]
        ),
        of.launcher_rank if of is not None else None,
        evidence.stop_reason or None,
    )
    return Verdict(
        code=code,
        message=message,
        rank=rank.rank if rank else None,
        node=rank.node if rank else node,
        evidence=facts,
        next=code_of(code).next if hint is None else hint,
        lines=lines,
        confidence=confidence,
        second=second,
        of_script=of_script,
    )
