"""LARS takes the step that the paper describes."""

import pytest
import torch

from muster.training import LARS


def a_step(weight, gradient, buffer=0.0, **group):
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = LARS(
        [{"params": [parameter], "adapt": True, **group}], lr=0.5, momentum=0.9, weight_decay=0.1, trust=0.02, eps=0.0
    )
    if buffer:
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, buffer)
    parameter.grad = torch.tensor(gradient)
    optimizer.step()
    return parameter.tolist()


def test_a_step_by_hand():
    # |w| = 5, |g| = 10: the local rate is 0.02 * 5 / (10 + 0.1 * 5).
    local = 0.02 * 5 / 10.5
    expected = [3 - 0.5 * local * (6 + 0.1 * 3), 4 - 0.5 * local * (8 + 0.1 * 4)]
    assert a_step([3.0, 4.0], [6.0, 8.0]) == pytest.approx(expected)


def test_momentum_is_of_steps_not_of_gradients():
    local = 0.02 * 5 / 10.5
    expected = [3 - (0.9 * 0.25 + 0.5 * local * 6.3), 4 - (0.9 * 0.25 + 0.5 * local * 8.4)]
    assert a_step([3.0, 4.0], [6.0, 8.0], buffer=0.25) == pytest.approx(expected)


def test_a_group_that_does_not_adapt_takes_the_plain_step():
    expected = [3 - 0.5 * 6.0, 4 - 0.5 * 8.0]
    assert a_step([3.0, 4.0], [6.0, 8.0], adapt=False, weight_decay=0.0) == pytest.approx(expected)


def test_weights_of_zero_can_leave_zero():
    assert a_step([0.0, 0.0], [6.0, 8.0]) == pytest.approx([-3.0, -4.0])


def test_a_negative_rate_is_refused():
    with pytest.raises(ValueError, match="lr is -1"):
        LARS([torch.nn.Parameter(torch.zeros(1))], lr=-1)


def test_left_to_itself_it_leaves_biases_and_normalisation_alone():
    weight, bias = torch.nn.Parameter(torch.full((2, 2), 2.0)), torch.nn.Parameter(torch.full((2,), 2.0))
    optimizer = LARS([weight, bias], lr=0.5, momentum=0.0, weight_decay=0.1, trust=0.02, eps=0.0)
    weight.grad, bias.grad = torch.ones(2, 2), torch.ones(2)
    optimizer.step()
    # |w| = 4, |g| = 2: the local rate is 0.02 * 4 / (2 + 0.1 * 4).
    assert weight[0, 0].item() == pytest.approx(2 - 0.5 * (0.02 * 4 / 2.4) * 1.2)
    assert bias.tolist() == pytest.approx([1.5, 1.5])


def test_its_own_defaults_are_the_published_ones():
    defaults = LARS([torch.nn.Parameter(torch.zeros(1))]).defaults
    assert defaults["lr"] == 2.5
    assert (defaults["momentum"], defaults["weight_decay"], defaults["trust"]) == (0.9, 1e-4, 0.001)
