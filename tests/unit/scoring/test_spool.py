"""Results stay in order, are taken up where they were published, and are written out once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.runtime.checkpoints import publish
from muster.scoring.batch.spool import Spool
from muster.scoring.batch.work import Batch

made: list[Spool] = []


def spool_in(folder: Path, plan: str) -> Spool:
    made.append(Spool(folder, plan))
    return made[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


class FakeRun:
    def __init__(self, folder: Path) -> None:
        self.checkpoint_dir = folder
        folder.mkdir()

    def publish_checkpoint(self, path: Any, step: int | None = None) -> None:
        publish(self.checkpoint_dir, path, step)


def batch(number: int) -> Batch:
    return Batch(number, (f"f{number}",), 1)


def test_a_further_attempt_goes_on_from_what_was_published(tmp_path: Path) -> None:
    run = FakeRun(tmp_path / "checkpoints")
    first = spool_in(tmp_path / "one", "plan")
    assert first.resume(None) == 0
    first.append(batch(0), ["a"], 0, False)
    first.append(batch(1), [], 1, True)
    first.publish(run, force=True)
    first.append(batch(2), ["lost with the node"], 0, False)
    second = spool_in(tmp_path / "two", "plan")
    assert second.resume(run.checkpoint_dir / "step_2") == 2
    assert (second.items, second.failed_items, second.failed_batches) == (2, 1, 1)
    second.append(batch(2), ["c"], 0, False)
    second.write(tmp_path / "out", "append_row", "predictions.csv")
    assert (tmp_path / "out" / "predictions.csv").read_text() == "a\nc\n"


def test_results_of_another_plan_do_not_count(tmp_path: Path) -> None:
    run = FakeRun(tmp_path / "checkpoints")
    first = spool_in(tmp_path / "one", "plan")
    first.resume(None)
    first.append(batch(0), ["a"], 0, False)
    first.publish(run, force=True)
    assert spool_in(tmp_path / "two", "another").resume(run.checkpoint_dir / "step_1") == 0


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_was_cut_off_is_scored_again(tmp_path: Path, cut: int) -> None:
    run = FakeRun(tmp_path / "checkpoints")
    first = spool_in(tmp_path / "one", "plan")
    first.resume(None)
    for number in range(3):
        first.append(batch(number), ["row"], 0, False)
    first.publish(run, force=True)
    kept = run.checkpoint_dir / "step_3" / "results.jsonl"
    kept.write_bytes(kept.read_bytes()[:-cut])
    assert spool_in(tmp_path / "two", "plan").resume(run.checkpoint_dir / "step_3") == 2


def test_each_file_has_its_own_result(tmp_path: Path) -> None:
    spool = spool_in(tmp_path / "one", "plan")
    spool.resume(None)
    spool.append(Batch(0, ("a/x", "b"), 2), ["1", "2"], 0, False)
    spool.append(Batch(1, ("t.csv",), 2), ["3", "4"], 0, False)
    spool.append(Batch(2, ("t.csv",), 1), ["5"], 0, False)
    spool.write(tmp_path / "out", "per_file", "")
    found = {str(file.relative_to(tmp_path / "out")): file.read_text() for file in (tmp_path / "out").rglob("*.out")}
    assert found == {"a/x.out": "1\n", "b.out": "2\n", "t.csv.out": "3\n4\n5\n"}
