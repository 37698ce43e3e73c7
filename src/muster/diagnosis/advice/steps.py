"""The next step: from the rule that fits, the stack, and what is known about the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.diagnosis.advice import disks, programs, python_errors
from muster.diagnosis.advice.case import Case, own_frame, port_of
from muster.diagnosis.causes import Cause
from muster.diagnosis.table.machines import HAND_MADE_MEETING, LOST_PEER, NO_CUDA, NO_GPU
from muster.diagnosis.waiting import short
from muster.wire.verdicts import JobFacts, code_of

# Codes whose usual advice adds nothing to the message.
_SAYS_NOTHING = (
    "exception",
    "exit_code",
    "bad_input",
    "environment",
    "launcher_missing",
    "collective",
    "rendezvous",
    "data_unavailable",
)


def next_step(cause: Cause, facts: JobFacts) -> str:
    """What the user can do about a cause; empty where the message says it all."""
    case = Case(cause, facts)
    rule = cause.finding.rule.name if cause.finding else ""
    named = _BY_RULE[rule](case) if rule in _BY_RULE else cause.finding.next if cause.finding else ""
    if not named and cause.code in _BY_CODE:
        named = _BY_CODE[cause.code](case)
    general = "" if cause.code in _SAYS_NOTHING else code_of(cause.code).next
    parts = [named or general]
    if cause.code in ("exception", "environment", "host_oom", "port_trouble", "disk_full") and (place := _place(case)):
        parts.append(place)
    if cause.code in ("exception", "environment") and facts.completed:
        parts.append(f"The same code {facts.completed}.")
    return " ".join(part for part in parts if part)


def of_script(cause: Cause, facts: JobFacts) -> bool:
    """Whether a fault that looks like the platform's is the script's own."""
    if cause.code != "port_trouble":
        return False
    port = port_of(cause)
    if not facts.master_port:
        # A single process gets no port: it has chosen its own.
        return True
    return port is not None and port != facts.master_port


def _place(case: Case) -> str:
    """The innermost line of the user's own code."""
    frame = own_frame(case.raised)
    if frame is None:
        return ""
    inside = f", in {frame.function}" if frame.function not in ("", "<module>") else ""
    source = f": `{frame.source[:100]}`" if frame.source and not set(frame.source) <= set("^~ ") else ""
    return f"{short(frame.file)} line {frame.line}{inside}{source}."


_BY_RULE: Mapping[str, Callable[[Case], str]] = {
    "circular import": lambda case: (
        python_errors.shadowed(case) or (case.cause.finding.next if case.cause.finding else "")
    ),
    "module missing": python_errors.module_missing,
    "name missing": lambda case: (
        python_errors.shadowed(case) or (case.cause.finding.next if case.cause.finding else "")
    ),
    NO_CUDA: python_errors.no_gpu,
    NO_GPU: python_errors.no_gpu,
    "mpirun rejects an option": lambda case: (
        programs.bad_input(case) or (case.cause.finding.next if case.cause.finding else "")
    ),
    "port taken": python_errors.port_taken,
    "shapes": python_errors.shapes,
    "requirements": programs.exit_code,
    "data": python_errors.data,
    LOST_PEER: python_errors.exception,
    HAND_MADE_MEETING: python_errors.not_met,
}
_BY_CODE: Mapping[str, Callable[[Case], str]] = {
    "exception": python_errors.exception,
    "environment": python_errors.environment,
    "bad_input": programs.bad_input,
    "launcher_missing": programs.launcher,
    "exit_code": programs.exit_code,
    "signal": programs.signal,
    "host_oom": programs.host_oom,
    "disk_full": disks.full,
}
