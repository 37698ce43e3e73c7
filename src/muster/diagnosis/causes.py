"""Why one process ended: its exit and its last words decide, by the rules. Earlier errors are kept as such."""

from __future__ import annotations

import re
import signal as signals
from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile

from muster.diagnosis import arguments
from muster.diagnosis.launchers import Process
from muster.diagnosis.log import EXCHANGES, MEETING, Log, is_record
from muster.diagnosis.raised import Frame, Raised
from muster.diagnosis.rules import Finding, find, named
from muster.diagnosis.words import FAILURE, GENERIC, HANDLED, PROGRESS, sounds_like_failure, telling_line, with_its_text
from muster.wire.verdicts import RankEvidence

# How much a cause explains; the smaller number is the earlier cause, whatever the clocks say.
DEFINITE = 0
VAGUE = 1
PASSED_ON = 2
RENDEZVOUS = 3
COLLECTIVE = 4

# Sent by people and by other process managers, seldom because of a fault in the program.
_POLITE = (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGUSR1, signals.SIGUSR2)
# A program that aborts says why; one that is killed or crashes does not.
_SPEAKING = (signals.SIGABRT, signals.SIGBUS)
_CRASHES = {
    *(signals.SIGSEGV, signals.SIGKILL, signals.SIGILL, signals.SIGFPE, signals.SIGTRAP, *_SPEAKING, *_POLITE),
    *(signals.SIGPIPE, signals.SIGXCPU, signals.SIGXFSZ, signals.SIGUSR1, signals.SIGUSR2, signals.SIGQUIT),
}

_NO_INTERPRETER = "bad interpreter|required file not found"
_NOT_FOUND = re.compile(f"command not found|: not found|No such file or directory|{_NO_INTERPRETER}")
_NOT_ALLOWED = re.compile(f"Permission denied|cannot execute|Exec format error|Is a directory|{_NO_INTERPRETER}")
_NATIVE = re.compile(
    r"double free or corruption|(?:free|malloc|realloc|munmap_chunk)\(\): |corrupted (?:size"
    r"|double)|stack smashing detected"
    r"|buffer overflow detected|Assertion [`'].{1,300}' failed|ERROR: \w+Sanitizer: |Fatal "
    r"Python error: |Check failed: |runtime error: "
    r"|Fortran runtime error|Illegal instruction|^FATAL ERROR: |: line \d{1,6}: +\d+ (?:Segmentation fault|Bus error) "
)
# The daemon itself died, or the network to its node failed; mpirun's exit code says neither.
_LOST_DAEMON = re.compile(
    r"(?:ORTE|PRTE) has lost communication with a remote daemon[^-]{0,300}?Remote daemon\s*: \S+ on node (\S+)"
)
_MERE_WARNING = re.compile(r"(?:^|[\s\[|:])(?:WARNING|WARN|INFO|DEBUG)\b")
_LOUD = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|^(?i:fatal|error)\b")
_EXCEPTION_LINE = re.compile(
    r"^\W{0,5}(?:(?i:fatal|error|critical|uncaught|unhandled|exception)\W{1,4}){0,2}"
    r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): \S"
)
NAMES_THE_ABSENT = re.compile(r"Ranks? (\d[\d, ]{0,300}) failed to pass monitoredBarrier")
_NOTICED = re.compile(r"(?i)\b(?:died|dead|gone|crashed|not alive)\b")
"""How a program reports a thread or process of its own that failed, before it leaves for that reason."""
_WAITED_IN_VAIN = re.compile(
    r"(?:^|\.)(?:Empty|TimeoutError|BrokenProcessPool|BrokenBarrierError|CancelledError"
    r"|BrokenThreadPool|CalledProcessError|EOFError)\b|process ended with"
    r"|exited unexpectedly|(?:pin memory )?thread exited|is not alive|worker .{0,40}(?:died|failed|exited)"
)
_PYTHON = re.compile(r"python|torchrun|accelerate|deepspeed|horovodrun")
_AT_EXIT = "terminate called without an active exception"
_STOPPED = re.compile(r"SignalException|^(?:KeyboardInterrupt|SystemExit)\b")
_TOLD = re.compile(r"(?i)\bsig(?:term|int|nal)|terminat|preempt|interrupt|shut(?:ting)? ?down|\bstop")
_GOT_SIGNAL = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
_TIMED_OUT = 124  # The code of `timeout` when it had to end a program.
_STARTS = "_execute_child"  # The function of Python's `subprocess` that starts a program.
_NOT_STARTED = re.compile(r"(?:FileNotFoundError|PermissionError|NotADirectoryError|OSError: \[Errno 8\])")
_LAUNCHER = re.compile(
    r"torch/distributed/(?:run|launch|launcher|elastic)|accelerate/(?:commands|utils/launch)|deepspeed/launcher"
    r"|horovod/runner|colossalai/cli|composer/cli|lightning/fabric/cli|/mpirun|/debugpy/"
)
_COMPLAINT_WORDS = 12
_FEW = 8
_LOST_TIME = re.compile(
    r"(?i)time(?:d[ -]?)?-?out|\bwait|deadline|connect|\bpeers?\b|unreachable|not (?:joined|ready|respond)"
)
_NATIVE_FORMS = ("c++",)
_LACKS = ("environment", "launcher_missing", "disk_full", "host_oom", "gpu_oom", "gpu_fault", "shm_too_small")


@dataclass(frozen=True)
class Cause:
    """Why one process ended."""

    code: str
    process: Process
    signal: int | None = None
    headline: str = ""
    """The most telling line."""
    lines: tuple[str, ...] = ()
    """The traceback, or the last lines."""
    weight: int = DEFINITE
    raised: Raised | None = None
    finding: Finding | None = None
    sure: bool = True
    """Nothing suggests another cause."""
    earlier: Raised | None = None
    """An exception that was printed before and did not end the process."""

    @property
    def rank(self) -> RankEvidence:
        return self.process.rank

    @property
    def order(self) -> tuple[int, bool, bool, float, int]:
        """The first cause has the smallest; a launcher only passes on its ranks' failures."""
        mute = self.code == "exit_code" and not sounds_like_failure(self.headline)
        # A rank that fails says so, then others miss it; a slow exit may come after theirs.
        at = self.rank.ended_at or 0.0
        said_at = min(self.rank.said_at, at) if self.rank.said_at and self.raised is not None else at
        # The others only lost the rank that counted them.
        said_at = 0.0 if NAMES_THE_ABSENT.search(self.headline) else said_at
        return (self.weight, self.rank.role == "launcher", mute, said_at, self.rank.rank)


def cause_of(process: Process) -> Cause:
    """Why a process that failed did so."""
    rank, log = process.rank, process.log
    if rank.refusal:
        return Cause("launcher_missing", process, headline=rank.refusal, lines=log.closing(None))
    if rank.lost_with:
        return Cause("platform", process, headline=_last_line(log), lines=log.closing(None))
    lost = _LOST_DAEMON.search(rank.tail) if rank.role == "launcher" and rank.signal is None else None
    if lost:
        return Cause("platform", process, None, f"lost contact with its daemon on {lost[1]}", log.closing(None))
    number = _signal_of(rank)
    if number == signals.SIGKILL and rank.oom_killed:
        return Cause("host_oom", process, number, _last_line(log), log.closing(None))
    final = _final(log, rank, process.shared)
    if number is not None:
        return _by_signal(process, number, final)
    if final is not None and (told := _GOT_SIGNAL.search(final.line)):
        return _told_to_end(process, int(told[1]))
    if final is not None and _is_launchers(final):
        return Cause("launcher_missing", process, None, _shortened(final.line), log.closing(final), raised=final)
    if final is not None:
        return by_exception(process, final)
    return _by_words(process)


def _is_launchers(final: Raised) -> bool:
    """Whether a launcher raised it because it could not start its program."""
    if not final.frames or final.frames[-1].function != _STARTS or not _NOT_STARTED.match(final.line):
        return False
    caller = next((frame for frame in reversed(final.frames) if not frame.file.endswith("/subprocess.py")), None)
    return caller is not None and bool(_LAUNCHER.search(caller.file))


def _passes_on(final: Raised) -> bool:
    """Whether a launcher only reports that its program has failed (r-accelerate-script-exits)."""
    return "CalledProcessError" in final.kind and bool(final.frames) and bool(_LAUNCHER.search(final.frames[-1].file))


def _told_to_end(process: Process, number: int) -> Cause:
    """A launcher that reports a signal to itself: from the `timeout` in front of it, or from someone else."""
    lines = process.log.closing(None)
    if process.rank.exit_code == _TIMED_OUT and "timeout " in process.rank.command:
        return Cause("exit_code", process, None, "", lines, VAGUE)
    return Cause("signal", process, number, "", lines, VAGUE)


def last_words(process: Process) -> Cause | None:
    """The exception with which the log of a process stops that Muster itself ended, if there is one."""
    final = _standing_last(process.log)
    if final is None:
        return None
    return by_exception(process, _own_before(process.log, final) or final)


def _own_before(log: Log, final: Raised) -> Raised | None:
    """What a process had raised itself just before it complained of others, whose failure it had caused."""
    if not is_victim(final):
        return None
    for raised in reversed(log.raised):
        if raised.end > final.begin or raised.setting in ("ignored", "logged") or not raised.line:
            continue
        between = log.words_between(raised.end, final.begin)
        if len(between) > _FEW or any(HANDLED.search(line) or PROGRESS.search(line) for line in between):
            return None
        if not is_victim(raised):
            return raised
    return None


def complaint(process: Process) -> Finding | None:
    """A process's words about another rank, anywhere in its log."""
    for raised in reversed(process.log.raised):
        found = find(raised.all_lines, "raised") or _while_with_others(raised)
        if found and found.rule.victim:
            return found
    found = find(process.log.last_words(_COMPLAINT_WORDS), "said")
    return found if found and found.rule.victim else None


def _signal_of(rank: RankEvidence) -> int | None:
    """The signal that ended a process, also where a shell or a launcher passes it on as an exit code."""
    if rank.signal is not None:
        return rank.signal
    passed_on = (rank.exit_code or 0) - 128
    return passed_on if passed_on in _CRASHES else None


def is_victim(raised: Raised) -> bool:
    """Whether an exception complains of another rank."""
    found = find(raised.all_lines, "raised") or _while_with_others(raised)
    return found is not None and found.rule.victim


def is_told_to_stop(raised: Raised) -> bool:
    """Whether an exception only shows how a process was ended."""
    return bool(_STOPPED.search(raised.line))


def _final(log: Log, rank: RankEvidence, shared: bool = False) -> Raised | None:
    """The exception that ended the process, if any; in a shared log, one that complains of no other rank."""
    candidates = [
        raised
        for raised in log.raised
        if raised.line and raised.setting != "ignored" and raised.form not in _NATIVE_FORMS
    ]
    if shared:
        candidates = [raised for raised in candidates if not is_victim(raised)] or candidates
        # An exception that every process printed ended none of them, where one printed something else.
        told = Counter(raised.line for raised in candidates)
        candidates = [raised for raised in candidates if told[raised.line] == 1] or candidates
    if not candidates:
        return None
    if _passes_on(candidates[-1]) and not (candidates := candidates[:-1]):
        return None
    last = candidates[-1]
    if last.setting == "task" and (rank.exit_code not in (None, 1) or sounds_like_failure(telling_line(log))):
        # Nobody waited for the task: it did not end the program.
        return None
    if (last.setting == "main" and _WAITED_IN_VAIN.search(last.line)) or last.setting in ("thread", "process", "task"):
        # It only noticed that something else had failed: a thread, a worker, a child process.
        others = [raised for raised in candidates[:-1] if raised.line and not _WAITED_IN_VAIN.search(raised.line)]
        asides = [raised for raised in others if raised.setting in ("thread", "process", "task")]
        if last.setting == "main" and "CalledProcessError" in last.kind:
            asides = asides or [raised for raised in others if not _was_handled(log, raised, rank, last.begin)]
        if last.setting == "main" and asides:
            return asides[-1]
    return None if _was_handled(log, last, rank) else last


def _was_handled(log: Log, raised: Raised, rank: RankEvidence, until: int | None = None) -> bool:
    """Whether the program went on after an exception that it printed, and ended for another reason."""
    after = log.words_between(raised.end, until)
    before = log.lines[raised.begin - 1] if raised.begin else ""
    if raised.setting == "logged" and after and HANDLED.search(before):
        return True
    # One that ends a Python program ends it with code 1.
    mere = raised.setting == "logged" and rank.exit_code not in (None, 1) and _MERE_WARNING.search(before)
    if mere and after and _LOUD.search(after[-1]):
        return True
    # It logged a failure, then its next steps, and in the end said why it left.
    later = any(map(is_record, log.lines[raised.end :]))
    if raised.setting == "logged" and later and after and FAILURE.search(after[-1]) and not GENERIC.search(after[-1]):
        return True
    if not after or (raised.setting in ("thread", "process") and len(after) <= 2 and _NOTICED.search(after[-1])):
        return False
    if any(HANDLED.search(line) for line in after[:3]):
        # It reported it, worked on, and its last words say why it left.
        worked = any(PROGRESS.search(line) for line in after) and not HANDLED.search(after[-1])
        if FAILURE.search(after[-1]) or (worked and not PROGRESS.search(after[-1])):
            return True
    going_on = _progress(log, raised)
    if rank.exit_code in (None, 1, 2):
        return going_on >= 3 and (
            raised.setting == "logged" or rank.exit_code is None or bool(FAILURE.search(after[-1]))
        )
    # Exceptions end a Python program with code 1: its last words explain any other code.
    said = FAILURE.search(after[-1]) and not GENERIC.search(after[-1])
    # Lines that an exiting program repeats with other numbers are a dump.
    kinds = {re.sub(r"\d+", "#", line) for line in after} if (rank.exit_code or 0) < 128 else after
    return going_on >= 3 or len(kinds) > 5 or (raised.form == "python" and bool(said))


def _standing_last(log: Log) -> Raised | None:
    """The exception after which a process printed nothing of a program that goes on."""
    # What a stop makes a program print comes after its own words.
    spoken = [raised for raised in log.raised if raised.setting != "ignored" and raised.line]
    limit = log.stopped_at
    by_itself = [raised for raised in spoken if limit is None or raised.begin < limit or not _TOLD.search(raised.line)]
    candidates = [raised for raised in by_itself if not _STOPPED.search(raised.line)]
    if not candidates:
        return None
    after = log.words_between(candidates[-1].end, limit if limit and limit > candidates[-1].end else None)
    going_on = _progress(log, candidates[-1])
    handled = any(HANDLED.search(line) for line in after[:3])
    return None if going_on >= 2 or len(after) > 8 or handled else candidates[-1]


def _progress(log: Log, raised: Raised) -> int:
    """How many lines after an exception show a program that goes on."""
    later = (line for line in log.lines[raised.end :] if not line.startswith((" ", "\t", "wandb")))
    return sum(bool(PROGRESS.search(line)) for line in later)


def _by_signal(process: Process, number: int, final: Raised | None) -> Cause:
    rank, log = process.rank, process.log
    earlier = log.raised[-1] if log.raised else None
    if number in _POLITE or number == signals.SIGKILL:
        weight = VAGUE if number in _POLITE else DEFINITE
        if final is not None and rank.signal is None and final.setting == "main" and not _STOPPED.search(final.line):
            return by_exception(process, final)
        return Cause("signal", process, number, _last_line(log), log.closing(None), weight, earlier=earlier)
    # A program that has failed may still crash during cleanup.
    clean = final is not None and final.setting != "logged" and not _spoken_after(log, final)
    if final is not None and clean:
        return by_exception(process, final)
    native = _native_line(log)
    if number == signals.SIGABRT and native == _AT_EXIT and _PYTHON.search(rank.command):
        # A library's threads were still running when the interpreter had finished: it was leaving by itself.
        return Cause(
            "exit_code", process, number, telling_line(log.without(_AT_EXIT)), log.closing(None), VAGUE, sure=False
        )
    found = find([native], "said") if native else None
    if number in _SPEAKING and found is None:
        found = find([line for raised in log.raised if raised.form == "c++" for line in raised.all_lines], "raised")
        found = found or find(log.last_words(8), "said")
    if found is not None and found.rule.victim and final is not None and not is_victim(final):
        # It had failed by itself; it printed its words about the others while leaving.
        return by_exception(process, final)
    if found is not None and number in _SPEAKING and found.rule.code != "exception":
        return _found(process, found, number, native or found.line)
    lines = log.from_line(native) if native else log.closing(None)
    return Cause("signal", process, number, native, lines, earlier=final)


def _spoken_after(log: Log, raised: Raised) -> bool:
    return bool(log.words_after(raised)) and not any(
        _NATIVE.search(line) or "terminate called" in line for line in log.words_after(raised)
    )


def _native_line(log: Log) -> str:
    """The message of a crashing program or its libraries."""
    spoken = [raised for raised in log.raised if raised.form == "c++"]
    if spoken:
        return spoken[-1].line
    return next((line.strip() for line in reversed(log.lines[-300:]) if _NATIVE.search(line)), "")


def by_exception(process: Process, final: Raised) -> Cause:
    log = process.log
    lines = log.closing(final)
    if (root := _own_root(final)) is not None:
        final = root
    found = find(final.told_lines, "raised") or _while_with_others(final)
    if found is not None and found.rule.code == "collective" and _was_meeting(final):
        found = named("rendezvous", found.line)
    earlier = next((raised for raised in reversed(log.raised) if raised.end <= final.begin and raised.line), None)
    headline = headline_of(final) + _said_by_program(log, final)
    after = log.words_after(final)
    if after and FAILURE.search(after[-1]) and len(after[-1]) < 200:
        headline += f"; then: {after[-1].strip()}"
    made = Cause("exception", process, None, headline, lines, DEFINITE, final, found, not after, earlier)
    if found is None:
        return made
    if found.rule.code not in ("exception", "collective") and found.line not in headline and found.line in final.more:
        # The decisive part belongs in the message.
        made = replace(made, headline=f"{headline}: {_shortened(found.line)}")
    return replace(made, code=found.rule.code, weight=_weight(found))


def _said_by_program(log: Log, final: Raised) -> str:
    """What a program had said that failed below this one, in the line before (r-own-perl-and-python-disagree)."""
    if "CalledProcessError" not in final.kind or final.causes or final.setting != "main" or not final.begin:
        return ""
    said = log.lines[final.begin - 1].strip()
    return f"; before: {_shortened(said)}" if said and not is_record(said) and not PROGRESS.search(said) else ""


def _own_root(raised: Raised) -> Raised | None:
    """What a rank had raised by itself, if it lost the others only while leaving: in a `finally`, in a handler."""
    root = next((cause for cause in raised.causes if cause.line), None)
    if not raised.handling or root is None or is_victim(root) or not is_victim(replace(raised, causes=())):
        return None
    if (raised.frames[-1:] and raised.frames[-1].source.startswith("raise")) or all(f.of_library for f in root.frames):
        # It tried, and gave up (s-ring-neighbour-still-compiling), or a library did that has not connected yet.
        return None
    return replace(root, begin=raised.begin, end=raised.end, setting=raised.setting)


def named_in(process: Process, line: str) -> Cause:
    """An exception that a line only names."""
    found = find([line], "raised")
    made = Cause("exception", process, None, _shortened(line), process.log.closing(None), finding=found, sure=False)
    return replace(made, code=found.rule.code) if found is not None and not found.rule.victim else made


def _while_with_others(raised: Raised) -> Finding | None:
    """An exception that a library raised where ranks meet or exchange, and that speaks of time or connections."""
    inner = _in_library(raised)
    if not inner or not _LOST_TIME.search(raised.line):
        return None
    if _was_meeting(raised):
        return named("rendezvous", raised.line)
    return named("collective", raised.line) if any(EXCHANGES.search(frame.file) for frame in inner) else None


def _was_meeting(raised: Raised) -> bool:
    """Whether it came while a library was bringing ranks together (further-torch-late)."""
    return any(MEETING.match(frame.function) for frame in _in_library(raised))


def _in_library(raised: Raised) -> list[Frame]:
    """The innermost frames, as far as they are a library's."""
    return list(takewhile(lambda frame: frame.of_library, reversed(raised.frames)))


def headline_of(raised: Raised) -> str:
    """An exception in one line: its own, and that of its origin."""
    line = _shortened(raised.line)
    if line.endswith(":") and raised.more:
        # A title, and its subject below: with gRPC the status and its details.
        line = _shortened(f"{line} {', '.join(map(str.strip, raised.more[: 1 + line.endswith('with:')]))}")
    if not raised.causes:
        return line
    if raised.form == "group":
        return f"{line}: " + "; ".join(_shortened(cause.line) for cause in raised.causes[:3])
    root = _shortened(raised.causes[0].line)
    if not root or root in line or _same(root, line):
        return line or root
    if _quotes(raised):
        return f"{root} ({line.rstrip(': ')})"
    if raised.handling:
        return f"{line} (while handling {root})"
    return f"{line} (caused by {root})"


def _quotes(raised: Raised) -> bool:
    """Its message only says that another process failed."""
    return raised.causes[0].setting == "inner"


def _same(first: str, second: str) -> bool:
    return first.rpartition(": ")[2] == second.rpartition(": ")[2]


def _shortened(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:280]} …"


def _found(process: Process, found: Finding, number: int | None, headline: str) -> Cause:
    code, lines = found.rule.code, process.log.closing(None)
    return Cause(code, process, number, _shortened(headline), lines, _weight(found), None, found)


def _weight(found: Finding) -> int:
    if found.rule.victim:
        return RENDEZVOUS if found.rule.code == "rendezvous" else COLLECTIVE
    return VAGUE if found.rule.code == "exit_code" else DEFINITE


def _by_words(process: Process) -> Cause:
    """Without exception or signal: the exit code, and the program's words about it."""
    rank, log = process.rank, process.log
    lines = log.closing(None)
    tail = [line.strip() for line in log.lines[-60:] if line.strip()]
    earlier = log.raised[-1] if log.raised else None
    if told := arguments.rejected(tail, rank):
        return Cause("bad_input", process, None, _shortened(told), lines)
    if rank.exit_code in (126, 127) and not any("shared object" in line for line in tail[-3:]):
        pattern = _NOT_FOUND if rank.exit_code == 127 else _NOT_ALLOWED
        line = next((line for line in reversed(tail) if pattern.search(line)), tail[-1] if tail else "")
        return Cause("launcher_missing", process, None, _shortened(line), lines, sure=bool(pattern.search(line)))
    found = (find(tail[-25:], "said") if _is_report(tail) else None) or find(log.last_words(8), "said")
    found = found or _indented(log)
    found = found or find([raised.line for raised in log.raised[-1:] if raised.form in _NATIVE_FORMS], "raised")
    if found is not None and found.rule.code not in ("exception",):
        return replace(_found(process, found, None, with_its_text(log, found.line)), earlier=earlier)
    native = _native_line(log)
    headline = _shortened(native or telling_line(log))
    lines = log.from_line(native) if native else lines
    weight = COLLECTIVE if found is not None and found.rule.victim else VAGUE
    if rank.exit_code == 1 and _EXCEPTION_LINE.search(headline) and weight == VAGUE:
        made = Cause(
            "exception", process, None, headline, lines, DEFINITE, None, find([headline], "raised"), False, earlier
        )
        return replace(made, code=made.finding.rule.code) if made.finding else made
    return Cause("exit_code", process, None, headline, lines, weight, None, found, bool(headline), earlier)


def _indented(log: Log) -> Finding | None:
    """Indented lines below a title about something that the program or its machine lacks."""
    found = find(log.indented(_FEW), "said")
    return found if found is not None and not found.rule.victim and found.rule.code in _LACKS else None


def _is_report(tail: list[str]) -> bool:
    """A launcher's own page of text, with indented lines."""
    return any(line.startswith("-----") for line in tail[-30:])


def _last_line(log: Log) -> str:
    return next(iter(reversed(log.last_words(1))), "").strip()
