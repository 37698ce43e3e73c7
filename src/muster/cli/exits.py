"""The one place where an error becomes text and an exit code.

| code | meaning |
|---|---|
| 0 | done; for a run: Completed |
| 1 | the run Failed, or a check did |
| 2 | bad input: an option, a job file, a run that does not exist |
| 3 | no server answers, it speaks another version, or its disk is full |
| 70 | a fault in Muster itself; a report was written |
| 124 | `muster wait --timeout` passed |
| 130 | the run was Canceled, or Ctrl-C |
| 141 | the reader of the output went away |
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer

from muster.cli.console import Paint, patience, say
from muster.client import server_process
from muster.client.team.trust import Untrusted, trust
from muster.client.workspace import find_workspace
from muster.errors import DiskFull, MusterError, NotFound, ProtocolMismatch, RunFailed, ServerUnavailable, UserError
from muster.wire import states
from muster.wire.text import printable

EXIT_FAILED = 1
EXIT_USER = 2
EXIT_SERVER = 3
EXIT_FAULT = 70
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

EXIT_CODES = {states.COMPLETED: 0, states.FAILED: EXIT_FAILED, states.CANCELED: EXIT_INTERRUPTED}
"""Exit codes of a command that followed a run to its end."""

P = ParamSpec("P")
R = TypeVar("R")


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """A command that ends in an exit code, whatever happens inside."""

    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> R:
        server_process.meanwhile = patience
        try:
            result = _trusting(lambda: function(*args, **kwargs))
            sys.stdout.flush()
            return result
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise typer.Exit(report(error)) from None

    return command


def _trusting(work: Callable[[], R]) -> R:
    """Run the command; where a workspace is not trusted yet, ask on a terminal once and run it again."""
    try:
        return work()
    except Untrusted as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        say(f"{printable(error.message)}\n  {printable(error.hint)}")
        if not typer.confirm("Trust it?", default=False, err=True):
            raise typer.Exit(EXIT_USER) from None
        trust(error.root, error.workspace_id)
        return work()


def report(error: BaseException) -> int:
    """Print what happened; returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        say("\ninterrupted")
        return EXIT_INTERRUPTED
    if reader_is_gone(error):
        silence_output()
        return EXIT_PIPE
    if isinstance(error, MusterError):
        code = _exit_code(error)
        _print_error(error.message, f"{error.hint}\n{_looked_in()}" if _is_about_a_run(error) else error.hint)
    elif isinstance(error, OSError) and error.filename is not None:
        code = EXIT_USER
        _print_error(f"{error.filename}: {error.strerror}")
    else:
        code = EXIT_FAULT
        _print_fault(error)
    if os.environ.get("MUSTER_DEBUG"):
        say("".join(traceback.format_exception(error)))
    return code


def reader_is_gone(error: BaseException) -> bool:
    """Whether nobody reads the output any more: a closed pipe, or a closed terminal."""
    return isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.filename is None and error.errno in (errno.EPIPE, errno.EIO)
    )


def silence_output() -> None:
    """Discard further output, or the interpreter complains when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _exit_code(error: MusterError) -> int:
    if isinstance(error, UserError):
        return EXIT_USER
    if isinstance(error, (ServerUnavailable, ProtocolMismatch, DiskFull)):
        return EXIT_SERVER
    return EXIT_FAILED if isinstance(error, RunFailed) else EXIT_FAULT


def _is_about_a_run(error: MusterError) -> bool:
    return isinstance(error, NotFound) and error.message.startswith("there is no run")


def _looked_in() -> str:
    """The workspace in which a run was looked for, since it may be in another one."""
    try:
        ref = find_workspace()
    except MusterError:
        return ""
    where = ref.server.url if ref.server else str(ref.root.parent)
    return f"Looked in the workspace {ref.name}, {where}; `muster workspaces` lists others, --workspace chooses one."


def _print_error(message: str, hint: str = "") -> None:
    paint = Paint.of(sys.stderr)
    say(f"{paint('error:', 'red', 'bold')} {message}")
    for line in hint.splitlines():
        say(f"  {line}")


def _print_fault(error: BaseException) -> None:
    summary = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    where = _keep_traceback(error)
    _print_error(
        f"Muster itself failed: {summary}",
        (f"The details are in {where}\n" if where else "") + "Please report it. Runs that were started go on.",
    )


def _keep_traceback(error: BaseException) -> Path | None:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"
    path = folder / f"fault-{os.getpid()}.txt"
    text = f"muster {' '.join(sys.argv[1:2])}\n\n{''.join(traceback.format_exception(error))}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError:
        return None
    return path
