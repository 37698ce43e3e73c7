"""Rates without the warm-up, and the wait for data apart; with a clock that the test turns."""

import subprocess
import sys

import pytest
import torch

from muster.training import Throughput, join
from muster.training import throughput as module


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def sleep(self, seconds):
            self.now += seconds

    found = Clock()
    monkeypatch.setattr(module.time, "perf_counter", lambda: found.now)
    return found


def train(clock, meter, waits, computes, samples=10):
    def batches():
        for wait in waits:
            clock.sleep(wait)
            yield wait

    for compute, _ in zip(computes, meter.wait_for(batches()), strict=True):
        clock.sleep(compute)
        meter.step(samples)


def test_the_warm_up_is_left_out_and_data_time_is_apart(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=2)
    train(clock, meter, [5, 5, 1, 1, 2], [5, 5, 1, 3, 2])
    total = meter.total(join({}))
    assert total["samples_per_s"] == total["samples_per_s_per_device"] == 30 / 10
    assert (total["seconds"], total["data_s"], total["compute_s"]) == (10, [4], [6])
    assert (total["counted_steps"], total["warmup_steps"], total["median_step_s"]) == (3, 2, 4)
    assert (meter.data_s, meter.compute_s) == (14, 16)


def test_what_the_script_does_between_two_steps_is_no_wait_for_data(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=0)
    for _ in meter.wait_for(range(3)):
        clock.sleep(1)
        meter.step(10)
        clock.sleep(9)  # saves, logs
    assert (meter.rates().data_s, meter.rates().compute_s) == (0, 21)


def test_rates_are_of_the_steps_since_the_last_call(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=0)
    train(clock, meter, [1], [1])
    assert meter.rates().samples_per_s == 5
    train(clock, meter, [1, 1], [3, 5])
    rates = meter.rates()
    assert (rates.samples_per_s, rates.step_s, rates.data_s, rates.compute_s) == (2, 5, 3, 9)
    assert meter.rates().samples_per_s == 0


def test_a_pause_counts_for_nothing(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=0)
    train(clock, meter, [1], [1])
    with meter.paused():
        clock.sleep(100)
    train(clock, meter, [1], [1])
    assert meter.total(join({}))["samples_per_s"] == 5


def test_what_happens_beside_a_pause_counts(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=0)
    train(clock, meter, [1], [1])
    clock.sleep(6)  # saves
    for _ in range(2):
        with meter.paused():
            clock.sleep(100)
    train(clock, meter, [1], [1])
    assert meter.total(join({}))["seconds"] == 10


def test_a_training_that_never_left_the_warm_up_has_no_rate(clock):
    meter = Throughput(torch.device("cpu"), warmup_steps=5)
    train(clock, meter, [1], [1])
    assert meter.total(join({}))["samples_per_s"] == 0


def test_it_needs_no_torch(tmp_path):
    """For TensorFlow, Keras and JAX, as do the checkpoints of arrays and the schedule."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from muster.training import ArrayCheckpointer, Throughput, learning_rate\n"
        "meter = Throughput(warmup_steps=0)\n"
        "meter.step(3)\n"
        "class Alone:\n"
        "    size = 1\n"
        "    def gather(self, value): return [value]\n"
        "print(meter.total(Alone())['counted_steps'], ArrayCheckpointer('kept').load(), learning_rate(9, base=0.5))\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "1 None 0.5\n", done.stderr
