"""The verdict on logs of a failure that did not happen under Muster: `explain`."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from muster.cli.console import Paint
from muster.cli.options import Json, argument, option, print_json
from muster.cli.views.run import explanation
from muster.diagnosis.foreign import LogFile, explained
from muster.errors import UserError
from muster.wire.verdicts import JobFacts

_MOST_BYTES = 64 << 20
_SAMPLE_CHARS = 1 << 16
_NO_TEXT = re.compile("[\ufffd\x01-\x06\x0e-\x1a]")
_STDIN = "-"
_TAIL_CHARS = 4096
_MOST_SCRIPTS = 2000
_SOUGHT = re.compile(r"can't open file '([^'\n]{1,500})'")
_ELSEWHERE = {
    "timeout": "Ask for more time, or go on from a checkpoint.",
    "cancelled": "",
    "preempted": "Submit it again; with a checkpoint it goes on from there.",
    "platform": "",
}
"""Replacements of advice that mentions Muster, for failures without it."""


def explain(
    files: Annotated[
        list[str], argument("FILE", "Logs of one failure, one for each rank or all in one; - reads a pipe.")
    ],
    exit_code: Annotated[int | None, option("N", "The exit code, where it is known.", "--exit-code")] = None,
    as_json: Json = False,
) -> None:
    """Explain a failure from its logs, even one that did not happen under Muster.

    \b
    Examples:
      muster explain slurm-4711.out
      muster explain rank_0.log rank_1.log --json
    """
    logs = [_read(name, exit_code) for name in files]
    made = explained(logs, JobFacts(files=_nearby_scripts(files, logs)))
    made = replace(made, next=_ELSEWHERE.get(made.code, made.next))
    if as_json:
        print_json(made)
    else:
        print("\n".join(explanation(made, Paint.of(sys.stdout))).strip("\n"))


def _read(name: str, exit_code: int | None) -> LogFile:
    """A log, or the end of a very long one."""
    signal = exit_code - 128 if exit_code is not None and exit_code > 128 else None
    ended = {"exit_code": None if signal else exit_code, "signal": signal}
    called = "standard input" if name == _STDIN else name
    try:
        data = _end_of(name)
    except OSError as error:
        raise UserError(
            f"{called} cannot be read: {error.strerror}",
            "Give the files that the failed job printed to. Of a run, `muster show RUN` has the verdict.",
        ) from None
    # A log that was truncated while being written begins with zeros.
    text = data.replace(b"\0", b"").decode(errors="replace")
    if not text.strip():
        raise UserError(f"{called} is empty", "Give the files that the failed job printed to.")
    last = text[-_SAMPLE_CHARS:]
    if len(_NO_TEXT.findall(last)) > len(last) / 10:
        raise UserError(f"{called} is not a log: it holds no text", "Give the files that the failed job printed to.")
    return LogFile(Path(called).name, text, **ended)


def _end_of(name: str) -> bytes:
    if name == _STDIN:
        return sys.stdin.buffer.read()[-_MOST_BYTES:]
    with Path(name).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
        return file.read()


def _nearby_scripts(names: list[str], logs: list[LogFile]) -> tuple[str, ...]:
    """Scripts in the current folder, and where a script was looked for, that advice may mention."""
    given = {Path(name).resolve() for name in names}
    sought = {Path(path).parent for log in logs for path in _SOUGHT.findall(log.text[-_TAIL_CHARS:])}
    found = {path.name for folder in (Path.cwd(), *sought) for path in _scripts(folder) if path.resolve() not in given}
    return tuple(sorted(found))


def _scripts(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.py"))[:_MOST_SCRIPTS]
    except OSError:
        return []
