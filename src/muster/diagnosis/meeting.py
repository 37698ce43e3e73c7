"""Where ranks looked for each other, according to their own words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from muster.diagnosis.causes import RENDEZVOUS, Cause
from muster.diagnosis.launchers import Process
from muster.diagnosis.log import Log
from muster.diagnosis.words import PROGRESS

Address = tuple[str, int]

_ADDRESS = re.compile(
    r"(?<![\w.:/-])(?:tcp://|env://)?(?P<host>localhost|\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w-]{0,60}(?:\.[\w-]{1,60}){1,6})"
    r"(?::|, ?)(?P<port>\d{4,5})(?!\d)|connect to \((?P<to>[\w.:-]{1,80}), (?P<at>\d{1,5})\)"
)
_SOURCE_FILE = re.compile(r"\.(?:py|cpp|cc|c|h|hpp|rs|go|java|cu)$")
_SOCKET = "SocketImpl("
"""An established connection: its own end has an arbitrary port."""
_SIZE = re.compile(r"\b(?:world_size|num_processes)\s?=\s?(\d{1,6})\b")
_JOINED = re.compile(r"(?<!\d)(\d+)/(\d+) clients joined")
_COUNTED = re.compile(
    r"(?<![\d.])(\d{1,6}) ?(?:of|/|out of) ?(\d{1,6}) (?:\w+ )?"
    r"(?:joined|connected|members|arrived|came|registered|workers|peers)\b"
)
_UNREACHED = re.compile(
    r"failed to connect|client socket has timed out|cannot be retrieved|[Nn]ame or service not known|efused"
    r"|[Nn]o route to host|unreachable"
)
_NO_SUCH_HOST = re.compile(r"[Nn]o route to host|[Nn]ame or service not known|cannot be retrieved")
_HERE = re.compile(r"127\.|localhost$|::1$")
_MEETING_WORDS = re.compile(
    r"(?i)\b(?:announce|discover|join|regist(?:er|ra)|handshake|bootstrap|rendez-?vous|check(?:ed)? in"
    r"|start(?:ing)?[- ]?(?:line|up)\b|roll[- ]call)|\b(?:members?|participants?) (?:came|arrived)"
)
_MEETING_CALL = re.compile(
    r"(?i)(?:^|_)(?:rendezvous|discover\w*|join|register|handshake|bootstrap|init|initiali[sz]e|connect|hello|start_?up)(?:_|$)"
)
_NOBODY = re.compile(r"[Rr]efused|CONNREFUSED")
_LATE = re.compile(r"(?i)time(?:d[ -]?)?[ -]?out")
_TIME = re.compile(r"\d{1,4}[-/:]\d\d[-/:]\d\d[\d.,:TZ+ ]{0,20}")
_NUMBER = re.compile(r"\d+")
_MOST_LINES = 400
_FIRST_WORDS = 20
_MANY = 64
"""With more ranks than this, fewer lines are compared: a verdict must not be late."""


def joined(texts: Sequence[str]) -> tuple[int, int] | None:
    """How many of the expected ranks came, if one of them counted."""
    found = [(int(match[1]), int(match[2])) for text in texts if (match := _JOINED.search(text))]
    return max(found) if found else None


def how_many(processes: Sequence[Process], said: str) -> str:
    """How many ranks came, if one of them counted and the message does not say so yet."""
    counted = joined([raised.line for process in processes for raised in process.log.raised])
    if counted is None:
        return ""
    all_came = (
        f", all that the job has: the world size is {counted[1]} in the script" if counted[0] == len(processes) else ""
    )
    return f"; {counted[0]}/{counted[1]} clients joined{all_came}" if all_came or "clients joined" not in said else ""


def all_came(causes: Sequence[Cause], processes: Sequence[Process]) -> str:
    """What to do where a rank gave up on a number of ranks that the job does not have: all its ranks were there, and
    each lost the others alike.

    For s-hub-expects-one-more, whom-world-too-big, whom-quorum-of-five.
    """
    count = len([process for process in processes if process.rank.essential and process.rank.role != "launcher"])
    if (fixed := _fixed_size(causes[0])) > count:
        return (
            f"The script waits for {fixed} ranks in any case, and the job has {count}: take the number from "
            "WORLD_SIZE, or start as many ranks."
        )
    counted = [(cause, match) for cause in causes if (match := _COUNTED.search(cause.headline))]
    if (
        len(causes) != count
        or count < 3
        or not counted
        or any(cause.rank.launcher_rank is not None for cause in causes)
    ):
        return ""
    first, match = counted[0]
    came, wanted = int(match[1]), int(match[2])
    others = {_NUMBER.sub("#", cause.headline) for cause in causes if cause is not first}
    # A rank that counts the others does not count itself.
    if came >= wanted or came not in ((count,) if len(counted) == count else (count - 1, count)) or len(others) != 1:
        return ""
    return (
        f"All {count} ranks of the job came, and the script waits for {wanted}: take the number from WORLD_SIZE, or "
        "start as many ranks."
    )


def size_in_script(first: Cause) -> str:
    """The addition to the message where the script itself says for how many ranks it waits."""
    fixed = _fixed_size(first)
    return f"; the world size is {fixed} in the script" if fixed else ""


def _fixed_size(first: Cause) -> int:
    """The number of ranks in the line with which a process gave up; 0 where there is none."""
    if first.weight < RENDEZVOUS or first.raised is None or first.rank.launcher_rank is not None:
        return 0
    own = next((frame for frame in reversed(first.raised.frames) if not frame.of_library), None)
    found = _SIZE.search(own.source) if own is not None else None
    return int(found[1]) if found else 0


def elsewhere(processes: Sequence[Process], given_port: int | None) -> list[Process]:
    """Those that looked for the others at another address than most, or than the one that Muster gave."""
    most = _MOST_LINES if len(processes) <= _MANY else _FIRST_WORDS
    at = {process.rank.rank: _addresses(process.log, most) for process in processes}
    odd = _at_another_address(processes, at, given_port)
    if odd or (odd := _at_a_port_not_given(processes, at, given_port)):
        return odd
    lost = [process for process in processes if _never_arrived(process.log)]
    waited = [process for process in processes if joined(process.log.lines) or _all_said(process)]
    if lost and any(process not in lost for process in waited) and len(lost) < len(processes) - 1:
        return lost
    one = told_otherwise(processes)
    return [one] if one is not None else []


def _at_another_address(
    processes: Sequence[Process], at: Mapping[int, frozenset[Address]], given_port: int | None
) -> list[Process]:
    counted = Counter(address for found in at.values() for address in found)
    if not counted:
        return []
    right = {address for address in counted if address[1] == given_port}
    hosts = Counter(host for found in at.values() for host, port in found if port == given_port)
    if len(hosts) > 1:
        # The same port on another host: most know where it is.
        (common, count), (_, following) = hosts.most_common(2)
        first = next((at[process.rank.rank] for process in processes if process.rank.rank == 0), frozenset())
        named = {host for host, port in first if port == given_port}
        common = next(iter(named)) if len(named) == 1 else common if count > following else ""
        right = {(common, given_port)} if common and given_port else right
    if not right:
        (address, count), *others = counted.most_common()
        if others and others[0][1] >= count:
            return []
        right = {address}
    odd = [process for process in processes if at[process.rank.rank] and not at[process.rank.rank] & right]
    return odd if odd and any(found & right for found in at.values()) else []


def _at_a_port_not_given(
    processes: Sequence[Process], at: Mapping[int, frozenset[Address]], given_port: int | None
) -> list[Process]:
    """Those that tried in vain to connect to ports that Muster did not give, while another waited and counted who came.

    For r-more-rank1-other-master-port, values-port-of-own, values-host-of-own, values-first-elsewhere.
    """
    away = [
        process
        for process in processes
        if (found := at[process.rank.rank])
        and _never_arrived(process.log)
        and (all(port != given_port for _, port in found) or _found_no_host(process.log))
    ]
    waited = [process for process in processes if process not in away and joined(process.log.lines)]
    if not given_port or not waited:
        return []
    if not away and _knocked_beside(waited[0], processes, at, given_port):
        return waited[:1]
    return away


def _knocked_beside(
    waited: Process, processes: Sequence[Process], at: Mapping[int, frozenset[Address]], given_port: int
) -> bool:
    """Whether all the others, one of them on the same node, found nobody at the port that Muster gave."""
    others = [process for process in processes if process is not waited]
    knocked = all(
        _never_arrived(process.log)
        and any(port == given_port and _HERE.match(host) for host, port in at[process.rank.rank])
        for process in others
    )
    return bool(others) and knocked and any(process.rank.node == waited.rank.node for process in others)


def _addresses(log: Log, most: int) -> frozenset[Address]:
    found = set()
    for line in log.lines[:most]:
        if _SOCKET in line or len(line) > 600:
            continue
        for match in _ADDRESS.finditer(line):
            named = match["host"] or match["to"]
            if not _SOURCE_FILE.search(named):
                host = "127.0.0.1" if named == "localhost" else named
                found.add((host, int(match["port"] or match["at"])))
    return frozenset(found)


def _never_arrived(log: Log) -> bool:
    return any(_UNREACHED.search(line) for line in log.lines[:_MOST_LINES])


def _found_no_host(log: Log) -> bool:
    return any(_NO_SUCH_HOST.search(line) for line in log.lines[:_MOST_LINES])


def _all_said(process: Process) -> bool:
    """It had found the store: it waited for a key that another was to set."""
    return any("keys: " in raised.line for raised in process.log.raised)


def told_otherwise(processes: Sequence[Process]) -> Process | None:
    """The only one that printed something else about itself than all the others, which printed the same."""
    if len(processes) < 3:
        return None
    said = {process.rank.rank: _said(process) for process in processes}
    raw = Counter(line for lines in said.values() for line in {line for line, _ in lines})
    masked = Counter(line for lines in said.values() for line in {line for _, line in lines})
    of_others = {line for counted in (raw, masked) for line, count in counted.items() if count == len(processes) - 1}
    if not of_others:
        return None
    for process in processes:
        mine = said[process.rank.rank]
        alone = any(raw[line] == 1 and masked[own] == 1 for line, own in mine)
        if alone and of_others - {line for pair in mine for line in pair}:
            return process
    return None


def own_words(process: Process, others: Sequence[Process]) -> str:
    """The lines that a process printed and none of the others did."""
    theirs = {line for other in others if other is not process for pair in _said(other) for line in pair}
    return next((line.strip()[:200] for line, own in _said(process) if line not in theirs and own not in theirs), "")


_Line = tuple[str, str]
"""A line as it was printed, and without what is a rank's own in it."""


def _said(process: Process) -> list[_Line]:
    """The first words of a process, also without its number, its node and the time."""
    return [(_TIME.sub("", line), _masked(line, process)) for line in _first_words(process)]


def _first_words(process: Process) -> list[str]:
    end = process.log.raised[0].begin if process.log.raised else len(process.log.lines)
    return process.log.first_words(_FIRST_WORDS, min(end, _MOST_LINES))


def _masked(line: str, process: Process) -> str:
    own = {str(process.rank.rank), *_NUMBER.findall(process.rank.node or "")}
    line = _TIME.sub("", line)
    return _NUMBER.sub(lambda match: "#" if match[0] in own or len(match[0]) > 5 else match[0], line)


def _was_looking(first: Cause) -> bool:
    """Whether nobody was where it looked, or nobody came to where it listened, before it had done anything else."""
    own = [frame for frame in first.raised.frames if not frame.of_library] if first.raised else []
    listened = bool(own) and ".accept()" in own[-1].source and bool(_LATE.search(first.headline))
    log = first.process.log
    began = log.raised[0].begin if log.raised else len(log.lines)
    if listened:
        return not log.words_between(0, began)
    return bool(_NOBODY.search(first.headline)) and not any(PROGRESS.search(line) for line in log.lines[:began])


def code_of_waiting(first: Cause) -> str:
    """Whether ranks that lost each other were still looking for each other: by words and by names of functions."""
    if first.code in ("rendezvous", "collective"):
        return first.code
    if _was_looking(first):
        return "rendezvous"
    calls = [frame.function for frame in first.raised.frames if not frame.of_library][-2:] if first.raised else []
    met = _MEETING_WORDS.search(first.headline) or any(map(_MEETING_CALL.search, calls))
    return "rendezvous" if met else "collective"
