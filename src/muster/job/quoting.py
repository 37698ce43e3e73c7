"""The context of a reference in a bash text, and how a value is quoted in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from muster.job.references import Reference


class Context(Enum):
    """What bash makes of a piece of text."""

    BARE = auto()
    """The text itself, a subshell or `$( … )`."""
    DOUBLE = auto()
    SINGLE = auto()
    ANSI_C = auto()
    """`$'…'`"""
    HEREDOC = auto()
    RAW_HEREDOC = auto()
    """After a quoted delimiter, `<<'EOF'`."""
    COMMENT = auto()
    ARITHMETIC = auto()
    PARAMETER = auto()
    """`${…}`: a value cannot be inserted."""
    BACKTICKS = auto()
    """Neither can it here."""


@dataclass(frozen=True)
class Unquotable:
    """Why a value cannot be inserted safely."""

    reason: str
    hint: str


Item = str | Reference
"""One character, or a reference, which the scanner skips as a whole."""


def contexts(items: Sequence[Item]) -> list[Context | Unquotable]:
    """The context of every reference, in order."""
    scanner = _Scanner(items)
    scanner.run()
    return scanner.found


def quoted(value: str, context: Context, *, force: bool = False) -> str:
    """A value quoted for a context, so that bash reads it unchanged."""
    if context is Context.BARE:
        if _PLAIN.fullmatch(value) and not force:
            return value
        return "'" + value.replace("'", "'\\''") + "'"
    if context is Context.SINGLE:
        return value.replace("'", "'\\''")
    if context is Context.DOUBLE:
        return re.sub(r'([\\"$`])', r"\\\1", value)
    if context is Context.HEREDOC:
        return re.sub(r"([\\$`])", r"\\\1", value)
    if context is Context.ANSI_C:
        return re.sub(r"([\\'])", r"\\\1", value)
    return value


def variable(name: str, context: Context) -> str:
    """A variable written for a context, so that bash reads its value as one word."""
    forms = {
        Context.BARE: '"${%s}"',
        Context.SINGLE: "'\"${%s}\"'",
        Context.ANSI_C: "'\"${%s}\"$'",
    }
    return forms.get(context, "${%s}") % name


# '=' is left out: at the start of a command it would make an assignment; `-a` would be an operator inside `[[ … ]]`.
_PLAIN = re.compile(r"(?!-[A-Za-z])[A-Za-z0-9_@%+:,./-]+")
_BREAKS = " \t\n;&|()<>"

_BACKSLASH = Unquotable("stands right after a backslash", "Remove the backslash.")
_DOLLAR = Unquotable("stands right after a dollar sign", "Put something between, or quote the dollar sign.")
_PARAMETER = Unquotable("stands inside ${…} of bash", "Assign it to a variable first: x=${{inputs.NAME}}")
_BACKTICKS = Unquotable("stands inside backticks", "Use $( … ) in place of backticks.")
_CASE = Unquotable("stands after `case` inside $( … ) in quotes", "Assign it to a variable first: x=${{inputs.NAME}}")
_UNCLOSED = Unquotable("stands after a here-document that is not closed", "Write its delimiter on a separate line.")
_DELIMITER = Unquotable("is the delimiter of a here-document", "Write the delimiter out.")


@dataclass
class _Frame:
    kind: Context
    close: str = ""
    depth: int = 1
    end: int = 0
    """For a here-document: where the line of its delimiter begins."""
    after: int = 0
    """For a here-document: where that line ends."""


@dataclass(frozen=True)
class _Heredoc:
    delimiter: str
    raw: bool
    strip_tabs: bool


class _Scanner:
    """Follows bash's quoting through a text with a stack of frames."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.frames = [_Frame(Context.BARE)]
        self.found: list[Context | Unquotable] = []
        self.pending: list[_Heredoc] = []
        self.bodies: list[_Frame] = []
        self.escaped = -1
        self.lost: Unquotable | None = None
        self.steps: dict[Context, Callable[[int, Item], int]] = {
            Context.BARE: self._bare,
            Context.DOUBLE: self._double,
            Context.SINGLE: self._single,
            Context.ANSI_C: self._ansi_c,
            Context.COMMENT: self._comment,
            Context.PARAMETER: self._parameter,
            Context.ARITHMETIC: self._arithmetic,
            Context.BACKTICKS: self._backticks,
            Context.HEREDOC: self._expanding,
            Context.RAW_HEREDOC: lambda i, item: i + 1,
        }

    def run(self) -> None:
        i = 0
        while i < len(self.items):
            if self.lost:
                self.found += [self.lost for item in self.items[i:] if isinstance(item, Reference)]
                return
            if self.bodies and i >= self.bodies[-1].end:
                i = self._leave(self.bodies.pop())
                continue
            item = self.items[i]
            if isinstance(item, Reference):
                self.found.append(self._context())
                i += 1
            else:
                i = self.steps[self.frames[-1].kind](i, item)

    def _context(self) -> Context | Unquotable:
        kinds = [frame.kind for frame in reversed(self.frames)]
        for kind in kinds:
            if kind is Context.PARAMETER:
                return _PARAMETER
            if kind is Context.ARITHMETIC:
                return kind
            if kind in (Context.BARE, Context.HEREDOC, Context.BACKTICKS):
                break
        # Backticks remove one level of backslashes from everything inside them.
        return _BACKTICKS if Context.BACKTICKS in kinds else kinds[0]

    def _bare(self, i: int, item: Item) -> int:
        if item == "'":
            return self._push(_Frame(Context.SINGLE), i + 1)
        if item == '"':
            return self._push(_Frame(Context.DOUBLE), i + 1)
        if item == "#" and self._at_word_start(i):
            return self._push(_Frame(Context.COMMENT), i + 1)
        if item == "(":
            if self._at(i + 1) == "(":
                return self._push(_Frame(Context.ARITHMETIC, ")", depth=2), i + 2)
            return self._push(_Frame(Context.BARE, ")"), i + 1)
        if item == ")" and self.frames[-1].close == ")":
            self.frames.pop()
            return i + 1
        if item == "<" and self._at(i + 1) == "<":
            return i + 3 if self._at(i + 2) == "<" else self._heredoc(i + 2)
        if item == "\n" and self.pending:
            return self._enter(i + 1)
        if item == "c" and self._at_word_start(i) and self._word(i) == "case":
            # A pattern's `)` looks like the end of $( … ), which may be inside quotes.
            if any(frame.kind in (Context.DOUBLE, Context.HEREDOC) for frame in self.frames):
                self.lost = _CASE
            return i + 4
        return self._expanding(i, item)

    def _double(self, i: int, item: Item) -> int:
        if item == '"':
            self.frames.pop()
            return i + 1
        return self._expanding(i, item)

    def _single(self, i: int, item: Item) -> int:
        if item == "'":
            self.frames.pop()
        return i + 1

    def _ansi_c(self, i: int, item: Item) -> int:
        return self._escape(i) if item == "\\" else self._single(i, item)

    def _comment(self, i: int, item: Item) -> int:
        if item != "\n":
            return i + 1
        self.frames.pop()
        return i

    def _parameter(self, i: int, item: Item) -> int:
        if item == "}":
            self.frames.pop()
            return i + 1
        if item == '"':
            return self._push(_Frame(Context.DOUBLE), i + 1)
        if item == "'" and not self._inside_double():
            return self._push(_Frame(Context.SINGLE), i + 1)
        return self._expanding(i, item)

    def _arithmetic(self, i: int, item: Item) -> int:
        frame = self.frames[-1]
        opening = "(" if frame.close == ")" else "["
        if item in (opening, frame.close):
            frame.depth += 1 if item == opening else -1
            if frame.depth == 0:
                self.frames.pop()
            return i + 1
        if item == '"':
            return self._push(_Frame(Context.DOUBLE), i + 1)
        if item == "'":
            return self._push(_Frame(Context.SINGLE), i + 1)
        return self._expanding(i, item)

    def _backticks(self, i: int, item: Item) -> int:
        if item == "`":
            self.frames.pop()
            return i + 1
        return self._escape(i) if item == "\\" else i + 1

    def _expanding(self, i: int, item: Item) -> int:
        """Characters that are special in bare text, in double quotes and in here-documents alike."""
        if item == "\\":
            return self._escape(i)
        if item == "`":
            return self._push(_Frame(Context.BACKTICKS), i + 1)
        return self._dollar(i) if item == "$" else i + 1

    def _dollar(self, i: int) -> int:
        after = self._at(i + 1)
        if isinstance(after, Reference):
            self.found.append(_DOLLAR)
            return i + 2
        if after == "(" and self._at(i + 2) == "(":
            return self._push(_Frame(Context.ARITHMETIC, ")", depth=2), i + 3)
        if after == "(":
            return self._push(_Frame(Context.BARE, ")"), i + 2)
        if after == "[":
            return self._push(_Frame(Context.ARITHMETIC, "]"), i + 2)
        if after == "{":
            return self._push(_Frame(Context.PARAMETER), i + 2)
        if after == "'" and self.frames[-1].kind is Context.BARE:
            return self._push(_Frame(Context.ANSI_C), i + 2)
        return i + 2 if after in ("$", "#") else i + 1

    def _escape(self, i: int) -> int:
        if isinstance(self._at(i + 1), Reference):
            self.found.append(_BACKSLASH)
        self.escaped = i + 1
        return i + 2

    def _heredoc(self, i: int) -> int:
        """Read the delimiter after `<<`; the body begins on the next line."""
        strip_tabs = self._at(i) == "-"
        i += 1 if strip_tabs else 0
        while self._at(i) in (" ", "\t"):
            i += 1
        word, raw, quote = "", False, ""
        while i < len(self.items):
            item = self.items[i]
            if isinstance(item, Reference):
                self.found.append(_DELIMITER)
            elif item == quote:
                quote = ""
            elif quote:
                word += item
            elif item in "'\"":
                quote, raw = item, True
            elif item == "\\":
                raw = True
            elif item in _BREAKS:
                break
            else:
                word += item
            i += 1
        self.pending.append(_Heredoc(word, raw, strip_tabs))
        return i

    def _enter(self, i: int) -> int:
        """Find the end of a here-document whose body begins at i."""
        heredoc = self.pending.pop(0)
        start, size = i, len(self.items)
        while start < size:
            stop = start
            while stop < size and self.items[stop] != "\n":
                stop += 1
            line = "".join(item if isinstance(item, str) else "\0" for item in self.items[start:stop])
            if (line.lstrip("\t") if heredoc.strip_tabs else line) == heredoc.delimiter:
                body = _Frame(Context.RAW_HEREDOC if heredoc.raw else Context.HEREDOC, end=start, after=stop)
                self.bodies.append(body)
                return self._push(body, i)
            start = stop + 1
        self.lost = _UNCLOSED
        return i

    def _leave(self, body: _Frame) -> int:
        """Drop the frame of the body and everything left open in it; continue after its delimiter."""
        while self.frames.pop() is not body:
            pass
        return body.after

    def _inside_double(self) -> bool:
        deciding = (Context.DOUBLE, Context.HEREDOC, Context.BARE)
        nearest = next((frame.kind for frame in reversed(self.frames) if frame.kind in deciding), Context.BARE)
        return nearest is not Context.BARE

    def _at_word_start(self, i: int) -> bool:
        before = self._at(i - 1) if i else "\n"
        return isinstance(before, str) and before != "" and before in _BREAKS and self.escaped != i - 1

    def _word(self, i: int) -> str:
        word = ""
        for item in self.items[i : i + 5]:
            if isinstance(item, Reference) or item in _BREAKS:
                break
            word += item
        return word

    def _at(self, i: int) -> Item:
        return self.items[i] if 0 <= i < len(self.items) else ""

    def _push(self, frame: _Frame, i: int) -> int:
        self.frames.append(frame)
        return i
