"""The resolved versions of an environment, a line each: `NAME==VERSION --hash=sha256:…`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from muster.environments.venvs.recipe import requirement_name

_CONDA = "conda:"
_HASH = re.compile(r"\s+--hash=sha256:([0-9a-f]{64})")
_FRAGMENT = re.compile(r"#sha256=([0-9a-f]{64})")


def plain(line: str) -> str:
    """A line without its hashes."""
    return _FRAGMENT.sub("", _HASH.sub("", line)).strip()


def hashes(line: str) -> frozenset[str]:
    """The permitted archives of a package, by sha256; empty if unknown."""
    return frozenset(_HASH.findall(line) + _FRAGMENT.findall(line))


def same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two builds have the same versions of the same archives, as far as those are known."""
    mine, theirs = _by_version(one), _by_version(other)
    if mine.keys() != theirs.keys():
        return False
    return all(not mine[line] or not theirs[line] or mine[line] & theirs[line] for line in mine)


def with_hashes(lines: Sequence[str], found: Mapping[str, Iterable[str]]) -> list[str]:
    """The lines with the known hashes of their packages, by name; an address keeps its own."""
    return [line + "".join(f" --hash=sha256:{text}" for text in sorted(_of(line, found))) for line in lines]


def conda(lines: Iterable[str]) -> list[str]:
    """conda's part of a lock, in the syntax of its tools."""
    return [line.removeprefix(_CONDA) for line in lines if line.startswith(_CONDA)]


def _of(line: str, found: Mapping[str, Iterable[str]]) -> Iterable[str]:
    return () if " @ " in line or line.startswith(_CONDA) else found.get(requirement_name(line) or "", ())


def _by_version(lines: Sequence[str]) -> dict[str, frozenset[str]]:
    return {plain(line): hashes(line) for line in lines}
