"""Files whose names only just are names come back with `muster download`, and the others with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WRITE = r"""
import os
os.makedirs("outputs/below", exist_ok=True)
names = ["line\nbreak", "ends\n", "a%b", "100%25", "what?", "a#b", "a&b=c", "..hidden", "-rf", "ünï"]
names += ["x" * 240, "back\\slash"]
for name in [*map(os.fsencode, names), b"not-\xff-utf8", b"below/plain"]:
    with open(b"outputs/" + name, "wb") as file:
        file.write(b"data")
"""


def test_odd_names_are_downloaded_with_the_others(cli: Any, workspace: Path) -> None:
    done = cli("run", cli.script("write.py", WRITE), "--name", "odd", "-q")
    assert done.returncode == 0, done.stderr
    done = cli("download", "odd", "outputs", "--to", "back")
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_bytes() for path in (cli.folder / "back" / "outputs").rglob("*") if path.is_file()}
    assert set(found.values()) == {b"data"}
    expected = {"line\nbreak", "ends\n", "a%b", "100%25", "what?", "a#b", "a&b=c", "..hidden", "-rf", "ünï", "x" * 240}
    assert expected | {"plain"} <= set(found)
    assert len(found) == len(expected) + 3, sorted(found)
    # No name of a run's acts on the terminal.
    assert "\x1b" not in cli("show", "odd").stdout


def test_a_file_that_cannot_be_had_does_not_keep_the_others_back(cli: Any, workspace: Path) -> None:
    write = "import os; os.makedirs('outputs', exist_ok=True); [open(f'outputs/{n}', 'w').write(n) for n in 'abc']"
    assert cli("run", "--name", "three", "-q", "--", "python", "-c", write).returncode == 0
    (cli.folder / "three" / "outputs" / "b").mkdir(parents=True)
    (cli.folder / "three" / "outputs" / "b" / "in the way").touch()
    done = cli("download", "three", "outputs")
    assert done.returncode != 0 and "outputs/b: " in done.stderr and "not downloaded: 1 file" in done.stderr
    assert (cli.folder / "three" / "outputs" / "c").read_text() == "c"
    assert json.loads(cli("show", "three", "--json").stdout)["status"] == "Completed"
