"""Keys that are changed survive a death at any point: of the store's files, of logs, and of secrets."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from muster.store.keyring import new_key

KILLS = 6


def rotating(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.storage.rotating", str(folder), *more]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)


def test_a_rotation_that_is_killed_anywhere_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".muster"
    (folder / "server").mkdir(parents=True)
    (folder / "key-1").write_text(new_key())
    (folder / "workspace.json").write_text(json.dumps({"id": "w", "encryption": {"key_file": "key-1"}}))
    chance = random.Random()
    rotated = 1
    for _ in range(KILLS):
        with rotating(folder) as process:
            assert process.stdout is not None and process.stderr is not None
            said = process.stdout.readline().split()
            if said[:1] != ["whole"]:
                raise AssertionError(process.stderr.read())
            # At any point of the work, which takes some tenths of a second.
            time.sleep(chance.uniform(0.0, 0.5))
            process.kill()
        rotated = max(rotated, len(list(folder.glob("key-*"))))
    with rotating(folder, "only look") as process:
        said, errors = process.communicate(timeout=60)
    assert said.startswith("whole") and process.returncode == 0, errors
    assert rotated > KILLS // 2
    config = json.loads((folder / "workspace.json").read_text())["encryption"]
    assert not config.get("previous") and config["key_file"] != "key-1"
