"""Requirement lines as users write them: checked, and split into packages and options. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

# Options that name the sources of packages; others change how pip works, not what is wanted.
_SOURCES = ("--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--no-index", "--trusted-host", "--pre")
_ADDRESS = re.compile(r"(?:[a-z]+\+)?[a-z]+://\S+|/\S+\.(?:whl|tar\.gz|zip)")
_HASHES = re.compile(r"(?:\s+--hash=\S+)+$")
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True)
class Wanted:
    """The packages and options of a list of requirements."""

    requirements: tuple[str, ...]
    options: tuple[str, ...]
    problems: tuple[tuple[int, str], ...]
    """Index of a line and the reason why it is wrong."""


def read(lines: Iterable[str]) -> Wanted:
    """Packages and options of requirement lines; anything else is a problem."""
    requirements, options, problems = [], [], []
    for index, line in enumerate(lines):
        text = _COMMENT.sub("", line).strip()
        if not text:
            continue
        option = re.split(r"[\s=]", text, maxsplit=1)[0]
        if option in _SOURCES:
            options.append(_spaced(text))
        elif text.startswith("-"):
            problems.append((index, _why_not(option, text)))
        elif _ADDRESS.fullmatch(text) or _is_requirement(text):
            requirements.append(text)
        else:
            problems.append((index, _why_none(text)))
    return Wanted(tuple(dict.fromkeys(requirements)), tuple(dict.fromkeys(options)), tuple(problems))


def _is_requirement(text: str) -> bool:
    try:
        Requirement(_HASHES.sub("", text))
    except InvalidRequirement:
        return False
    return True


def _spaced(text: str) -> str:
    """Write `--index-url X` and `--index-url=X` alike."""
    return re.sub(r"^(--[a-z-]+)=", r"\1 ", text)


def _why_none(text: str) -> str:
    if text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip")):
        return (
            f"{text!r}: the nodes have no such file or folder; put it into `code`, and begin the command with "
            f"`pip install ./NAME &&`"
        )
    return f"{text!r} is not a requirement; write one such as numpy, numpy==2.1 or numpy>=2,<3"


def _why_not(option: str, text: str) -> str:
    if option in ("-e", "--editable"):
        return f"{text!r}: the nodes have no such folder; put the code into `code`, or build a wheel and name that"
    if option in ("-r", "--requirement", "-c", "--constraint"):
        return f"{text!r}: that file is not here; give its lines"
    return f"{text!r}: this option of pip cannot be used here; allowed: {', '.join(_SOURCES)}"
