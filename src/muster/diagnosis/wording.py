"""Sentences of verdicts: which rank, and what happened to it."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping

from muster.diagnosis.causes import Cause
from muster.diagnosis.words import GENERIC, sounds_like_failure
from muster.wire.verdicts import RankEvidence

FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP)

_FEW = 3
_MOST_CHARS = 300


def where(rank: RankEvidence) -> str:
    who = "mpirun" if rank.role == "launcher" else f"rank {rank.rank}"
    return f"{who} on {rank.node}" if rank.node else who


def what(cause: Cause) -> str:
    """What happened, to follow "rank 3 on node-0"."""
    rank, said = cause.rank, cause.headline
    if cause.code == "signal" and cause.signal is not None:
        native = f": {said}" if said and cause.signal not in FROM_OUTSIDE else ""
        after = "" if native else _last_line(cause)
        return f" was ended by {_signal_name(cause.signal)}{_CRASHES.get(cause.signal, '')}{native}{after}"
    if cause.code == "exit_code":
        if not rank.failed and cause.signal is None:
            # Known by its own words, or by those of another rank.
            own = said in map(str.strip, cause.process.log.lines)
            return f": {said}" if own else f" is meant by another rank: {said}"
        how = f" exited with code {rank.exit_code}"
        if cause.signal is not None:
            how = f" ended by itself, and by {_signal_name(cause.signal)} while it was leaving"
        return how + (f": {said}{_very_last(cause)}" if sounds_like_failure(said) else _last_lines(cause))
    if cause.code == "collective" and cause.signal is not None and cause.raised is None and not cause.finding:
        how = f" left while the others still needed it, and was ended by {_signal_name(cause.signal)}"
        return how + _last_lines(cause)
    if cause.code == "platform" and rank.lost_with:
        return f" was ended because the {rank.lost_with} that kept it was killed"
    if cause.code == "platform":
        return f" {said}"
    if cause.code == "launcher_missing" and rank.refusal:
        return f" could not be started: {rank.refusal}"
    if cause.code == "host_oom" and cause.signal == signals.SIGKILL:
        return " was killed because the node ran out of memory"
    return f": {said}" if said else " failed"


_CRASHES: Mapping[int, str] = {
    signals.SIGSEGV: " (segmentation fault)",
    signals.SIGBUS: " (bus error)",
    signals.SIGFPE: " (floating point exception)",
    signals.SIGILL: " (illegal instruction)",
}


def _last_lines(cause: Cause) -> str:
    """The end of a log in which nothing sounds like a failure: a few lines, because any of them may explain it."""
    words = [line.strip() for line in cause.process.log.last_words(_FEW)]
    told = cause.headline.strip()
    if not told:
        return ""
    if told not in words or len(words) < 2 or sum(map(len, words)) > _MOST_CHARS:
        return f"; its last line: {told}"
    return f"; its last lines: {' / '.join(words)}"


def _very_last(cause: Cause) -> str:
    """What came after the line that sounds like a failure, where that does not say it all (again-stop-flag)."""
    words = [line.strip() for line in cause.process.log.last_words(_FEW)]
    after = words[words.index(cause.headline) + 1 :] if cause.headline in words else []
    return f"; then: {after[-1][:160]}" if after and not GENERIC.search(after[-1]) else ""


def _last_line(cause: Cause) -> str:
    """How far a process came that was ended without any message."""
    words = cause.process.log.last_words(1)
    return f"; its last line: {words[0].strip()[:160]}" if words else ""


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
