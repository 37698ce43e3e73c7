"""Finds the Python that an environment is built on. Standard library only."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 8)
_known: dict[str, tuple[int, ...]] = {}
"""What interpreters reported, so that each is started only once; a missing one may be installed later."""
_CLAUSE = re.compile(r"(==|~=|>=|<=|!=|>|<|=)?\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")


@dataclass(frozen=True)
class Interpreter:
    """A Python that starts."""

    path: str
    version: tuple[int, ...]

    @property
    def minor(self) -> str:
        return ".".join(map(str, self.version[:2]))

    @property
    def text(self) -> str:
        return ".".join(map(str, self.version))


class NoInterpreter(Exception):
    """None is suitable; the message lists those that exist."""


def find(wanted: str | None, own: str) -> Interpreter:
    """The interpreter for a recipe's `python`; `own` is the job's, used if it is suitable."""
    if wanted is not None and is_path(wanted):
        found = look_at(wanted)
        if found is None:
            raise NoInterpreter(f"there is no Python interpreter {wanted} on this node, or it does not start")
        return found
    mine = look_at(own)
    if mine is not None and fits(mine.version, wanted or ""):
        return mine
    if wanted is None:
        raise NoInterpreter(f"the Python interpreter {own} does not start on this node")
    others = [item for path in _candidates() if (item := look_at(path)) and item.version >= OLDEST]
    fitting = [item for item in others if fits(item.version, wanted)]
    if fitting:
        return max(fitting, key=lambda item: item.version)
    here = ", ".join(sorted({item.text for item in [*others, *([mine] if mine else [])]})) or "none"
    raise NoInterpreter(f"Python {wanted} is not on this node; there is: {here}")


def versions_here(own: str) -> tuple[tuple[int, ...], ...]:
    """The versions of every Python that an environment could be built on here."""
    found = [item for path in (own, *_candidates()) if (item := look_at(path)) is not None]
    return tuple(sorted({item.version for item in found if item.version >= OLDEST}))


def host_platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


def is_path(python: str) -> bool:
    return "/" in python


def clauses(wanted: str) -> list[tuple[str, tuple[int, ...]]]:
    """`>=3.8,<3.12` or `3.11` or `3.11.*` as comparisons; ValueError for anything else."""
    found = []
    for part in wanted.split(","):
        if not part.strip():
            continue
        match = _CLAUSE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{wanted!r} is not a version of Python")
        sign = match[1] or "="
        found.append(("=" if match[3] or sign == "==" else sign, tuple(map(int, match[2].split(".")))))
    return found


def fits(version: tuple[int, ...], wanted: str) -> bool:
    """Whether a version is wanted: `3.11` means any 3.11."""
    return all(_holds(version, sign, given) for sign, given in clauses(wanted))


def look_at(path: str) -> Interpreter | None:
    """The interpreter at a path; None if there is none that starts."""
    if path == sys.executable:
        return Interpreter(path, tuple(sys.version_info[:3]))
    version = _of_virtual_environment(Path(path))
    if version is None and os.access(path, os.X_OK):
        version = _known.get(path) or _asked(path)
    if version is None:
        return None
    _known[path] = version
    return Interpreter(path, version)


def _holds(version: tuple[int, ...], sign: str, given: tuple[int, ...]) -> bool:
    same = version[: len(given)] == given
    if sign == "=":
        return same
    if sign == "!=":
        return not same
    if sign == "~=":
        return version >= given and version[: len(given) - 1] == given[:-1]
    if sign == ">=":
        return version >= given
    if sign == "<=":
        return version <= given or same
    return version > given and not same if sign == ">" else version < given


def _candidates() -> Iterator[str]:
    """Interpreters by their usual folders; version managers' own folders first, their shims never."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local" / "share" / "uv" / "python"))
    for folder in (pyenv, uv):
        yield from sorted(str(path) for path in folder.glob("*3*/bin/python3") if path.exists())
    folders = [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    for directory in dict.fromkeys(folders):
        if directory and Path(directory).name != "shims":
            names = {path.name for path in Path(directory).glob("python3*")}
            for name in sorted(names):
                if re.fullmatch(r"python3(\.[0-9]+)?", name) and (found := shutil.which(name, path=directory)):
                    yield found


def _of_virtual_environment(python: Path) -> tuple[int, ...] | None:
    """Known without starting it: every virtual environment records the Python that it was made from."""
    if not python.exists():
        return None
    try:
        text = (python.parent.parent / "pyvenv.cfg").read_text()
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
    return tuple(map(int, match.groups())) if match else None


def _asked(path: str) -> tuple[int, ...] | None:
    command = [path, "-I", "-S", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return tuple(map(int, done.stdout.strip().split(".")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
