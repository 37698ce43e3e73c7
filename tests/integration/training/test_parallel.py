"""Every way to divide the work comes to what one process comes to, in one launch of four ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.training.conftest import EXAMPLE, run_script

EXACT = (
    *("tensor", "sequence", "sharded", "experts", "data,tensor", "pipeline,tensor", "pipeline,data"),
    *("gpipe", "1f1b", "interleaved", "local", "server", "locked"),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("parallel")
    run_script(folder, Path(__file__).with_name("parallel_ranks.py"), str(folder / "found.json"), ranks=4)
    return dict(json.loads((folder / "found.json").read_text()))


@pytest.mark.parametrize("way", EXACT)
def test_a_way_has_the_losses_and_weights_of_one_process(found: dict[str, Any], way: str) -> None:
    apart, is_exact, _ = found[way]
    assert is_exact and apart < 1e-9


def test_sharded_ranks_keep_a_quarter_each(found: dict[str, Any]) -> None:
    assert found["sharded"][2]["share_of_the_weights"] == pytest.approx(0.25, abs=0.01)


def test_stale_gradients_still_learn_and_stay_within_their_bound(found: dict[str, Any]) -> None:
    late, first, figures = found["stale"]
    assert late < first - 0.3
    # Three workers, none more than two steps ahead: between one's fetch and push the others push at most five each.
    assert figures["mean_lag"] > 0 and figures["largest_lag"] <= 10


def test_layers_that_do_not_wait_for_gradients_learn_the_language(found: dict[str, Any]) -> None:
    assert found["decoupled"] > 0.5


def test_a_recorded_pipeline_is_drawn_with_its_idle_time(place: Path) -> None:
    folder = EXAMPLE.parent / "parallel"
    small = ("--steps", "3", "--width", "16", "--batch-size", "8", "--microbatches", "4", "--timeline")
    run_script(place, folder / "pipeline.py", "--schedule", "interleaved", *small, ranks=2)
    command = [sys.executable, str(folder / "picture.py"), "outputs/timeline.json", "--even", "--to", "drawn.svg"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Filling and draining a pipeline of two ranks takes half a forward and half a backward: 1.5 of 13.5.
    assert "idle 11%" in done.stdout
    assert (place / "drawn.svg").read_text().count("rank ") == 2
