"""Stacks of many ranks on one page: ranks with the same stack are grouped. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from muster.wire.tunnels import ProcessStacks, StackFrame, ThreadStack

_OWN = re.compile(r".*/attempts/[^/]+\.\d+/work/")
_LIBRARY = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD = re.compile(r".*/lib/(python\d[\d.]*/)")
_IMPORTING = "<frozen importlib"
_WIDEST = 36


@dataclass(frozen=True)
class Group:
    """Processes with the same stacks in every shown thread."""

    ranks: tuple[int, ...]
    is_child: bool
    """A child of the rank's own process: a data loader's worker, a process that its launcher started."""
    count: int
    threads: tuple[ThreadStack, ...]
    trouble: str


def grouped(processes: Iterable[ProcessStacks], all_threads: bool = False) -> list[Group]:
    """Groups of equal stacks, in the order of their first rank; by each process's main thread, or all threads."""
    found: dict[tuple[object, ...], list[ProcessStacks]] = {}
    seen: set[int] = set()
    for process in sorted(processes, key=lambda item: item.rank):
        is_child = process.rank in seen
        seen.add(process.rank)
        shown = process.threads if all_threads else process.threads[:1]
        places = tuple((thread.name, tuple(_location(frame) for frame in thread.frames)) for thread in shown)
        found.setdefault((is_child, places, process.trouble), []).append(process)
    groups = [
        Group(
            tuple(sorted({process.rank for process in members})),
            bool(key[0]),
            len(members),
            tuple(members[0].threads if all_threads else members[0].threads[:1]),
            members[0].trouble,
        )
        for key, members in found.items()
    ]
    return sorted(groups, key=lambda group: (group.ranks[0], group.is_child))


def page(groups: Sequence[Group]) -> Iterator[str]:
    """The page for people: which ranks, then their stack, the innermost call first."""
    for index, group in enumerate(groups):
        if index:
            yield ""
        yield f"{_who(group)}:"
        if group.trouble:
            yield f"  not known: {group.trouble}"
        for thread in group.threads:
            if len(group.threads) > 1:
                yield f"  thread {thread.name or '?'}"
            indent = "    " if len(group.threads) > 1 else "  "
            width = min(_WIDEST, max((len(frame.function) for frame in _shown(thread.frames)), default=0))
            for frame in _shown(thread.frames):
                yield f"{indent}{frame.function:<{width}}  {short_path(frame.file)}:{frame.line}"
            if not thread.frames:
                yield f"{indent}(outside Python)"


def _shown(frames: Sequence[StackFrame]) -> list[StackFrame]:
    """The calls without the four or five that Python itself makes for each import, unless there are no others."""
    return [frame for frame in frames if not frame.file.startswith(_IMPORTING)] or list(frames)


def ranges(numbers: Sequence[int]) -> str:
    """Such as `0, 2–7, 9`; numbers in order."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(
        str(first) if first == last else f"{first}, {last}" if last == first + 1 else f"{first}–{last}"
        for first, last in parts
    )


def short_path(path: str) -> str:
    """A file's path for people: without the attempt's folder, or that of the environment."""
    for pattern in (_OWN, _LIBRARY):
        if match := pattern.match(path):
            return path[match.end() :]
    if match := _STANDARD.match(path):
        return match[1] + path[match.end() :]
    return path


def _who(group: Group) -> str:
    ranks = f"rank{'s' if len(group.ranks) > 1 else ''} {ranges(group.ranks)}"
    if not group.is_child:
        return ranks
    return f"{group.count} child process{'es' if group.count > 1 else ''} of {ranks}"


def _location(frame: StackFrame) -> tuple[str, str, int]:
    return frame.function, short_path(frame.file), frame.line
