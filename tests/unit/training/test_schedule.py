"""The learning rate of the published large-batch recipe."""

import pytest

from muster.training import batch_size, learning_rate


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, 0.1),
        (2.5, 1.65),
        (5, 3.2),
        (29.99, 3.2),
        (30, 0.32),
        (59.99, 0.32),
        (60, 0.032),
        (80, 0.0032),
        (89.9, 0.0032),
    ],
)
def test_the_published_values_for_a_batch_of_8192(epoch, expected):
    assert learning_rate(epoch, base=0.1, scale=8192 / 256) == pytest.approx(expected)


def test_the_rate_grows_with_the_batch():
    assert learning_rate(10, base=0.1, scale=4) == pytest.approx(4 * learning_rate(10, base=0.1, scale=1))


def test_a_batch_that_is_not_larger_needs_no_warm_up():
    assert {learning_rate(epoch, base=0.1, scale=0.5) for epoch in (0, 1, 4.9, 5)} == {0.05}


def test_a_cosine_ends_at_nothing():
    at = {epoch: learning_rate(epoch, base=0.1, scale=8, decay="cosine", epochs=90) for epoch in (5, 47.5, 90, 95)}
    assert at == pytest.approx({5: 0.8, 47.5: 0.4, 90: 0.0, 95: 0.0})


@pytest.mark.parametrize("epoch", [0, 9])
def test_an_unknown_decay_is_refused_at_once_with_the_known_ones(epoch):
    with pytest.raises(ValueError, match="'linear'; it is one of step, cosine, none"):
        learning_rate(epoch, base=0.1, decay="linear")


@pytest.mark.parametrize(("epoch", "warmup"), [(-1, 5), (float("nan"), 5), (1, -1)])
def test_times_before_the_start_are_refused(epoch, warmup):
    with pytest.raises(ValueError, match="must not be negative"):
        learning_rate(epoch, base=0.1, warmup_epochs=warmup)


def test_a_batch_doubles_until_it_is_what_it_should_become():
    sizes = [batch_size(epoch, first=256, last=4096, ramp_epochs=8) for epoch in range(10)]
    assert sizes == [256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096]
    assert {batch_size(epoch / 10, first=100, last=300, ramp_epochs=2) for epoch in range(30)} == {100, 200, 300}
    assert batch_size(0, first=64, last=64, ramp_epochs=5) == batch_size(0, first=8, last=64, ramp_epochs=0) == 64


@pytest.mark.parametrize(
    ("first", "last", "epochs", "named"), [(0, 4, 1, "first=0"), (8, 4, 1, "last=4"), (1, 2, -1, "ramp_epochs=-1")]
)
def test_a_batch_that_cannot_grow_so_is_refused(first, last, epochs, named):
    with pytest.raises(ValueError, match=named):
        batch_size(0, first=first, last=last, ramp_epochs=epochs)
