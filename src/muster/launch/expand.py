"""Variables in the elements of a command list, replaced per rank without a shell.

`$NAME` and `${NAME}` become the variable's value, `$$` a dollar; a value is not expanded again, and an element
stays one argument whatever it contains. `${` without a plain name, and `$(`, are shell syntax: they are refused. Any
other dollar (`a$`, `$1`) stays as it is.

Standard library only: the agent imports it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.errors import JobError

_DOLLAR = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<shell>[{(]))"
)


@dataclass(frozen=True)
class Variable:
    """A reference to an environment variable inside an element."""

    name: str


def expand_all(argv: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Each element with its variables replaced."""
    return tuple(expand(element, env) for element in argv)


def expand(element: str, env: Mapping[str, str]) -> str:
    """One element with its variables replaced; JobError names a variable that is not defined."""
    return "".join(part if isinstance(part, str) else _value(part.name, element, env) for part in parse(element))


def protect(text: str) -> str:
    """Text that expands to itself."""
    return text.replace("$", "$$")


def parse(element: str) -> list[str | Variable]:
    """An element as literal text and references, in order."""
    parts: list[str | Variable] = []
    end = 0
    for match in _DOLLAR.finditer(element):
        if match["shell"]:
            raise _shell_syntax(element, match.start())
        parts.append(element[end : match.start()])
        parts.append("$" if match["escaped"] else Variable(match["plain"] or match["braced"]))
        end = match.end()
    parts.append(element[end:])
    return [part for part in parts if part]


def _value(name: str, element: str, env: Mapping[str, str]) -> str:
    if name in env:
        return env[name]
    near = difflib.get_close_matches(name, env, n=3)
    known = f" Defined, and similar: {', '.join(near)}." if near else ""
    raise JobError(
        f"the command uses ${name} in {element!r}, but no variable {name} is defined for this rank",
        f"Set it under environment_variables, or write $${name} for a literal dollar.{known}",
    )


def _shell_syntax(element: str, start: int) -> JobError:
    return JobError(
        f"{element[start : start + 20]!r} in the command's {element!r} is shell syntax, "
        "and a command list runs without a shell",
        "Only $NAME and ${NAME} are replaced. Write the command as one text to run it under bash, "
        "or $$ for a literal dollar.",
    )
