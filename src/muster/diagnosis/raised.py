"""Exceptions as they were printed: by Python, in groups, by rich and IPython, by Java, Rust, Node, Go and C++."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from muster.diagnosis.text import HEADER

Setting = Literal["main", "logged", "thread", "process", "task", "ignored", "inner"]
Form = Literal["python", "syntax", "rich", "ipython", "group", "java", "rust", "node", "go", "c++"]


@dataclass(frozen=True)
class Frame:
    """One call in a stack."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def of_library(self) -> bool:
        if _JAVA_LIBRARY.match(self.function):
            return True
        return bool(_LIBRARY.search(self.file)) and self.file not in ("<stdin>", "<string>")


@dataclass(frozen=True)
class Raised:
    """One exception as it was printed, with those that caused it."""

    form: Form
    line: str
    """Its own line: `ValueError: labels out of range`."""
    begin: int
    end: int
    """Indices into the log's lines; `end` is the first line after it."""
    frames: tuple[Frame, ...] = ()
    """Outermost first."""
    setting: Setting = "main"
    more: tuple[str, ...] = ()
    """Further lines of its message."""
    causes: tuple[Raised, ...] = field(default=())
    """Its causes: the innermost first."""
    handling: bool = False
    """It was raised while another was handled, and not caused by it."""

    @property
    def kind(self) -> str:
        """`ValueError`."""
        name = _KIND.match(self.line)
        return name[1] if name else ""

    @property
    def said(self) -> str:
        return self.line.partition(": ")[2]

    @property
    def told_lines(self) -> tuple[str, ...]:
        """Its stated causes: not an exception that was being handled when it came up by accident."""
        by_accident = self.handling and self.frames and not self.frames[-1].source.startswith("raise")
        return (self.line, *self.more) if by_accident else self.all_lines

    @property
    def all_lines(self) -> tuple[str, ...]:
        """The messages of it and its causes, its own line first."""
        return (self.line, *self.more, *(line for cause in reversed(self.causes) for line in (cause.line, *cause.more)))


_TITLE = re.compile(r"(?:[Ee]rror|errors):$|: Exception encountered when calling [^\n]{1,200}\.$")
_VALIDATION = re.compile(r"\d validation errors? for \S")
_FIELD = re.compile(r"[\w.\[\]-]{1,200}$")
_KIND = re.compile(r"((?:[\w$]+\.)*[\w$]+)(?=:|$)")
_MAY_BEGIN = (
    *("Traceback (most", '  File "', "called ", "libc++abi", "panicked at", "Error", "Exception", "Throwable"),
    *("panic: ", "fatal error: "),
)
_NAME = re.compile(r"[\w.<>]+(?:: |:$|$)|[\w.<>]+(?:Error|Exception|Group)\b")
_LIBRARY = re.compile(
    r"\.p(?:yx|xi|xd)$|site-packages|dist-packages|/lib/python3|/lib64/python3|^<|/usr/lib/|node:internal|/rustc/|__autograph_generated|/bin/[\w-]+$"
    r"|/runtime/[\w.+-]+/muster/"  # Files that Muster puts next to a script.
)
_JAVA_LIBRARY = re.compile(r"(?:javax?|jdk|sun|com\.sun|scala|kotlin|org\.apache|org\.springframework|akka|System)\.\S")
_HEADER = re.compile(
    r"(?P<margin>\s*)(?P<what>Original |Exception Group |\+ Exception Group |traceback : )?"
    + re.escape(HEADER)
    + r":?$"
)
_RICH_HEADER = re.compile(r"[╭+][─-]+ " + re.escape(HEADER) + r" [─-]+[╮+]$")
_RICH_END = re.compile(r"[╰+][─-]+[╯+]$")
_RICH_FRAME = re.compile(r"[│|] (?P<file>\S.*?):(?P<line>\d+) in (?P<function>\S+)\s*[│|]$")
_RICH_SOURCE = re.compile(r"[│|] (?:❱|\\u2771|>) \d+ (?P<source>.*?)\s*[│|]$")
_IPYTHON_HEADER = re.compile(r"(?P<kind>[\w.]+)\s{2,}" + re.escape(HEADER) + r"$")
_IPYTHON_FRAME = re.compile(
    r"(?:File (?P<file>.+?):(?P<line>\d+)(?:, in (?P<function>[\w.<>]+).*)?|Cell (?P<cell>In "
    r"?\[\d+\]), line (?P<cell_line>\d+).*)$"
)
_FRAME = re.compile(r'[\s>]+File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_FROM = "The above exception was the direct cause of the following exception:"
_HANDLING = "During handling of the above exception, another exception occurred:"
_GROUP_MARGIN = re.compile(r"^\s*[|+](?:-\+)?(?:-{3,}(?: \d+ |\.\.\. )?-*)?\s?")
_LOGGED = re.compile(
    r"(?:^|[\s\[|:])(?:ERROR|WARNING|WARN|CRITICAL|INFO|DEBUG|EXCEPTION|FATAL)\b(?!:? Unexpected)", re.I
)
_LEVEL = re.compile(r"(?:^|[\s\[|:-])(?:ERROR|WARNING|WARN|CRITICAL|INFO|DEBUG|FATAL)(?=[\s\]|:-]|$)")
_JAVA = re.compile(
    r'(?:(?:Exception in thread "[^"]*"|Unhandled exception\.) )?'
    r"(?P<line>(?:[A-Za-z][\w$]*\.){1,8}[\w$]*(?:Exception|Error|Throwable)(?:: .*)?)$"
)
_JAVA_FRAME = re.compile(
    r"\s+at (?P<function>[\w.$/<>]+)\((?:(?P<file>[\w$]+\.\w+):(?P<line>\d+)\)$|"
    r"[^()]{0,300}\) in (?P<path>\S+):line (?P<at>\d+)$)"
)
_UNHANDLED = re.compile(r'\[UnhandledPromiseRejection: .{0,300}with the reason "(?P<line>.{1,300}?)"\.\]')
_JAVA_ANY_FRAME = re.compile(r"\s+at [\w.$/<>@]+\(|\s+\.\.\. \d+ (?:more|common)|\s*Suppressed: ")
_RUST = re.compile(
    r"(?:\s*)thread '[^']*'(?: \(\d+\))? panicked at (?:'(?P<old>.*)', )?(?P<file>[^:']+):(?P<line>\d+):\d+:?$"
)
_NODE_FRAME = re.compile(r"\s+at (?:(?P<function>[^(]+) )?\(?(?P<file>[^()\s]+):(?P<line>\d+):\d+\)?$")
_NODE = re.compile(r"(?:Uncaught )?(?:[A-Z]\w*)?Error(?: \[\w+\])?: ")
_GO_STACK = re.compile(r"\s|goroutine \d|[\w./*()\[\]-]+\(|created by |exit status \d|\[signal ")
_GO_PLACE = re.compile(r"\s+(?P<file>/\S+?\.go):(?P<line>\d+)")
_GO = re.compile(r"(?:panic|fatal error): ")
_TERMINATE = re.compile(
    r"(?:terminate called (?:after throwing an instance of '(?P<kind>[^']*)'|recursively"
    r"|without an active exception)|libc\+\+abi: terminating)"
)
# Further lines of well-known messages, which are not indented.
_CONTINUES = re.compile(
    r"nccl\w+: |Last error:|Duplicate GPU|CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE"
    r"|Exception raised from|Check your internet connection|If you were|Parameter indices "
    r"which did not|making sure all `forward`"
)
_MEMBER = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception|Group|Interrupt|Exit|Warning)\b")
_REMOTE_TASK = re.compile(r"ray\.exceptions\.\w+(?:\(\w+\))?: ray::")
_MOST_MORE = 12
_OF_THE_CHAIN = ("logged", "thread", "process", "task", "ignored")  # Printed once, above the first of a chain.
_CUT_WITHIN = 4  # So many lines may lie before the rest of a traceback whose beginning was cut off.


class Reader:
    """Finds exceptions in lines, in one pass."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def read(self) -> list[Raised]:
        found: list[Raised] = []
        text = "\n".join(self._lines)
        marks = [mark for mark in _MAY_BEGIN if mark in text]
        index = 0
        while index < len(self._lines):
            line = self._lines[index]
            raised = self._at(index) if any(mark in line for mark in marks) else None
            if raised is None:
                index += 1
                continue
            found.append(raised)
            index = max(raised.end, index + 1)
        return _joined(found, self._lines)

    def _at(self, index: int) -> Raised | None:
        line = self._lines[index]
        if HEADER in line:
            return self._with_header(index, line)
        if line.startswith("  File ") and (frame := _FRAME.match(line)):
            return self._syntax(index, frame)
        if "called" in line or "libc++abi" in line:
            return self._terminated(index, line)
        return self._foreign(index, line)

    def _with_header(self, index: int, line: str) -> Raised | None:
        if match := _HEADER.match(line):
            if match["what"] and "Group" in match["what"]:
                return self._group(index)
            return self._python(index, match)
        bare = line.strip()
        if _RICH_HEADER.match(bare):
            return self._rich(index)
        if match := _IPYTHON_HEADER.match(bare):
            return self._ipython(index, match["kind"])
        return None

    def _python(self, index: int, header: re.Match[str]) -> Raised | None:
        margin = header["margin"]
        frames, at, apart = self._stack(index + 1, margin)
        setting = self._setting(index, header)
        if setting == "main" and any("/multiprocessing/spawn.py" in frame.file for frame in frames[:3]):
            setting = "process"
        cut_off = Raised("python", "", index, at, tuple(frames), setting)
        if at >= len(self._lines) or not self._lines[at] or HEADER in self._lines[at]:
            return cut_off if frames else None
        line, more, end = self._message(at, margin)
        if not (_MEMBER if apart else _NAME).match(line):
            # Another process wrote over it.
            return cut_off
        if more and _REMOTE_TASK.match(more[0]):
            frames += [self._frame(i, found) for i in range(at, end) if (found := _FRAME.match(self._lines[i]))]
        return Raised("python", line, index, end, tuple(frames), setting, more)

    def _stack(self, at: int, margin: str) -> tuple[list[Frame], int, bool]:
        """The frames from a line on, where they end, and whether a blank line follows them."""
        frames: list[Frame] = []
        while at < len(self._lines):
            line = self._lines[at]
            if match := _FRAME.match(line):
                frames.append(self._frame(at, match))
            elif line and not line.startswith(margin + "  ") and (line.startswith(margin) or not line.startswith(" ")):
                foreign = HEADER not in line and not _NAME.match(line[len(margin) :])
                # Another process may have printed a line in between.
                if not foreign or not ((frames and self._goes_on(at, margin)) or self._resumes(at)):
                    break
            elif not line and frames and not self._goes_on(at, margin):
                return frames, at + 1, True
            at += 1
        return frames, at, False

    def _frame(self, at: int, match: re.Match[str]) -> Frame:
        return Frame(match["file"], int(match["line"]), match["function"] or "", self._source(at))

    def _goes_on(self, at: int, margin: str) -> bool:
        """Whether a blank line is inside a stack: more of it follows, indented."""
        following = next((line for line in self._lines[at + 1 : at + 4] if line), "")
        return following.startswith(f"{margin}  ") or bool(_FRAME.match(following))

    def _resumes(self, at: int) -> bool:
        """Whether a stack goes on after a few lines that another process printed in between."""
        for line in self._lines[at + 1 : at + _CUT_WITHIN + 3]:
            if HEADER in line or _MEMBER.match(line):
                return False
            if _FRAME.match(line):
                return True
        return False

    def _source(self, at: int) -> str:
        following = self._lines[at + 1] if at + 1 < len(self._lines) else ""
        indent = len(self._lines[at]) - len(self._lines[at].lstrip())
        deeper = following.startswith(" " * (indent + 1))
        return following.strip() if deeper and not following.lstrip().startswith("File ") else ""

    def _message(self, at: int, margin: str) -> tuple[str, tuple[str, ...], int]:
        """The exception's own line, the rest of its message below it, and where that ends."""
        line = self._lines[at][len(margin) :].strip()
        more: list[str] = []
        end = at + 1
        if _bare(line):
            # The message begins with line breaks.
            while end < len(self._lines) and not self._lines[end] and end < at + 4:
                end += 1
            if end < len(self._lines) and self._lines[end].startswith((" ", "\t")) and HEADER not in self._lines[end]:
                line = f"{line.rstrip(': ')}: {self._lines[end].strip()}"
                end += 1
            else:
                end = at + 1
        while end < len(self._lines) and len(more) < 400:
            following = self._lines[end]
            goes_on = following.startswith((margin + " ", margin + "\t")) or _CONTINUES.match(following[len(margin) :])
            if not goes_on or HEADER in following:
                break
            more.append(following.strip())
            end += 1
        if end + 1 < len(self._lines) and not self._lines[end] and _TITLE.search(line):
            # Only a title; its subject follows a blank line.
            line, end = f"{line} {self._lines[end + 1].strip()}", end + 2
        if more and more[-1].endswith("error:") and end < len(self._lines) and self._lines[end]:
            more.append(self._lines[end].strip())
            end += 1
        if _VALIDATION.search(line):
            return self._validation(line, end)
        if line.endswith("in user code:"):
            return self._in_user_code(line, end)
        if _REMOTE_TASK.match(line):
            return self._in_remote_task(line, tuple(more), end)
        return line, tuple(more[:_MOST_MORE]), end

    def _validation(self, line: str, end: int) -> tuple[str, tuple[str, ...], int]:
        """pydantic's message: below a title the name of each field, and indented its error."""
        begin = end
        while end < len(self._lines) and (self._lines[end].startswith("  ") or _FIELD.match(self._lines[end])):
            end += 1
        found = [text.strip() for text in self._lines[begin:end] if not text.startswith("    ")]
        return f"{line}: {': '.join(found[:2])}" if found else line, tuple(found[2 : 2 + _MOST_MORE]), end

    def _in_remote_task(self, line: str, more: tuple[str, ...], end: int) -> tuple[str, tuple[str, ...], int]:
        """A message that continues with the stack of a task in another process, and at its end the exception itself."""
        told = ""
        while end < len(self._lines) and HEADER not in self._lines[end]:
            said = self._lines[end]
            if not said.startswith(" ") and not _MEMBER.match(said):
                break
            told = said if not said.startswith(" ") and not _REMOTE_TASK.match(said) else told
            end += 1
        return told or line, (line, *more[:_MOST_MORE]), end

    def _in_user_code(self, line: str, end: int) -> tuple[str, tuple[str, ...], int]:
        """TensorFlow's message has the stack of a traced function, and at its end the exception itself."""
        told = ""
        while end < len(self._lines) and (not self._lines[end] or self._lines[end].startswith("    ")):
            said = self._lines[end].strip()
            told = said if _MEMBER.match(said) else told
            end += 1
        return told or line, (line,), end

    def _setting(self, index: int, header: re.Match[str]) -> Setting:
        if header["what"] == "Original ":
            return "inner"
        before = self._lines[max(0, index - 3) : index]
        last = next((line for line in reversed(before) if line), "")
        if last.startswith("Exception in thread "):
            return "thread"
        if re.match(r"Process [\w:-]+:$", last):
            return "process"
        if last.startswith("-- Process "):
            return "inner"
        if any(line.startswith(("Exception ignored in", "--- Logging error ---")) for line in before[-2:]):
            return "ignored"
        if any(
            line.startswith(("Task exception was never retrieved", "Future exception was never")) for line in before
        ):
            return "task"
        return "logged" if _LEVEL.search(last) and not last.startswith("ERROR: Unexpected ") else "main"

    def _group(self, index: int) -> Raised:
        end = index + 1
        while (
            end < len(self._lines) and self._lines[end].lstrip()[:1] in ("|", "+") and self._lines[end].startswith(" ")
        ):
            end += 1
        bared = [_GROUP_MARGIN.sub("", line, count=1) for line in self._lines[index:end]]
        bared[0] = f"{HEADER}:"
        members = Reader(bared).read()
        if not members:
            return Raised("group", "ExceptionGroup", index, end)
        first = members[0]
        inner = [cause for member in members[1:] for cause in (*member.causes, member)]
        known = {raised.line for raised in (first, *inner)}
        # A member that was never raised has no stack, only its line under its number.
        bare = [line for line in bared[1:] if _NAME.match(line) and _MEMBER.match(line) and line not in known]
        inner += [Raised("group", line, index, end) for line in bare]
        return replace(first, form="group", begin=index, end=end, causes=tuple(inner))

    def _syntax(self, index: int, frame: re.Match[str]) -> Raised | None:
        if frame["function"]:
            return self._beheaded(index)
        for at in range(index + 1, min(index + 5, len(self._lines))):
            if _SYNTAX.match(self._lines[at]):
                place = Frame(frame["file"], int(frame["line"]), "", self._lines[index + 1].strip())
                return Raised("syntax", self._lines[at], index, at + 1, (place,))
        return None

    def _beheaded(self, index: int) -> Raised | None:
        """A traceback without its beginning, because a log was cut."""
        if index > _CUT_WITHIN:
            return None
        frames, at, _ = self._stack(index, "")
        if len(frames) < 2 or at >= len(self._lines) or not _MEMBER.match(self._lines[at]):
            return None
        line, more, end = self._message(at, "")
        return Raised("python", line, index, end, tuple(frames), more=more)

    def _rich(self, index: int) -> Raised:
        frames: list[Frame] = []
        at = index + 1
        while at < len(self._lines) and not _RICH_END.match(self._lines[at].strip()):
            bare = self._lines[at].strip()
            if match := _RICH_FRAME.match(bare):
                frames.append(Frame(match["file"], int(match["line"]), match["function"]))
            elif frames and (source := _RICH_SOURCE.match(bare)):
                frames[-1] = replace(frames[-1], source=source["source"].strip("│ "))
            at += 1
        at += 1
        while at < len(self._lines) and not self._lines[at]:
            at += 1
        line, end = self._wrapped(at)
        return Raised("rich", line, index, end, tuple(frames))

    def _wrapped(self, at: int) -> tuple[str, int]:
        """A message that was wrapped to the width of a terminal, in one line again."""
        parts: list[str] = []
        while at < len(self._lines) and self._lines[at] and len(parts) < 20:
            parts.append(self._lines[at].strip())
            at += 1
            if len(parts[-1]) < 60:
                break
        return " ".join(parts), at

    def _ipython(self, index: int, kind: str) -> Raised | None:
        frames: list[Frame] = []
        for at in range(index + 1, min(index + 400, len(self._lines))):
            line = self._lines[at]
            if match := _IPYTHON_FRAME.match(line):
                file, number = match["file"] or match["cell"], match["line"] or match["cell_line"]
                frames.append(Frame(file, int(number), match["function"] or ""))
            elif frames and line.startswith("-"):
                frames[-1] = replace(frames[-1], source=re.sub(r"^-+> ?\d* ?", "", line).strip())
            elif line == kind or line.startswith(f"{kind}:"):
                return Raised("ipython", line, index, at + 1, tuple(frames))
        return None

    def _terminated(self, index: int, line: str) -> Raised | None:
        match = _TERMINATE.match(line)
        if not match:
            return None
        following = self._lines[index + 1].strip() if index + 1 < len(self._lines) else ""
        if following.startswith("what():"):
            said = following.removeprefix("what():").strip()
            return Raised("c++", f"{match['kind'] or 'terminate'}: {said}", index, index + 2, more=(line,))
        return Raised("c++", line, index, index + 1)

    def _foreign(self, index: int, line: str) -> Raised | None:
        following = self._lines[index + 1] if index + 1 < len(self._lines) else ""
        if "." in line and (match := _JAVA.match(line)) and _JAVA_ANY_FRAME.match(following):
            return self._java(index, match["line"])
        if "panicked at" in line and (match := _RUST.match(line)):
            frame = Frame(match["file"], int(match["line"]), "")
            return Raised("rust", match["old"] or following, index, index + 2, (frame,))
        if _NODE.match(line) and (match := _NODE_FRAME.match(following)):
            frame = Frame(match["file"].removeprefix("file://"), int(match["line"]), (match["function"] or "").strip())
            return Raised("node", line.removeprefix("Uncaught "), index, self._past(index + 1, _NODE_FRAME), (frame,))
        if unhandled := _UNHANDLED.match(line):
            return Raised("node", unhandled["line"], index, index + 1)
        if _GO.match(line) and any("goroutine " in later for later in self._lines[index + 1 : index + 4]):
            return self._go(index, line)
        return None

    def _go(self, index: int, line: str) -> Raised:
        at = index + 1
        frames: list[Frame] = []
        while at < len(self._lines) and (not self._lines[at] or _GO_STACK.match(self._lines[at])):
            if place := _GO_PLACE.match(self._lines[at]):
                frames.insert(0, Frame(place["file"], int(place["line"]), self._lines[at - 1].partition("(")[0]))
            at += 1
        return Raised("go", line, index, at, tuple(frames))

    def _java(self, index: int, line: str) -> Raised:
        causes: list[Raised] = []
        own: list[Frame] = []
        frames = own
        at = index + 1
        while at < len(self._lines):
            text = self._lines[at]
            if match := _JAVA_FRAME.match(text):
                file, line_number = match["file"] or match["path"], match["line"] or match["at"]
                frames.append(Frame(file, int(line_number), match["function"]))
            elif text.startswith("Caused by: "):
                frames = []
                causes.insert(0, Raised("java", text.removeprefix("Caused by: "), at, at + 1))
            elif not _JAVA_ANY_FRAME.match(text):
                break
            at += 1
        return Raised("java", line, index, at, tuple(reversed(own)), causes=tuple(causes))

    def _past(self, at: int, pattern: re.Pattern[str]) -> int:
        while at < len(self._lines) and pattern.match(self._lines[at]):
            at += 1
        return at


def _bare(line: str) -> bool:
    """A name without a message."""
    return bool(re.fullmatch(r"[\w.]+:?", line)) and not line.rstrip(":").endswith(
        ("AssertionError", "KeyboardInterrupt", "MemoryError")
    )


def _joined(found: Sequence[Raised], lines: Sequence[str]) -> list[Raised]:
    """Merged chains: an exception absorbs its causes, and those that its message quotes."""
    joined: list[Raised] = []
    for raised in found:
        if joined and (link := _link(joined[-1], raised, lines)):
            before = joined.pop()
            if link == "quotes":
                inner = (*raised.causes, raised)
                joined.append(replace(before, end=raised.end, causes=(*inner, *before.causes)))
            else:
                setting = before.setting if before.setting in _OF_THE_CHAIN else raised.setting
                chain = (*before.causes, replace(before, causes=()), *raised.causes)
                joined.append(
                    replace(raised, begin=before.begin, causes=chain, handling=link == "handling", setting=setting)
                )
            continue
        joined.append(raised)
    return joined


def _link(before: Raised, after: Raised, lines: Sequence[str]) -> str:
    if after.setting == "inner":
        return "quotes"
    for line in lines[before.end : after.begin]:
        if line.strip() == _FROM:
            return "from"
        if line.strip() == _HANDLING:
            return "handling"
    return ""
