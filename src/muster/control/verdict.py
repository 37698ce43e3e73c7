"""How an attempt ended and why: a pure judgement over recorded evidence.

First cause, not last symptom: causes are ordered by kind, then by time, because clocks differ and culprits
exit slowly. "The peer closed the connection" is never first while something else is known.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import replace

from muster.control import children
from muster.control.causes import PASSED_ON, RENDEZVOUS, Cause, cause_of, last_words
from muster.wire.verdicts import (
    CANCELLED,
    COMPLETED,
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
"""How Open MPI ends a rank that has lost a peer, whether or not it gets to say so."""

_FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
_OUTSIDE = (
    "Something outside the program sent this signal, and it was neither Muster nor the kernel for want of memory: "
    "look for a person, a watchdog or a limit on the node. `retry.user_error` has it tried again."
)
_ASKED_TO_END = re.compile(r"SignalException|got signal: 15|SIGTERM|signal 15\b")
_CONTRACT_NAMES = re.compile(r"KeyError: '(LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'")
_NAMED_RANK = re.compile(
    r"[Rr]anks? (\d+) (?:failed to (?:pass|respond|join)|did not|is not ready|exited|was lost|disconnected)"
    r"|(?:remote|peer) rank (\d+)|[Mm]issing ranks: (\d+)|rank: (\d+), .*(?:remote process exited|timed? ?out)"
)


def judge(evidence: Evidence) -> Verdict:
    """The verdict of an attempt that has ended."""
    if evidence.stop_reason in ("cancelled", "killed") and not _done_in_time(evidence):
        return _verdict(CANCELLED, f"cancelled{_by(evidence)}", evidence)
    if _taken_back(evidence):
        assert evidence.ending is not None
        gone_to, code = _gone(evidence), evidence.ending.code
        # Only a lost node is one to avoid next time.
        lost = gone_to.name if gone_to and code == "node_lost" else None
        return _verdict(code, evidence.ending.message, evidence, node=lost)
    if _done_in_time(evidence):
        return _of_delivery(evidence)
    refused = next((node for node in evidence.nodes if node.refusal and not node.refusal.late), None)
    if refused and refused.refusal:
        why = refused.refusal
        message = f"{refused.name}: {why.message or 'refused'}"
        code = why.code or "platform"
        return _verdict(code, message, evidence, node=refused.name, lines=why.lines, hint=why.next)
    ranks = _with_children(children.with_mpi_errors(evidence.ranks))
    alone = len(ranks) == 1 and len(evidence.nodes) <= 1
    mpi = any(rank.role == "launcher" for rank in evidence.ranks)
    found = (_in_context(cause_of(rank), alone, mpi) for rank in ranks if rank.failed)
    causes = sorted(found, key=lambda item: item.order)
    first = causes[0] if causes else None
    gone = _gone(evidence)
    if evidence.stop_reason == "preempted" and not gone and (first is None or first.weight >= RENDEZVOUS):
        return _verdict("preempted", "its nodes were wanted elsewhere", evidence)
    if gone and (
        first is None or first.weight >= RENDEZVOUS or first.code == "platform" or (mpi and _by_mpirun(first))
    ):
        return _of_node(gone, evidence)
    if first is not None and first.weight >= RENDEZVOUS:
        return _of_connection(first, ranks, evidence)
    if first is not None:
        return _of_rank(first, evidence)
    if evidence.stop_reason == "timeout":
        limit = f" of {evidence.timeout_s:g} s" if evidence.timeout_s else ""
        return _verdict("timeout", f"the time limit{limit} passed", evidence)
    unfinished = next((rank for rank in ranks if rank.essential and not rank.succeeded), None)
    if unfinished:
        return _verdict("platform", f"rank {unfinished.rank} has no record of its end", evidence, unfinished)
    return _of_delivery(evidence)


def _of_delivery(evidence: Evidence) -> Verdict:
    """Every rank ended well: it has completed if what they left arrived where it belongs."""
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


def _by_mpirun(cause: Cause) -> bool:
    """Whether mpirun, which ends by itself what a lost node left, may be the cause."""
    return cause.rank.role == "launcher" or cause.signal in _FROM_OUTSIDE


def _with_children(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The ranks, and in place of a launcher that failed the processes that it names."""
    known = {rank.rank: rank for rank in ranks if rank.role != "launcher"}
    found = []
    for rank in ranks:
        if not rank.failed:
            found.append(rank)
        elif rank.role == "launcher":
            found += children.of_mpirun(rank, known)
        else:
            found += children.split(rank)
    return found


def _taken_back(evidence: Evidence) -> bool:
    """Whether whoever lent the nodes took them back before the job was done, rather than the job failing by itself."""
    if evidence.ending is None or not evidence.ending.code:
        return False
    asked_to_go = evidence.stop_reason in ("preempted", "node_lost", "refused")
    if asked_to_go and any(node.leaving for node in evidence.nodes):
        return True
    failed = [rank for rank in evidence.ranks if rank.failed]
    return not _done_in_time(evidence) and (asked_to_go or bool(failed)) and all(map(_by_signal, failed))


def _by_signal(rank: RankEvidence) -> bool:
    """Whether something other than the job ended a rank."""
    if rank.lost_with or rank.signal in _FROM_OUTSIDE or rank.exit_code in (128 + 15, 128 + 9):
        return True
    cause = cause_of(rank)
    return cause.weight >= RENDEZVOUS or bool(_ASKED_TO_END.search("\n".join(cause.lines)))


def _done_in_time(evidence: Evidence) -> bool:
    """Every rank had ended well before a stop reached it."""
    essential = [rank for rank in evidence.ranks if rank.essential]
    refused = any(node.refusal and not node.refusal.late for node in evidence.nodes)
    return bool(essential) and not refused and all(rank.succeeded and not rank.expected for rank in essential)


def _in_context(cause: Cause, alone: bool, mpi: bool) -> Cause:
    """A process that is alone has no peer to lose: its connection was to something else. Under MPI a code that Open MPI
    itself ends ranks with, or that mpirun does, says little beside any other."""
    if (
        mpi
        and cause.code == "exit_code"
        and (cause.rank.role == "launcher" or cause.rank.exit_code == _MPI_ERR_UNKNOWN)
    ):
        return replace(cause, weight=PASSED_ON)
    if cause.code != "collective" or not alone or cause.rank.launcher_rank is not None:
        return cause
    code = "exception" if any(line.startswith("Traceback") for line in cause.lines) else "exit_code"
    return Cause(code, cause.rank, cause.signal, cause.headline, cause.lines)


def _gone(evidence: Evidence) -> NodeEvidence | None:
    """The node that went away; one that was asked to go says more than one that vanished.

    Once a node is lost, whoever lent it asks the healthy ones of the gang to go too.
    """
    nodes, ending = evidence.nodes, evidence.ending
    lost = next((node for node in nodes if node.lost), None)
    if ending is not None and ending.code == "node_lost":
        named = next((node for node in nodes if node.name in ending.lost), None) or lost
        return replace(named, lost=True, leaving=False) if named else None
    return next((node for node in nodes if node.leaving), None) or lost


def _of_node(node: NodeEvidence, evidence: Evidence) -> Verdict:
    if node.leaving:
        return _verdict("preempted", f"node {node.name} was told to go while the job ran", evidence, node=node.name)
    return _verdict("node_lost", f"node {node.name} or its agent went away while the job ran", evidence, node=node.name)


def _of_connection(first: Cause, ranks: Sequence[RankEvidence], evidence: Evidence) -> Verdict:
    """Every failure is a lost peer: find the rank that the others lost."""
    spoken = [cause for rank in ranks if rank.expected and (cause := last_words(rank)) and cause.weight < RENDEZVOUS]
    if spoken:
        return _of_rank(min(spoken, key=lambda cause: cause.order), evidence)
    said = f"rank {first.rank.rank} on {first.rank.node}: {first.headline}"
    culprit, why = _culprit(first, ranks)
    if culprit is None:
        return _verdict(first.code, said, evidence, first.rank, lines=first.lines, counted=ranks)
    message = f"rank {culprit.rank} on {culprit.node} {why}; {said}"
    return _verdict(first.code, message, evidence, culprit, lines=first.lines, counted=ranks)


def _culprit(first: Cause, ranks: Sequence[RankEvidence]) -> tuple[RankEvidence | None, str]:
    essential = [rank for rank in ranks if rank.essential]
    left_early = [rank for rank in essential if rank.succeeded]
    if left_early:
        rank = min(left_early, key=lambda item: item.ended_at or 0.0)
        return rank, "had ended (exit code 0) while the others still needed it"
    named = _NAMED_RANK.search("\n".join(first.lines))
    if named:
        number = int(next(group for group in named.groups() if group is not None))
        rank_named = next((rank for rank in ranks if rank.rank == number and rank is not first.rank), None)
        if rank_named:
            return rank_named, "is the one that the others name"
    silent = [rank for rank in essential if not rank.failed]
    if len(silent) == 1 and len(essential) > 1:
        return silent[0], "did not answer the others"
    return None, ""


def _of_rank(cause: Cause, evidence: Evidence) -> Verdict:
    rank = cause.rank
    where = f"{'mpirun' if rank.role == 'launcher' else f'rank {rank.rank}'} on {rank.node}"
    if cause.code == "signal" and cause.signal is not None:
        message = f"{where} was ended by {_signal_name(cause.signal)}"
    elif cause.code == "exit_code":
        message = f"{where} exited with code {rank.exit_code}"
    elif cause.code == "platform" and rank.lost_with:
        message = f"{where} was ended because the {rank.lost_with} that kept it was killed"
    elif cause.code == "platform":
        message = f"{where} {cause.headline}"
    elif cause.code == "launcher_missing" and rank.refusal:
        message = f"{where} could not be started: {rank.refusal}"
    elif cause.code == "host_oom" and cause.signal == signals.SIGKILL:
        message = f"{where} was killed because the node ran out of memory"
    else:
        message = f"{where}: {cause.headline}" if cause.headline else f"{where} failed"
    hint = _OUTSIDE if cause.code == "signal" and cause.signal in _FROM_OUTSIDE else None
    if rank.role == "launcher" or "mpirun" in (rank.lost_with or ""):
        hint = "The log of mpirun, user_logs/mpi_log.txt, says more."
    missing = _CONTRACT_NAMES.search("\n".join(cause.lines))
    if missing:
        hint = (
            f"{missing[1]} is set only when processes are counted: give a process count "
            "(`--procs`, process_count_per_instance), or start the script with torchrun."
        )
    return _verdict(cause.code, message, evidence, rank, lines=cause.lines, hint=hint)


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
) -> Verdict:
    shown = [item for item in counted or evidence.ranks if item.failed]
    if rank is not None and all(item.rank != rank.rank or item.node != rank.node for item in shown):
        shown.append(rank)
    facts = VerdictEvidence(
        tuple(
            RankExit(item.rank, item.node, item.exit_code, item.signal, item.expected, item.ended_at)
            for item in shown[:_MOST_SHOWN]
        ),
        rank.launcher_rank if rank is not None else None,
        evidence.stop_reason or None,
    )
    return Verdict(
        code=code,
        message=message,
        rank=rank.rank if rank else None,
        node=rank.node if rank else node,
        evidence=facts,
        next=hint or code_of(code).next,
        lines=lines,
    )


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
