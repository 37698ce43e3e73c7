"""The formulas against other ways to the same numbers: PyTorch's schedulers, plain loops, definitions."""

import math
from argparse import Namespace

import pytest
import torch
import validate
from step import Step
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, MultiStepLR, SequentialLR

from muster.training import LARS, NoiseScale, join, learning_rate

BASE, SCALE = 0.1, 16.0


def rates_of(make_decay, epochs):
    """What PyTorch's own schedulers have at each epoch, after five epochs of warm-up."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=BASE * SCALE)
    warm_up = LinearLR(optimizer, start_factor=1 / SCALE, end_factor=1.0, total_iters=5)
    schedule = SequentialLR(optimizer, [warm_up, make_decay(optimizer)], milestones=[5])
    found = []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("decay", "make_decay"),
    [
        ("step", lambda optimizer: MultiStepLR(optimizer, [25, 55, 75], gamma=0.1)),
        ("cosine", lambda optimizer: CosineAnnealingLR(optimizer, T_max=85)),
    ],
)
def test_the_rate_is_that_of_pytorchs_schedulers(decay, make_decay):
    own = [learning_rate(epoch, base=BASE, scale=SCALE, decay=decay, epochs=90) for epoch in range(90)]
    assert own == pytest.approx(rates_of(make_decay, 90), rel=1e-5)


class Still(nn.Module):
    """Gives the scores that it was told, whatever the images."""

    def __init__(self, scores):
        super().__init__()
        self.scores = nn.Parameter(scores)

    def forward(self, images):
        return self.scores


def test_a_smoothed_loss_is_the_cross_entropy_to_the_smoothed_label():
    scores = torch.randn(4, 7, generator=torch.Generator().manual_seed(1))
    labels, smoothing = [3, 0, 6, 3], 0.1
    expected = 0.0
    for row, label in zip(scores.double().tolist(), labels, strict=True):
        total = sum(math.exp(score) for score in row)
        for number, score in enumerate(row):
            wanted = smoothing / 7 + (1 - smoothing if number == label else 0)
            expected -= wanted * math.log(math.exp(score) / total) / 4
    args = Namespace(
        accumulate=1,
        backend="torch",
        noise_scale=False,
        compile="off",
        amp="off",
        label_smoothing=smoothing,
        optimizer="sgd",
        momentum=0.9,
        weight_decay=0.0,
        channels_last=False,
    )
    step = Step(args, join({}), Still(scores))
    assert step(torch.zeros(4, 3, 2, 2), torch.tensor(labels), 0.0).item() == pytest.approx(expected, rel=1e-5)


def test_lars_follows_the_papers_update_over_many_steps():
    """v = m v + rate * trust * |w| / (|g| + decay |w|) * (g + decay w);  w = w - v."""
    source = torch.Generator().manual_seed(2)
    weights = [torch.randn(5, 3, generator=source), torch.randn(4, generator=source)]
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = LARS(
        [{"params": parameters, "adapt": True}], lr=0.0, momentum=0.9, weight_decay=1e-2, trust=0.02, eps=0.0
    )
    plain = [weight.double().flatten().tolist() for weight in weights]
    speeds = [[0.0] * len(weight) for weight in plain]
    for number in range(20):
        rate = 0.5 / (1 + number)
        optimizer.param_groups[0]["lr"] = rate
        for parameter, w, v in zip(parameters, plain, speeds, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=source)
            g = parameter.grad.double().flatten().tolist()
            norms = [math.sqrt(sum(x * x for x in values)) for values in (w, g)]
            local = 0.02 * norms[0] / (norms[1] + 1e-2 * norms[0])
            v[:] = [0.9 * old + rate * local * (slope + 1e-2 * x) for old, slope, x in zip(v, g, w, strict=True)]
            w[:] = [x - speed for x, speed in zip(w, v, strict=True)]
        optimizer.step()
    for parameter, w in zip(parameters, plain, strict=True):
        assert parameter.detach().flatten().tolist() == pytest.approx(w, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("small", "big"), [(1, 2), (8, 64), (256, 8192)])
def test_the_noise_scale_of_expected_norms_is_its_definition(small, big):
    """A batch of B has the expected squared norm |G|^2 + tr(S) / B, and the noise scale is tr(S) / |G|^2."""
    signal, trace = 0.25, 300.0
    scale = NoiseScale(small, big)
    for _ in range(3):
        scale.observe(*(torch.tensor(signal + trace / size, dtype=torch.float64) for size in (small, big)))
    assert scale.value == pytest.approx(trace / signal, rel=1e-6)


def test_hits_are_those_of_a_plain_loop():
    source = torch.Generator().manual_seed(3)
    scores, labels = torch.randn(37, 20, generator=source), torch.randint(20, (37,), generator=source)
    labels[::6] = -1
    images = top1 = top5 = 0
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        if label < 0:
            continue
        better = sum(score > row[label] for score in row)
        images, top1, top5 = images + 1, top1 + (better == 0), top5 + (better < 5)
    assert 0 < images < 37 and top1 < top5 < images
    assert validate.count(scores, labels)[:3].tolist() == [images, top1, top5]
