"""Options in front of a command: which are known, which take a value, and what happens to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.errors import JobError
from muster.job.translation.words import value


@dataclass(frozen=True)
class Grammar:
    """The options of one launcher. Names are as typed, with `-` for `_`."""

    launcher: str
    valued: Mapping[str, str] = field(default_factory=dict)
    """Options that take a value, with their names here."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Options without a value."""
    unneeded: Mapping[str, bool] = field(default_factory=dict)
    """Options for what Muster does itself; True: it takes a value."""
    meaningless: Mapping[str, str] = field(default_factory=dict)
    """Options without a counterpart, with an alternative."""
    pairs: frozenset[str] = frozenset()
    """Options that take two values."""


@dataclass
class Parsed:
    """The options in front of the command, and the command."""

    given: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    rest: Sequence[str] = ()

    def number(self, name: str, launcher: str, default: int | None = None) -> int | None:
        """A count; raises JobError if it is not one."""
        text = self.given.get(name)
        if text is None:
            return default
        if not text.isdigit() or not int(text):
            raise JobError(f"{launcher}: {name} {text!r} is no number", "Give a whole number above zero.")
        return int(text)


def parse(words: Sequence[str], grammar: Grammar) -> Parsed:
    """Split the options of a launcher from a command line. Raises JobError for those without a meaning here."""
    parsed = Parsed()
    index = 0
    while index < len(words):
        word = value(words[index])
        if word == "--":
            index += 1
            break
        if not word.startswith("-") or word == "-":
            break
        name, equals, attached = word.partition("=")
        name, attached, equals = _known(name, attached, equals, grammar)
        takes = 2 if name in grammar.pairs else int(name in grammar.valued or grammar.unneeded.get(name, False))
        _refuse(word, name, grammar)
        values = [attached] if equals else [value(item) for item in words[index + 1 : index + 1 + takes]]
        if takes and len(values) < takes:
            raise JobError(f"{grammar.launcher}: {word} has no value", "Give one.")
        _take(parsed, grammar, name, word, values)
        index += 1 + (0 if equals else takes)
    parsed.rest = words[index:]
    if not parsed.rest:
        raise JobError(f"{grammar.launcher} is given no script or program", "Add the script that it should start.")
    return parsed


def _known(name: str, attached: str, equals: str, grammar: Grammar) -> tuple[str, str, str]:
    """The option's name in the grammar's spelling; a short one may have its value attached."""
    spelled = name if len(name) == 2 else name.replace("_", "-")
    every = {*grammar.valued, *grammar.flags, *grammar.unneeded, *grammar.meaningless, *grammar.pairs}
    if spelled not in every and not name.startswith("--") and name[:2] in grammar.valued and len(name) > 2:
        return name[:2], name[2:], "="
    return spelled, attached, equals


def _refuse(word: str, name: str, grammar: Grammar) -> None:
    if name in grammar.meaningless:
        raise JobError(f"{grammar.launcher}: {word} has no meaning here", grammar.meaningless[name])
    if name not in {*grammar.valued, *grammar.flags, *grammar.unneeded, *grammar.pairs}:
        known = sorted(
            {*grammar.valued, *grammar.flags, *grammar.pairs} - {item for item in grammar.valued if len(item) == 2}
        )
        raise JobError(
            f"{grammar.launcher}: {word} is not known to Muster",
            f"Known are {', '.join(known)}. Arguments of the script go after its name; "
            "`docs/launchers.md` shows how a launcher runs unchanged in a job file.",
        )


def _take(parsed: Parsed, grammar: Grammar, name: str, word: str, values: Sequence[str]) -> None:
    if name in grammar.unneeded:
        parsed.left_out.append(word.partition("=")[0])
    elif name in grammar.flags:
        parsed.given[grammar.flags[name]] = "true"
    else:
        key = grammar.valued.get(name, name)
        parsed.given[key] = values[0]
        parsed.repeated.setdefault(key, []).append(" ".join(values))
