"""Streams in real processes: ranks with data workers that are killed in mid-epoch and gone on with in other numbers."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until

from muster.shards.pack import Request, pack

ROOT = Path(__file__).parents[3]
RANK = Path(__file__).with_name("stream_rank.py")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    for number in range(400):
        file = tmp_path / "files" / ("cat" if number % 2 else "dog") / f"{number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"%03d" % number * 40)
    pack(
        Request(tmp_path / "files", tmp_path / "packed", 30, 1, True, 2), lambda count: None, lambda samples, size: None
    )
    return tmp_path / "packed"


@pytest.fixture
def served(packed: Path) -> Iterator[str]:
    """The shards at an address, from a plain web server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler(packed)) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler:
    """Makes handlers of one folder that log nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, *args: Any) -> http.server.SimpleHTTPRequestHandler:
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler(*args, directory=str(self._folder))


class Gang:
    """All ranks of one attempt."""

    def __init__(self, folder: Path, source: str, state: str, ranks: int, workers: int, batch: int, stop: int) -> None:
        folder.mkdir()
        self.journals = [folder / f"{rank}.jsonl" for rank in range(ranks)]
        self.processes = []
        for rank, journal in enumerate(self.journals):
            given = {
                "source": source, "journal": journal, "state": state, "rank": rank, "world": ranks, "workers": workers,
                "batch": batch, "stop": stop,
            }  # fmt: skip
            command = [sys.executable, str(RANK), *(f"--{name}={value}" for name, value in given.items())]
            environment = {**os.environ, "MUSTER_CACHE_DIR": str(folder.parent / "cache")}
            self.processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=environment)
            )

    def entries(self, rank: int) -> list[Any]:
        path = self.journals[rank]
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def killed_after(self, steps: int) -> tuple[list[str], str]:
        """The keys of the first steps of all ranks, and where they were then."""
        try:
            wait_until(
                lambda: all(len(self.entries(rank)) >= steps for rank in range(len(self.processes))), 120, "the steps"
            )
        finally:
            for process in self.processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return self._taken(steps)

    def ended(self) -> tuple[list[str], str]:
        for process in self.processes:
            assert process.wait(120) == 0
            process.communicate()
        return self._taken(len(self.entries(0)))

    def _taken(self, steps: int) -> tuple[list[str], str]:
        entries = [self.entries(rank)[:steps] for rank in range(len(self.processes))]
        states = [json.dumps(of_rank[-1]["state"]) for of_rank in entries]
        assert set(states) == {states[0]}
        return [key for of_rank in entries for entry in of_rank for key in entry["keys"]], states[0]


def test_killed_ranks_with_workers_go_on_in_other_numbers_and_every_sample_comes_once(
    packed: Path, tmp_path: Path
) -> None:
    first, state = Gang(tmp_path / "a", str(packed), "", ranks=2, workers=2, batch=7, stop=9).killed_after(9)
    second, state = Gang(tmp_path / "b", str(packed), state, ranks=3, workers=0, batch=5, stop=6).killed_after(6)
    third, state = Gang(tmp_path / "c", str(packed), state, ranks=1, workers=3, batch=10, stop=0).ended()
    assert (len(first), len(second)) == (2 * 9 * 7, 3 * 6 * 5)
    seen = Counter([*first, *second, *third])
    assert len(seen) == 400 and set(seen.values()) == {1}
    assert json.loads(state)["epoch"] == 1


def test_workers_read_through_the_nodes_cache_from_a_web_server(served: str, tmp_path: Path) -> None:
    keys, _ = Gang(tmp_path / "a", served, "", ranks=2, workers=2, batch=8, stop=0).ended()
    assert len(keys) == len(set(keys)) == 400
    assert len(list((tmp_path / "cache" / "trees").glob("[0-9a-f]*"))) == 2 * 13


def test_the_loop_of_the_document_runs_and_goes_on(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = (ROOT / "docs" / "data-for-training.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", document, re.M | re.S)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    exec(block[1], found := {"__name__": "loop"})
    assert (found["step"], found["stream"].epoch, found["progress"]["step"]) == (100, 2, 0)
    exec(block[1], found)
    assert (found["step"], found["stream"].epoch, found["progress"]["step"]) == (100, 2, 80)
