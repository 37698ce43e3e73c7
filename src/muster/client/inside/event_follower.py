"""Sends TensorBoard's event files of a rank, and what is appended to them. Runs on the node, in the rank's Python.

`client.event_files` sends it there as text: standard library only, Python 3.8. For each piece a JSON line says which
file and how much, then the bytes follow. It ends with its standard input.
"""

import json
import os
import select
import sys
from pathlib import Path
from typing import Dict, Iterator, Tuple  # noqa: UP035

MARK = "tfevents"
PIECE_BYTES = 1 << 20
PAUSE_S = 2.0


def main() -> None:
    sent: Dict[Path, int] = {}  # noqa: UP006
    while True:
        grew = False
        for path, name in event_files():
            begin = sent.get(path, 0)
            sent[path] = send(path, name, begin)
            grew = grew or sent[path] > begin
        if not grew and select.select([0], [], [], PAUSE_S)[0] and not os.read(0, 4096):
            return


def event_files() -> Iterator[Tuple[Path, str]]:  # noqa: UP006
    """The event files, each with its name among the run's files."""
    for root, prefix in roots():
        for folder, _, names in os.walk(str(root)):
            for name in names:
                if MARK in name:
                    path = Path(folder) / name
                    yield path, prefix + path.relative_to(root).as_posix()


def roots() -> Iterator[Tuple[Path, str]]:  # noqa: UP006
    yield Path.cwd(), ""
    for name, value in os.environ.items():
        if name.startswith("MUSTER_OUTPUT_") and Path(value).is_dir():
            yield Path(value), "outputs/" + name[len("MUSTER_OUTPUT_") :] + "/"


def send(path: Path, name: str, begin: int) -> int:
    """Send what comes after `begin`; returns where it ends now."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(PIECE_BYTES)
    except OSError:
        return begin
    if data:
        head = json.dumps({"path": name, "offset": begin, "size": len(data)}).encode() + b"\n"
        sys.stdout.buffer.write(head + data)
        sys.stdout.buffer.flush()
    return begin + len(data)


if __name__ == "__main__":
    main()
