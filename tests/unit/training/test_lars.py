"""LARS takes the step that the paper describes."""

import pytest
import torch

from muster.training import LARS


def a_step(weight, gradient, buffer=0.0, **group):
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = LARS([{"params": [parameter], **group}], lr=0.5, momentum=0.9, weight_decay=0.1, trust=0.02, eps=0.0)
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
