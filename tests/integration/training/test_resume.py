"""A training that is killed and resumed has, bit for bit, the losses of one that was not."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import wait_until
from tests.integration.training.conftest import EXAMPLE, TINY, Site, train
from tests.unit.training.images import write_shards

STEPS = 24


def submit(site: Site, **job: Any) -> str:
    length = ("--batch-size", "4", "--steps", str(STEPS), "--checkpoint-every", "2")
    return site.run(
        code=str(EXAMPLE),
        command=["python", "train.py", *TINY, *length],
        resources={"instance_count": 2},
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        environment_variables={"OMP_NUM_THREADS": "1"},
        **job,
    )


def losses(site: Site, run_id: str) -> dict[int, set[float]]:
    """What every attempt logged for each step."""
    found: dict[int, set[float]] = {}
    for point in site.client.metrics(run_id):
        if point.name == "loss":
            found.setdefault(point.step, set()).add(point.value)
    return found


def kill_after(site: Site, run_id: str, attempt: int, step: int, rank: int) -> None:
    """Kill a rank with SIGKILL once its attempt has come so far."""

    def arrived() -> bool:
        view = site.view(run_id)
        assert view["status"] not in {"Completed", "Failed", "Canceled"}, view["verdict"]
        # An earlier attempt may have come so far: then this one must at least have begun.
        begun = len(view["attempts"]) == attempt and len(view["attempts"][-1]["ranks"]) == 2
        return begun and max(losses(site, run_id), default=0) >= step

    wait_until(arrived, 120.0, f"step {step} of attempt {attempt}")
    os.kill(site.rank(run_id, rank).pid, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_killed_at_random_it_has_the_losses_of_a_run_that_was_not(site: Site) -> None:
    undisturbed = submit(site)
    killed = submit(site, retry={"user_error": 3, "backoff_s": 0})
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for attempt, step in enumerate(sorted(chance.sample(range(8, STEPS - 4), 2)), 1):
        kill_after(site, killed, attempt, step, chance.randrange(2))
    views = [site.wait(run_id, timeout_s=240) for run_id in (undisturbed, killed)]
    assert [view["status"] for view in views] == ["Completed", "Completed"], f"seed {seed}"
    assert len(views[1]["attempts"]) == 3
    expected, found = losses(site, undisturbed), losses(site, killed)
    assert sorted(expected) == list(range(1, STEPS + 1))
    assert found == expected, f"seed {seed}"
    assert all(len(values) == 1 for values in found.values())
    models = [weights(site, run_id) for run_id in (undisturbed, killed)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert views[1]["attempts"][-1]["resumed_from"] is not None


@pytest.mark.parametrize("images", ["made up", "from shards"])
def test_a_run_that_is_cancelled_saves_first(site: Site, tmp_path: Path, images: str) -> None:
    """Also when it has worker processes, which must not be told to end before it is done."""
    source: tuple[str, ...] = ()
    if images == "from shards":
        source = ("--data", str(tmp_path / "images"), "--workers", "2", "--eval-every", "100000")
        for part in ("train", "val"):
            write_shards(tmp_path / "images" / part)
    length = ("--batch-size", "4", "--steps", "100000", "--checkpoint-every", "50000")
    run_id = site.run(
        code=str(EXAMPLE),
        command=["python", "train.py", *TINY, *source, *length],
        environment_variables={"OMP_NUM_THREADS": "1"},
    )
    wait_until(lambda: max(losses(site, run_id), default=0) >= 3, 120.0, "step 3")
    site.client.cancel(run_id)
    view = site.wait(run_id, timeout_s=120)
    assert view["status"] == "Canceled" and view["attempts"][0]["ranks"][0]["exit_code"] == 0
    (stopped_after,) = re.findall(rb"stopped after step (\d+) of", site.log(run_id))
    assert view["checkpoints"][0]["name"] == f"step_{stopped_after.decode()}"


def weights(site: Site, run_id: str) -> dict[str, torch.Tensor]:
    path = site.folder / f"{run_id}.pt"
    (name,) = [item.path for item in site.client.files(run_id) if item.path.endswith("model.pt")]
    path.write_bytes(site.client.read_file(run_id, name))
    return dict(torch.load(path, weights_only=True))


def test_another_number_of_ranks_goes_on_where_the_others_stopped(place: Path) -> None:
    """With the same global batch every step has the same images, so the losses are those of the first world."""
    common = ("--checkpoints", "c", "--checkpoint-every", "3", "--synthetic-val", "30")
    whole = train(place, "--global-batch", "8", "--steps", "9", ranks=2).stdout
    assert "resumed" not in train(place, "--global-batch", "8", "--steps", "6", *common, ranks=2).stdout
    on_one = train(place, "--global-batch", "8", "--steps", "9", *common).stdout
    assert "resumed after step 6" in on_one and sorted(printed(on_one)) == [7, 8, 9]
    assert printed(on_one)[7] == pytest.approx(printed(whole)[7], rel=0.2)
    # The eight images that are left of the first epoch fill no step of nine; the second epoch has eight steps.
    on_three = train(place, "--global-batch", "9", "--epochs", "2", *common, ranks=3).stdout
    assert "resumed after step 9" in on_three and sorted(printed(on_three)) == list(range(10, 18))


def test_a_validation_that_a_stop_prevented_comes_first_after_the_resume(place: Path) -> None:
    stop = place / "stop"
    stop.touch()
    told = {"MUSTER_RUN_ID": "some", "MUSTER_STOP_FILE": str(stop)}
    common = ("--batch-size", "20", "--log-every", "4", "--synthetic-val", "20", "--checkpoints", "c")
    stopped = train(place, *common, "--epochs", "2", **told).stdout
    assert "stopped after step 4 of 8" in stopped and "top-1" not in stopped
    stopped = train(place, *common, "--epochs", "2", **told).stdout
    assert stopped.index("step 4  top-1") < stopped.index("step 8/8")
    assert "stopped after step 8 of 8, before its validation" in stopped
    resumed = train(place, *common, "--epochs", "2").stdout
    assert "step 8  top-1" in resumed and "nothing was left to train" in resumed
    figures = json.loads((place / "outputs" / "throughput.json").read_text())
    assert figures["images_per_sec"] is None and figures["top1"] is not None
    assert (place / "outputs" / "model.pt").exists()
    assert "top-1" not in train(place, *common, "--epochs", "2").stdout


def test_three_ranks_resume_bit_for_bit(place: Path) -> None:
    """The all-reduce of three adds in an order that depends on how the gradients lie in its buffers."""
    common = ("--batch-size", "4", "--decay", "none", "--log-every", "1")
    train(place, *common, "--steps", "6", "--out", "whole", ranks=3)
    train(place, *common, "--steps", "3", "--checkpoints", "c", ranks=3)
    train(place, *common, "--steps", "6", "--checkpoints", "c", "--out", "resumed", ranks=3)
    models = [torch.load(place / name / "model.pt", weights_only=True) for name in ("whole", "resumed")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_the_noise_scale_goes_on_with_what_was_estimated_before(place: Path) -> None:
    common = ("--batch-size", "4", "--decay", "none", "--noise-scale")
    train(place, *common, "--steps", "6", "--checkpoints", "whole", ranks=2)
    train(place, *common, "--steps", "4", "--checkpoints", "resumed", ranks=2)
    train(place, *common, "--steps", "6", "--checkpoints", "resumed", ranks=2)
    saved = [torch.load(place / name / "step_6" / "rank_00000.pt", weights_only=True) for name in ("whole", "resumed")]
    whole, resumed = (own["progress"]["noise"] for own in saved)
    assert resumed == whole and whole["noise"] != 0


def printed(said: str) -> dict[int, float]:
    lines = [line.split() for line in said.splitlines() if line.startswith("step ") and "loss" in line]
    return {int(words[1].split("/")[0]): float(words[3]) for words in lines}
