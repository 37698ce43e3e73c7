"""LAMB takes the step that the paper describes, and Adam's where it does not adapt."""

import math

import pytest
import torch

from muster.training import LAMB, Checkpointer


def by_the_formula(weight, gradients, *, lr, betas=(0.9, 0.999), eps=1e-6, decay=0.01):
    """Plain numbers, one after the other."""
    mean, square = [0.0] * len(weight), [0.0] * len(weight)
    for count, gradient in enumerate(gradients, 1):
        mean = [betas[0] * m + (1 - betas[0]) * g for m, g in zip(mean, gradient, strict=True)]
        square = [betas[1] * v + (1 - betas[1]) * g * g for v, g in zip(square, gradient, strict=True)]
        steps = [
            (m / (1 - betas[0] ** count)) / (math.sqrt(v / (1 - betas[1] ** count)) + eps) + decay * w
            for m, v, w in zip(mean, square, weight, strict=True)
        ]
        ratio = math.hypot(*weight) / math.hypot(*steps)
        weight = [w - lr * ratio * step for w, step in zip(weight, steps, strict=True)]
    return weight


GRADIENTS = [[6.0, -8.0], [1.0, 2.0], [-3.0, 0.5]]


def test_three_steps_by_the_formula():
    parameter = torch.nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    optimizer = LAMB([parameter], lr=0.1)
    for gradient in GRADIENTS:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    assert parameter[0].tolist() == pytest.approx(by_the_formula([3.0, 4.0], GRADIENTS, lr=0.1), rel=1e-9)


def test_what_does_not_adapt_takes_the_step_of_adam():
    own, theirs = (torch.nn.Parameter(torch.tensor([3.0, 4.0])) for _ in range(2))
    mine = LAMB([own], lr=0.1, eps=1e-8)
    adam = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.0)
    for gradient in GRADIENTS:
        own.grad, theirs.grad = torch.tensor(gradient), torch.tensor(gradient)
        mine.step()
        adam.step()
    torch.testing.assert_close(own, theirs)


def test_weights_of_zero_can_leave_zero():
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.ones(2, 2)
    LAMB([parameter], lr=0.1, weight_decay=0.0).step()
    assert parameter[0, 0].item() == pytest.approx(-0.1, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": -1.0}, "lr is -1"),
        ({"betas": (0.9, 1.0)}, r"betas are \(0.9, 1.0\)"),
        ({"betas": (0.9,)}, "there are two"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        LAMB([torch.nn.Parameter(torch.zeros(1))], **options)


def test_it_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path):
    def fresh():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, LAMB(model.parameters(), lr=0.1)

    def train(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            model(torch.full((1, 3), float(step))).square().sum().backward()
            optimizer.step()

    whole, optimizer = fresh()
    train(whole, optimizer, range(1, 7))
    first, optimizer = fresh()
    train(first, optimizer, range(1, 4))
    keeper = Checkpointer(first, optimizer, tmp_path)
    keeper.save(3)
    keeper.close()
    second, optimizer = fresh()
    Checkpointer(second, optimizer, tmp_path).load()
    train(second, optimizer, range(4, 7))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))
