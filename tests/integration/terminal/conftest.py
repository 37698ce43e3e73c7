"""A workspace with a few runs, and commands typed into real terminals of several widths."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import _end_workspace

MUSTER = [sys.executable, "-m", "muster.cli"]
TRAIN = """
import sys
from muster import Run
run = Run.get_context()
for step in range(3):
    run.log("loss", float(sys.argv[1]) / (step + 1), step=step)
print("trained with", sys.argv[1])
"""
NAN = """
from muster import Run
run = Run.get_context()
for step in range(4):
    run.log("loss", 1.0 if step < 2 else float("nan"), step=step)
"""
FAILS = """
import os, time; time.sleep(1)  # so that it was seen to run
def read(name):
    return os.environ[name]
read("RANK")
"""


@dataclass(frozen=True)
class Screen:
    """What a command left on a terminal."""

    lines: list[str]
    code: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Desk:
    """A folder with a workspace, and a keyboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUSTER, *args], cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )

    def type(self, *args: str, columns: int = 80, answer: str = "") -> Screen:
        """Type a command into a terminal so many characters wide, and read it to its end."""
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            os.chdir(self.folder)
            os.execve(MUSTER[0], [*MUSTER, *args], {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"})
        if answer:
            os.write(terminal, answer.encode())
        drawn = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            drawn += piece
        os.close(terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode(errors="replace")).replace("\r\n", "\n")
        return Screen([line.rpartition("\r")[2].rstrip() for line in text.rstrip("\n").split("\n")], code)


_IDS = re.compile(r"\b([a-z][\w]*)-[a-km-z2-9]{8}\b")
_TIMES = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b|\b\d\d:\d\d:\d\d\b")
_MACHINE = re.compile(r"\b[\d.]+\w* PYTHON, \d+ packages|(?<=frozen os>\", line )\d+")
_LENGTHS = re.compile(r"\b\d+(?:\.\d)?[smh](?: \d+[sm])?\b")


def still(screen: Screen, folder: Path) -> list[str]:
    """A screen without what is another each time: ids, times, lengths, the folder; gaps shrink to two spaces."""
    found = []
    for line in screen.lines:
        line = line.replace(str(folder), "FOLDER").replace(sys.executable, "PYTHON")
        line = _IDS.sub(r"\1-ID", _MACHINE.sub("THIS MACHINE", line))
        line = re.sub(r"(?<= by )\S+$", "USER", re.sub(r"\S+ k?B(?=  (?:muster|user_logs)/)", "SIZE", line))
        line = _LENGTHS.sub("TIME", _TIMES.sub("DATE", line)).replace("(now)", "(TIME ago)")
        found.append(re.sub(r"(?<=\S) {2,}", "  ", line))
    return _without_samples(found)


def _without_samples(lines: list[str]) -> list[str]:
    """Without what nodes measured of themselves, which a short run may or may not have."""
    kept = [line for line in lines if not line.startswith("  node/")]
    return [
        line
        for number, line in enumerate(kept)
        if not (line in ("metrics", "nodes") and not kept[number + 1].strip())
        and not (not line.strip() and number > 0 and kept[number - 1] in ("metrics", "nodes"))
    ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One workspace for all tests of a file: runs that completed, failed, diverged and share a name."""
    from muster.client.workspace import create_workspace

    folder = tmp_path_factory.mktemp("desk") / "w"
    folder.mkdir()
    create_workspace(folder, "desk")
    made = Desk(folder)
    for name, text in (("train.py", TRAIN), ("nan.py", NAN), ("fails.py", FAILS)):
        (folder / name).write_text(text)
    for args in (("train.py", "--name", "first", "--", "1.0"), ("train.py", "--tag", "team=vision", "--", "0.5")):
        assert made.run("run", *args[:1], "-q", *args[1:]).returncode == 0
    assert made.run("run", "fails.py", "--name", "broken", "-q").returncode == 1
    yield made
    _end_workspace(folder)
