"""The record outside Muster: each rank writes down what it printed, logged and wrote, where no fault is injected."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

RANK = """\
import os, sys, time
from pathlib import Path
from muster import Run

lines, hold, pause_s, record = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
run, rank, attempt = Run.get_context(), os.environ.get("RANK", "0"), os.environ["MUSTER_ATTEMPT"]
me = f"{run.id}.{attempt}.{rank}"
book = os.open(record / f"{me}.did", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


def did(what):
    write_all(book, f"{what}\\n".encode())


def used_up():
    # Bit by bit, as one does that leaks it.
    taken = []
    while True:
        taken.append(bytearray(b"x") * (2 << 20))
        time.sleep(0.1)


did("began")
small = record / "small-memory"
if attempt == "1" and small.exists():
    Path(small.read_text(), "cgroup.procs").write_text(str(os.getpid()))
for number in range(lines):
    if number == hold and attempt == "1":
        did("holding")
        while not (record / f"{run.id}.go").exists():
            time.sleep(0.01)
            if (record / f"{me}.itself").exists():
                used_up()
            if (record / f"{me}.child").exists():
                child = os.fork()
                if child == 0:
                    used_up()
                os._exit(128 + os.WTERMSIG(os.waitpid(child, 0)[1]))
    write_all(1, f"{me} {number} {'x' * 40}\\n".encode())
    did(f"printed {number}")
    run.log("number", number)
    did(f"logged {number}")
    time.sleep(pause_s)
os.makedirs("outputs", exist_ok=True)
Path("outputs", f"rank_{rank}.txt").write_text(f"{me} wrote this\\n")
did("wrote")
did("ended")
"""


@dataclass(frozen=True)
class Done:
    """What a rank of an attempt says that it did."""

    printed: int = 0
    logged: int = 0
    holding: bool = False
    wrote: bool = False
    ended: bool = False


class Record:
    """A folder on a disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.submitted: list[str] = []
        """Ids of the runs whose submission was answered."""

    def command(self, lines: int, hold: int, pause_s: float) -> str:
        return f"python rank.py {lines} {hold} {pause_s:g} {self.folder}"

    def of(self, run_id: str, attempt: int, rank: int) -> Done:
        try:
            said = (self.folder / f"{run_id}.{attempt}.{rank}.did").read_text().splitlines()
        except FileNotFoundError:
            return Done()
        words = Counter(line.split()[0] for line in said if line)
        return Done(words["printed"], words["logged"], "holding" in words, "wrote" in words, "ended" in words)

    def limit(self, cgroup: Path) -> None:
        """Have ranks of first attempts enter a memory cgroup when they begin."""
        (self.folder / "small-memory").write_text(str(cgroup))

    def use_up_memory(self, run_id: str, rank: int, by: str) -> None:
        """Have a rank that holds take memory until there is none, by `itself` or by a `child` that it waits for."""
        (self.folder / f"{run_id}.1.{rank}.{by}").touch()

    def go_on(self, run_id: str) -> None:
        """Have the ranks that hold do the rest."""
        (self.folder / f"{run_id}.go").touch()


def numbers_in(log: bytes, run_id: str, attempt: int, rank: int) -> list[int] | str:
    """The numbers that a log holds, in order; or the first line that no rank has printed."""
    pattern = re.compile(rf"{re.escape(run_id)}\.{attempt}\.{rank} (\d+) x{{40}}")
    found = []
    for line in log.decode(errors="replace").splitlines():
        match = pattern.fullmatch(line)
        if match is None:
            return line
        found.append(int(match[1]))
    return found
