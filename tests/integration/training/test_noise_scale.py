"""The predicted critical batch against a real small training at several batch sizes."""

from __future__ import annotations

import pytest
import torch
from tests.integration.training.clouds import PARTS, steps_to

from muster.training import NoiseScale, advise

TARGET = 1.54
RATES = (0.8, 0.4, 0.2, 0.1)
BATCHES = (4096, 1024, 256, 64)


@pytest.fixture(scope="module")
def measured() -> dict[int, tuple[int, float]]:
    """Steps to the target at each batch, with the rate that needs the fewest."""
    torch.set_num_threads(1)
    found = {}
    for batch in BATCHES:
        best = (500, RATES[0])
        for rate in RATES:
            best = min(best, (steps_to(TARGET, batch, rate, best[0]), rate))
        found[batch] = best
    return found


@pytest.fixture(scope="module")
def predicted(measured: dict[int, tuple[int, float]]) -> float:
    """The noise scale, watched while training at one of the batches."""
    steps, rate = measured[256]
    scale = NoiseScale(256 // PARTS, 256, decay=0.999)
    steps_to(TARGET, 256, rate, steps, scale)
    assert scale.value is not None
    return scale.value


def test_the_predicted_critical_batch_is_the_measured_one(
    measured: dict[int, tuple[int, float]], predicted: float
) -> None:
    """Steps are `least * (1 + critical / batch)`; fitted to what was measured, in proportion."""
    steps = torch.tensor([float(measured[batch][0]) for batch in BATCHES])
    rows = torch.stack([1 / steps, 1 / (steps * torch.tensor(BATCHES))], dim=1)
    least, slope = torch.linalg.lstsq(rows, torch.ones(len(BATCHES), 1)).solution.flatten().tolist()
    critical = slope / least
    assert critical / 3 < predicted < critical * 3, f"predicted {predicted:.0f}, measured {critical:.0f}: {measured}"


def test_the_advice_is_borne_out(measured: dict[int, tuple[int, float]], predicted: float) -> None:
    assert advise(64, predicted).pays and not advise(4096, predicted).pays
    # Four times the batch saves most of the steps below the critical batch, and little above it.
    assert measured[256][0] < 0.5 * measured[64][0]
    assert measured[4096][0] > 0.5 * measured[1024][0]
