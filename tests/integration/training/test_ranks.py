"""What only several ranks can show, in one launch of two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.training.conftest import BIN, EXAMPLE


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("ranks.py")
    done = subprocess.run(
        [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", str(script), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((folder / "found.json").read_text()))


def test_accumulated_gradients_make_the_step_of_the_large_batch(found: dict[str, Any]) -> None:
    whole, in_parts = found["accumulation"]
    assert in_parts == pytest.approx(whole, abs=1e-6)
    assert whole == pytest.approx(step_of_one_process(), abs=1e-6)


def step_of_one_process() -> list[float]:
    """Both ranks' images in one batch."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    source = torch.Generator().manual_seed(5)
    images, labels = torch.randn(16, 3, 32, 32, generator=source), torch.randint(10, (16,), generator=source)
    nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()][:40]


def test_validation_on_two_ranks_equals_that_of_one(found: dict[str, Any]) -> None:
    script = f"""
import json, sys
sys.path.append({str(EXAMPLE)!r}); sys.path.append({str(Path(__file__).parent)!r})
import torch; torch.set_num_threads(1)
from ranks import validation
from muster.training import join
print(json.dumps(validation(join({{}}))))
"""
    alone = json.loads(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    )
    assert found["validation"]["top1"] == alone["top1"] and found["validation"]["top5"] == alone["top5"]
    assert found["validation"]["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-5)


def test_the_hook_leaves_the_gradient_as_it_should_be(found: dict[str, Any]) -> None:
    value, reduced = found["noise"]
    torch.manual_seed(0)
    layer = torch.nn.Linear(20, 3)
    sources = [torch.Generator().manual_seed(7 + rank) for rank in range(2)]
    for _ in range(3):
        layer.zero_grad()
        inputs = torch.cat([torch.randn(4, 20, generator=source) + 1 for source in sources])
        layer(inputs).square().mean().backward()
    assert reduced == pytest.approx(sum(p.grad.square().sum().item() for p in layer.parameters()), rel=1e-4)
    assert value > 0


def test_every_rank_writes_its_share(found: dict[str, Any]) -> None:
    names = found["sharded"]["names"]
    assert {".metadata", "__0_0.distcp", "__1_0.distcp", "rank_00000.json", "rank_00001.json"} <= set(names)
    assert found["sharded"]["same"] and found["sharded"]["rank"] == 0


def test_running_statistics_are_those_of_the_first_rank(found: dict[str, Any]) -> None:
    assert found["sharded"]["one_statistic"]


def test_a_fully_sharded_model_comes_back_with_its_optimizer(found: dict[str, Any]) -> None:
    assert found["fsdp"]


def test_every_rank_is_told_that_another_training_has_the_folder(found: dict[str, Any]) -> None:
    first, second = found["refused"]
    assert first == second and "rank 0: InUse: another training writes its checkpoints there" in first


def test_a_checkpoint_that_fails_with_a_rank_that_died_is_told(found: dict[str, Any]) -> None:
    assert "the last checkpoint could not be written" in found["alone"]
    assert "another rank did not take part, or has ended" in found["alone"]
    assert "Every rank must call save(), load() and close(), not rank 0 alone" in found["alone"]


def test_ranks_that_save_after_different_steps_are_told(found: dict[str, Any]) -> None:
    assert all("different numbers of steps (5, 6)" in said for said in found["apart"]) and len(found["apart"]) == 2


def test_ranks_share_add_and_agree(found: dict[str, Any]) -> None:
    assert found["shared"] == [[1.0, 1.0, 1.0], [3.0], True]
