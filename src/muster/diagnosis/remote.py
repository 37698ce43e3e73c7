"""The other end of a lost connection: a rank that serves the others, stays up and reports an error to its client; a
server outside the job; or no peer at all, where a file ended too early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.diagnosis import waiting
from muster.diagnosis.causes import DEFINITE, RENDEZVOUS, Cause, by_exception, is_victim
from muster.diagnosis.gangs import Blame
from muster.diagnosis.launchers import Process
from muster.diagnosis.raised import Raised
from muster.diagnosis.table.machines import LOST_BY_LIBRARY, LOST_PEER

_SAID = (
    re.compile(r"Exception (?:calling application|iterating \w+): (?P<said>[^\"\n]{1,300})"),
    re.compile(r"<Fault -?\d+: ['\"](?:<class '(?P<kind>[\w.]+)'>:)?(?P<said>.{1,300}?)['\"]>"),
    re.compile(r"\bHTTP(?:Status)?Error: (?:HTTP Error )?5(?!0[234])\d\d:? (?P<said>.{1,300})"),
    re.compile(r"\b5(?!0[234])\d\d Server Error: (?P<said>.{1,200}?) for url"),
    re.compile(
        r"(?i)\b(?:server|coordinator|master|leader|head|driver|scheduler|service|tuner|broker|controller|remote|peer"
        r"|other (?:side|end)|rank \d+|worker \d+)\b.{0,30}\b(?:said|says|reply|replied|answer(?:s|ed)?|respond(?:s|ed)"
        r"|returned|report(?:s|ed)|sent|failed|raised|refused|error)\b\W{0,3}(?P<said>.{3,300})"
    ),
    re.compile(r"Server error '5(?!0[234])\d\d (?P<said>[^']{1,200})'"),
)
_ANSWERED = re.compile(r"StatusCode\.(?!UNAVAILABLE|DEADLINE|CANCELLED|UNAUTH|RESOURCE_EXH|OK\b)[A-Z_]+")
"""A server that answers with such a code was reached, and refused or failed."""
_REFUSED = re.compile(
    r"StatusCode\.(?:INVALID_ARGUMENT|FAILED_PRECONDITION|PERMISSION_DENIED|ALREADY_EXISTS|OUT_OF_RANGE|UNAUTHENTICATED)"
)
"""A server that answers with such a code objects to the client's request."""
_DETAILS = re.compile(r"details = \"(?P<said>.{1,300}?)\"$")
_NAMED = re.compile(r"On WorkerInfo\(id=(?P<rank>\d+)")
_HANDED_OVER = re.compile(r"multiprocessing/managers\.py$|torch/distributed/rpc/|/rpyc/|/Pyro\d|/xmlrpc/client\.py$")
"""Where a client raises the server's exception again."""
_QUOTED = re.compile(r"\b(?:Remote\w*(?:Error|Exception|Traceback)|\w*TaskError|RPCException)\b|^On WorkerInfo\(")
_ERROR = re.compile(r"^\W{0,3}(?P<said>(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Empty)(?::.{0,300})?)$")
_SERVES = re.compile(
    r"^(?:serve_forever|wait_for_termination|handle_request|run_forever|run_app|serve|_serve|accept|accepter|run_server"
    r"|start_server|listen)$"
)

_WRITTEN_OUT = re.compile(
    r"\b(?:https?|wss?|redis|amqp|mysql|postgres\w*|mongodb|grpc)://[^\s{}'\"]{1,200}(?=['\"\s)]|$)"
)
_AMBIGUOUS = re.compile(r"(?:EOFError|struct\.error|TimeoutError|(?:_?pickle\.)?UnpicklingError|BrokenPipeError)\b")
_LISTENS = re.compile(r"\.accept\(\)")
_LOADER = re.compile(r"torch/utils/data/")
_LATE = re.compile(r"(?i)DEADLINE|time(?:d[ -]?)?[ -]?out|zmq\.error\.Again|resource temporarily unavailable")
_OF_PEERS = re.compile(
    r"(?i)rank|worker|peer|sock|conn|recv|receiv|barrier|wait|meet|join|token|neighbo|others|gather|reduce|broadcast|sync"
    r"|queue|pipe\b|remote|server|client|heartbeat|rendez|channel|message|exchange|selectors|ssl\.py|asyncio|grpc|zmq"
    r"|multiprocessing|distributed|absent|arriv|ring|link|replica|actor|master|leader|coordinat|member|node|accept|\btask"
)
_HUNG_UP = re.compile(
    r"(?i)\b\w{2,20} #?(\d{1,6})(?: (?:has|had|was|is))? "
    r"(?:hung up|left|gone|vanished|disconnected|dropped|died|closed|lost|went away)\b"
)


@dataclass(frozen=True)
class Quote:
    """The error that a client was told."""

    said: str
    rank: int | None = None
    """The rank that it names."""


def of_server(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a client fails with the failure of a rank that serves it: that rank, with its exception."""
    if len(processes) < 2 or not causes:
        return None
    quoted = [(cause, found) for cause in causes if (found := _quote(cause.raised) or _handed_over(cause))]
    if not quoted:
        return None
    told, quote = quoted[0]
    clients = {cause.rank.rank for cause, _ in quoted}
    if any(cause.weight < RENDEZVOUS and cause.rank.rank not in clients for cause in causes):
        return None
    server = _server(processes, quote, clients)
    if server is None:
        return None
    said = f"rank {told.rank.rank} was told so: {told.headline}"
    if (own := _own_exception(server, quote)) is not None:
        return replace(own, headline=f"{own.headline} ({said})", code="exception", weight=DEFINITE, sure=False)
    headline = "{} ({})".format(quote.said.replace("\\'", "'"), said)
    return replace(told, code="exception", process=server, headline=headline, weight=DEFINITE, finding=None, sure=False)


def _own_exception(server: Process, quote: Quote) -> Cause | None:
    """The exception of a serving rank that told its client only that it failed, or the same."""
    for raised in reversed(server.log.raised):
        if raised.line and raised.setting != "ignored" and not is_victim(raised):
            return by_exception(server, raised)
    return None


def _quote(raised: Raised | None) -> Quote | None:
    if raised is None or was_refused(raised):
        return None
    lines = (raised.line, *raised.more, *(line for cause in raised.causes for line in (cause.line, *cause.more)))
    named = next((match for line in lines if (match := _NAMED.search(line))), None)
    number = int(named["rank"]) if named else None
    for line in lines:
        for pattern in _SAID:
            if match := pattern.search(line):
                kind = match.groupdict().get("kind")
                return Quote(f"{kind}: {match['said']}" if kind else match["said"].strip(), number)
    if any(map(_ANSWERED.search, lines)):
        details = next((match for line in lines if (match := _DETAILS.search(line.strip()))), None)
        return Quote(details["said"], number) if details else None
    if any(map(_QUOTED.search, lines)):
        inner = [match["said"] for line in lines if (match := _ERROR.match(line.strip())) and "Remote" not in line]
        return Quote(inner[-1], number) if inner else None
    return None


def was_refused(raised: Raised | None) -> bool:
    """Whether a server was reached and refused a request through the client's fault (further-grpc-refuses)."""
    return raised is not None and any(map(_REFUSED.search, raised.all_lines))


def _handed_over(cause: Cause) -> Quote | None:
    """An exception that a library raised again on the client, as if it had happened there."""
    raised = cause.raised
    if raised is None or cause.weight >= RENDEZVOUS:
        return None
    named = next((match for other in cause.process.log.raised if (match := _NAMED.search(other.line))), None)
    if named is not None:
        return Quote(raised.line, int(named["rank"]))
    return Quote(raised.line) if raised.frames and _HANDED_OVER.search(raised.frames[-1].file) else None


def _server(processes: Sequence[Process], quote: Quote, clients: set[int]) -> Process | None:
    """The rank that served: the one that is named, or the only one that does nothing else."""
    others = [process for process in processes if process.rank.rank not in clients and process.rank.essential]
    if quote.rank is not None:
        return next((process for process in processes if process.rank.rank == quote.rank), None)
    serving = [process for process in others if _serves(process)]
    return serving[0] if len(serving) == 1 else None


def late(causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """Where clients waited in vain for an answer: the only rank that serves, and what it did instead.

    For r-own-grpc-deadline, values-http-handler-hangs, values-zmq-reply-never-comes.
    """
    waited = {cause.rank.rank for cause in causes if cause.raised and any(map(_LATE.search, cause.raised.all_lines))}
    others = [process for process in processes if process.rank.rank not in waited and process.rank.expected]
    serving = [process for process in others if _serves(process)]
    if not waited or len(serving) != 1:
        return None
    at = waiting.answering(serving[0])
    if at is None:
        return Blame(serving[0], waiting.not_there(serving[0]), where=waiting.place_of(serving[0]))
    source = f": `{at.source[:80]}`" if at.source else ""
    did = f"a thread of it was still at {waiting.short(at.file)} line {at.line}, in {at.function}{source}"
    return Blame(serving[0], f"did not answer the others: {did}", where=at)


def knocked_elsewhere(causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """Where some find nobody though a rank listens, and others have come to it: they looked at another place.

    For r-own-one-worker-wrong-port, further-one-wrong-port.
    """
    refused = [cause for cause in causes if cause.raised is not None and "efused" in cause.raised.line]
    serving = [process for process in processes if process.rank.expected and _serves(process)]
    others = [item for item in processes if item not in serving and not item.rank.failed and not _serves(item)]
    if len(refused) != 1 or len(causes) != 1 or len(serving) != 1 or not others:
        return None
    at, host = waiting.failed_at(refused[0].raised), serving[0].rank.rank
    where = f"{waiting.short(at.file)} line {at.line}" if at is not None else "its settings"
    hint = (
        f"Rank {host} listens, and others reached it: compare the address and port that rank {refused[0].rank.rank} "
        f"uses ({where}) with theirs."
    )
    why = f"did not come to where rank {host} listens"
    return Blame(refused[0].process, why, where=at, sure=False, next=hint)


def listened(cause: Cause) -> bool:
    """Whether a rank gave up while it listened: only the other ranks were expected.

    For values-exit-early.
    """
    at = waiting.failed_at(cause.raised)
    return at is not None and bool(_LISTENS.search(at.source)) and any(map(_LATE.search, _told_of(cause.raised)))


def hung_up(causes: Sequence[Cause]) -> Cause | None:
    """Where ranks say of each other that they hung up, one after the other: the one that says so of nobody.

    For s-hub-coreutils-timeout, whom-chain-under-timeout.
    """
    by_rank = {cause.rank.rank: cause for cause in causes}
    found, seen = causes[0], set[int]()
    while found.rank.rank not in seen and (said := _HUNG_UP.findall(found.headline)):
        seen.add(found.rank.rank)
        named = [by_rank[int(number)] for number in said if int(number) in by_rank and int(number) not in seen]
        if len(named) != 1:
            return None
        found = named[0]
    return replace(found, sure=False) if seen and found.rank.rank not in seen else None


def _serves(process: Process) -> bool:
    stack = waiting.stack_of(process)
    return stack is not None and any(_SERVES.match(frame.function) for frame in stack.frames)


def is_to_outside(cause: Cause) -> bool:
    """Whether it lost a connection to an address that the script spells out: no peer's, whose ports are given."""
    return _lost_a_peer(cause) and any(map(_WRITTEN_OUT.search, _told_of(cause.raised)))


def _lost_a_peer(cause: Cause) -> bool:
    return cause.raised is not None and cause.finding is not None and cause.finding.rule.name == LOST_PEER


def _told_of(raised: Raised | None) -> list[str]:
    """The message of an exception, and the lines of the user's own code that led to it."""
    frames = raised.frames if raised is not None else ()
    own = [frame.source for frame in frames if not frame.of_library]
    return [*own, *(raised.all_lines if raised is not None else ())]


def without_doubt(causes: Sequence[Cause], processes: Sequence[Process]) -> list[Cause]:
    """The causes; what may be a lost peer is the rank's own trouble where all the others lost it, or were at work.

    For t-run-exception-group, t-ddp-record-too-short.
    """
    own = [cause for cause in causes if _may_be_own(cause)]
    lost = sum(cause.finding is not None and cause.finding.rule.name == LOST_BY_LIBRARY for cause in causes)
    if len(own) != 1 or lost != len(causes) - 1 or any(process.rank.succeeded for process in processes):
        return list(causes)
    return [replace(cause, code="exception", weight=0) if cause is own[0] else cause for cause in causes]


def _may_be_own(cause: Cause) -> bool:
    """Whether only its kind suggests a lost peer: files end too early as well, and programs have deadlines."""
    raised = cause.raised
    if raised is not None and raised.causes and (raised.causes[0].setting == "inner" or raised.form == "group"):
        # Raised in a worker of a data loader, which knows of no other rank, or in a group of tasks.
        raised = raised.causes[0]
    if raised is None or not _lost_a_peer(cause) or not _AMBIGUOUS.match(raised.line) or not raised.frames:
        return False
    raised = replace(raised, frames=tuple(frame for frame in raised.frames if not _LOADER.search(frame.file)))
    said = _told_of(raised)
    names = [*(frame.function for frame in raised.frames), *(frame.file for frame in raised.frames if frame.of_library)]
    return not any(map(_OF_PEERS.search, (*said, *names)))
