"""Each number of a file becomes one line, whatever happens between: names, kills, damage, other files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.agent.ship.eventfiles.names import Names
from muster.agent.ship.eventfiles.reading import Reading

from .test_files_of_tools import OFFLINE, TORCH


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "events").mkdir()
    return tmp_path / "work"


def reading(work: Path, since: float = 0.0) -> Reading:
    return Reading((work, work.parent / "out"), work.parent / "events", 4, since)


def put(work: Path, inner: str, data: bytes) -> Path:
    path = work / inner
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def lines(work: Path, tool: str = "tensorboard") -> list[dict[str, Any]]:
    path = work.parent / "events" / f"rank_4.{tool}.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []
    return [item for item in found if item["kind"] in ("metric", "param")]


def names(work: Path, tool: str = "tensorboard") -> set[str]:
    return {item["name"] for item in lines(work, tool)}


def test_what_is_new_comes_with_the_pass_after_it_was_seen(work: Path) -> None:
    data = TORCH.read_bytes()
    put(work, "runs/a/events.out.tfevents.1.h", data[:2000])
    mine = reading(work)
    mine.read()
    assert lines(work) == [], "it may be on its way through the in-run API too"
    mine.read()
    before = len(lines(work))
    assert 0 < before < 15
    put(work, "runs/a/events.out.tfevents.1.h", data)
    mine.read(final=True)
    assert [item["step"] for item in lines(work) if item["name"] == "loss"] == [float(step) for step in range(12)]
    assert lines(work)[0] == {
        "kind": "metric", "type": "scalar", "name": "loss", "value": 1.0, "step": 0.0, "at": 1_700_000_000.0,
    }  # fmt: skip
    assert mine.notes() == []


def test_what_the_script_logs_itself_is_not_doubled(work: Path) -> None:
    put(work, "outputs/events.out.tfevents.1.h", TORCH.read_bytes())
    put(work, "wandb/offline-run-1/run-1.wandb", OFFLINE.read_bytes())
    own = work.parent / "events" / "rank_5.jsonl"
    own.write_text(
        '{"kind": "metric", "name": "loss", "value": 1}\n{"kind": "param", "name": "lr", "value": 1}\n[]\nno'
    )
    reading(work).read(final=True)
    assert names(work) == {"nan", "tensor", "double"}
    assert names(work, "wandb") == {"layers", "name", "train.acc", "late"}


def test_two_tools_with_the_same_name_give_it_once(work: Path) -> None:
    put(work, "logs/events.out.tfevents.1.h", TORCH.read_bytes())
    put(work, "wandb/offline-run-1/run-1.wandb", OFFLINE.read_bytes())
    reading(work).read(final=True)
    assert "loss" in names(work) and "loss" not in names(work, "wandb")


def test_a_second_folder_has_its_name_before_the_tag(work: Path) -> None:
    for folder in ("logs/train", "logs/validation"):
        put(work, f"{folder}/events.out.tfevents.1.h", TORCH.read_bytes())
    reading(work).read(final=True)
    assert {"loss", "validation/loss"} <= names(work)
    assert len(lines(work)) == 2 * 15


def test_an_agent_that_takes_over_writes_nothing_twice(work: Path) -> None:
    data = TORCH.read_bytes()
    put(work, "a/events.out.tfevents.1.h", data)
    put(work, "b/events.out.tfevents.1.h", data)
    reading(work).read(final=True)
    output = work.parent / "events" / "rank_4.tensorboard.jsonl"
    whole, expected = output.read_bytes(), [json.dumps(item) for item in lines(work)]
    reading(work).read(final=True)
    assert output.read_bytes() == whole
    for cut in range(1, len(whole), 97):
        output.write_bytes(whole[:cut])
        mine = reading(work)
        mine.read(final=True)
        mine.read(final=True)
        found = []
        for line in output.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        metrics = [json.dumps(item) for item in found if item["kind"] == "metric"]
        assert metrics == expected, f"killed at byte {cut}"


def test_links_old_files_and_pipes_are_left_alone(work: Path, tmp_path: Path) -> None:
    elsewhere = put(tmp_path, "elsewhere", TORCH.read_bytes())
    (work / "events.out.tfevents.link").symlink_to(elsewhere)
    os.mkfifo(work / "events.out.tfevents.pipe")
    old = put(work, "events.out.tfevents.old", TORCH.read_bytes())
    os.utime(old, (50, 50))
    mine = reading(work, since=100.0)
    mine.read(final=True)
    assert mine.readers == {} and lines(work) == []


def test_a_damaged_file_is_named_and_the_others_are_read(work: Path) -> None:
    put(work, "a/events.out.tfevents.1.h", b"nonsense" * 100)
    put(work, "b/events.out.tfevents.1.h", TORCH.read_bytes())
    mine = reading(work)
    mine.read(final=True)
    assert "loss" in names(work)
    (note,) = mine.notes()
    assert note.startswith("work/a/events.out.tfevents.1.h (TensorBoard) is damaged at byte 0")


def test_a_file_that_another_takes_the_place_of_is_read_anew(work: Path) -> None:
    path = put(work, "a/events.out.tfevents.1.h", TORCH.read_bytes())
    mine = reading(work)
    mine.read(final=True)
    before = len(lines(work))
    path.rename(work / "kept")
    put(work, "a/events.out.tfevents.1.h", TORCH.read_bytes())
    mine.read(final=True)
    assert len(lines(work)) == 2 * before


def test_tags_without_end_are_cut_off_and_counted() -> None:
    mine = Names()
    for index in range(10_050):
        mine.name("tensorboard", "a", f"t{index}", set())
    assert (len(mine.given), mine.too_many) == (10_000, 50)
    assert mine.name("tensorboard", "a", "t5", set()) == "t5"
