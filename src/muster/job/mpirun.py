"""Parses an existing `mpirun` line: the number of processes, their variables, the program. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")
_COUNT = ("-np", "-n", "--np", "--n", "-c")
_PER_NODE = ("-ppn", "-perhost", "-npernode", "--npernode", "-N")
# Options that take one value; those with two values are below.
_WITH_VALUE = (
    "--hostfile",
    "-hostfile",
    "-machinefile",
    "--machinefile",
    "-f",
    "-H",
    "--host",
    "-host",
    "-hosts",
    "-bind-to",
    "--bind-to",
    "-map-by",
    "--map-by",
    "-rank-by",
    "--rank-by",
    "-wdir",
    "--wdir",
    "-prefix",
    "--prefix",
    "-launcher",
    "-iface",
    "-genvlist",
)
_TWO_VALUES = ("-mca", "--mca", "-gmca", "--prtemca", "--pmixmca")
_ENV_PAIR = ("-env", "-genv")
_WORD = re.compile(r"""(?:[^\s'"\\;&|]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class MpiLine:
    """A parsed mpirun line."""

    program: str
    """The command of every rank, as text for a shell."""
    before: str = ""
    """The text before mpirun."""
    processes: int | None = None
    per_node: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of the ranks, as text for a shell."""
    left_out: tuple[str, ...] = ()
    """Options that Muster decides itself."""


def read_mpirun(text: str) -> MpiLine | None:
    """The only mpirun line of a command; None if there is none, or it cannot be parsed."""
    before, line = _split(text)
    if line is None:
        return None
    words = [(match.group(), match.start()) for match in _WORD.finditer(line)]
    if "".join(word for word, _ in words) != re.sub(r"\s", "", line) and re.search(r"[;&|]", _unquoted(line)):
        return None
    return _Reader(line, words[1:], before).read()


class _Reader:
    """One pass over the options."""

    def __init__(self, line: str, words: list[tuple[str, int]], before: str) -> None:
        self._line = line
        self._words = words
        self._before = before
        self._processes: int | None = None
        self._per_node: int | None = None
        self._variables: dict[str, str] = {}
        self._left_out: list[str] = []

    def read(self) -> MpiLine | None:
        while self._words:
            word, start = self._words[0]
            if not word.startswith("-"):
                return self._whole(self._line[start:].strip())
            self._words.pop(0)
            if not self._option(word):
                return None
        return None

    def _option(self, word: str) -> bool:
        if word in _COUNT or word in _PER_NODE:
            value = self._value()
            if not value.isdigit():
                return False
            if word in _COUNT:
                self._processes = int(value)
            else:
                self._per_node = int(value)
        elif word == "-x":
            name, equals, value = self._value().partition("=")
            if equals:
                self._variables[name] = value
        elif word in _ENV_PAIR:
            self._env_pair()
        elif word in _TWO_VALUES:
            self._left_out.append(f"{word} {self._value()} {self._value()}")
        elif word in _WITH_VALUE:
            value = self._value()
            if "host" not in word and word not in ("-H", "-f", "-machinefile", "--machinefile"):
                self._left_out.append(f"{word} {value}")
        elif not fnmatchcase(word, "*allow-run-as-root") and word not in ("-genvall", "--oversubscribe", "-tag-output"):
            self._left_out.append(word)
        return True

    def _env_pair(self) -> None:
        name = self._value()
        if _ASSIGNMENT.match(name):
            name, _, value = name.partition("=")
            self._variables[name] = value
        else:
            self._variables[name] = self._value()

    def _value(self) -> str:
        return self._words.pop(0)[0] if self._words else ""

    def _whole(self, program: str) -> MpiLine:
        while match := re.match(r"([A-Za-z_][A-Za-z0-9_]*)=(\S*)\s+", program):
            self._variables[match[1]] = match[2]
            program = program[match.end() :]
        return MpiLine(program, self._before, self._processes, self._per_node, self._variables, tuple(self._left_out))


def _split(text: str) -> tuple[str, str | None]:
    """The text before the mpirun line, and the text from that line on."""
    pattern = re.compile(rf"(?:^|[;&|]\s*|\n\s*)((?:\S*/)?(?:{'|'.join(map(re.escape, LAUNCHERS))})\s)")
    found = list(pattern.finditer(text))
    if len(found) != 1:
        return text, None
    start = found[0].start(1)
    return text[:start].strip().rstrip(";&").strip(), text[start:].strip()


def _unquoted(line: str) -> str:
    return re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "", line)
