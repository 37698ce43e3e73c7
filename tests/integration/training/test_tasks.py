"""Segmentation, detection and text train on two ranks, and go on from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.training.conftest import EXAMPLE, run_script

TASKS = EXAMPLE.parent / "tasks"
SMALL = {
    "segmentation": ("--images", "64", "--image-size", "32", "--width", "4"),
    "detection": ("--images", "64", "--image-size", "32", "--width", "4"),
    "text": ("--lines", "200", "--width", "16", "--layers", "1"),
}
QUALITY = {"segmentation": "miou", "detection": "map50", "text": "accuracy"}


@pytest.mark.parametrize("task", SMALL)
def test_a_task_trains_on_two_ranks_and_goes_on_from_its_checkpoint(place: Path, task: str) -> None:
    script = TASKS / f"{task}.py"
    always = (*SMALL[task], "--checkpoints", str(place / "kept"), "--out", str(place / "outputs"))
    once = run_script(place, script, "--steps", "3", "--eval-every", "9", *always, ranks=2)
    assert once.stdout.count(f"{QUALITY[task]} = ") == 1
    done = run_script(place, script, "--steps", "5", *always, ranks=2)
    assert "step 5/5" in done.stdout and "step 3/3" not in done.stdout
    figures = json.loads((place / "outputs/figures.json").read_text())
    assert 0 <= figures[QUALITY[task]] <= 1 and figures["ranks"] == 2
    assert (place / "outputs/model.pt").stat().st_size > 1000


def test_started_again_after_its_last_step_it_still_says_how_good_it_is(place: Path) -> None:
    always = (*SMALL["text"], "--steps", "2", "--checkpoints", str(place / "kept"), "--out", str(place / "outputs"))
    found = []
    for _ in range(2):
        run_script(place, TASKS / "text.py", *always)
        found.append(json.loads((place / "outputs/figures.json").read_text())[QUALITY["text"]])
    assert found[0] == found[1]
