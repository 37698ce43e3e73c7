"""The noise scale of a problem whose answer is known, and what follows from it."""

import pytest
import torch

from muster.training import NoiseScale, advise


def estimate(noise_sd, small, big, dimensions=200, steps=300):
    """Gradients of one direction with noise: the scale is the variance of the noise over the square of the signal."""
    source = torch.Generator().manual_seed(0)
    signal = torch.ones(dimensions) / dimensions**0.5
    scale = NoiseScale(small, big, decay=0.99)
    for _ in range(steps):
        samples = signal + noise_sd * torch.randn(big, dimensions, generator=source)
        parts = samples.split(small)
        small_sq = torch.stack([part.mean(0).square().sum() for part in parts]).mean()
        scale.observe(small_sq, samples.mean(0).square().sum())
    return scale.value


@pytest.mark.parametrize("noise_sd", [0.1, 0.3, 0.6])
def test_a_known_noise_is_found(noise_sd):
    assert estimate(noise_sd, 4, 32) == pytest.approx(200 * noise_sd**2, rel=0.2)


def test_before_the_first_step_there_is_no_value():
    assert NoiseScale(1, 2).value is None


def test_without_a_signal_there_is_no_value():
    scale = NoiseScale(1, 2)
    scale.observe(torch.tensor(1.0), torch.tensor(0.2))
    assert scale.value is None


def test_a_step_that_overflowed_does_not_spoil_the_estimate():
    scale = NoiseScale(2, 4)
    scale.observe(torch.tensor(2.0), torch.tensor(1.5))
    expected = scale.value
    scale.observe(torch.tensor(float("inf")), torch.tensor(float("inf")))
    scale.observe(torch.tensor(2.0), torch.tensor(float("nan")))
    assert scale.value == expected == 2.0


def test_one_batch_size_is_not_enough():
    with pytest.raises(ValueError, match=r"given 32 and 32.*One rank has only one"):
        NoiseScale(32, 32)


def test_a_step_without_a_backward_is_an_error():
    with pytest.raises(RuntimeError, match="after a synchronised backward"):
        NoiseScale(1, 2).step()


def test_far_below_the_noise_scale_a_larger_batch_pays():
    advice = advise(100, 10_000)
    assert advice.pays and advice.doubling_saves == pytest.approx(0.495, abs=0.001)
    assert "still helps; one above about 10,000 would stop helping" in advice.text


def test_far_above_it_does_not():
    advice = advise(10_000, 100)
    assert not advice.pays and advice.doubling_saves < 0.01 and advice.extra_samples == 101
    assert "a batch above about 100 stops helping" in advice.text


def test_nonsense_is_refused():
    for batch, scale in ((0, 10), (8, float("inf")), (8, float("nan"))):
        with pytest.raises(ValueError, match="both must be positive, and finite"):
            advise(batch, scale)
    with pytest.raises(ValueError, match="no noise scale to advise on"):
        advise(8, NoiseScale(1, 2).value)
    with pytest.raises(TypeError, match="Linear does not reduce gradients"):
        NoiseScale(4, 8).attach(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("scale", "said"), [(0.2, "1"), (9.6, "10"), (1234.0, "1,200"), (4321.0, "4,000"), (98765.0, "100,000")]
)
def test_the_advice_is_no_more_exact_than_the_estimate(scale, said):
    assert f"above about {said} " in advise(10, scale).text
