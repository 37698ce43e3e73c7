"""The parts of the examples for other ways to parallelise, without ranks."""

import itertools
from dataclasses import replace

import parameter_server
import picture
import pytest
import torch
from language import BEST_ACCURACY, TOKENS, layers, pairs, texts, transformer
from pipeline import stage_of
from tests.unit.training.conftest import EXAMPLES
from timeline import Span, span_of

from muster.job.jobfile import load_job_file


@pytest.mark.parametrize("path", sorted((EXAMPLES / "parallel").glob("*.yml")), ids=lambda path: path.stem)
def test_a_job_file_starts_a_script_that_is_there(path):
    loaded = load_job_file(path)
    assert not loaded.notices
    script = str(loaded.spec.command).split("python ", 1)[1].split()[0].strip("',")
    assert (path.parent / script).exists()


def test_the_language_is_as_predictable_as_it_says():
    text = texts(2000, seed=5)
    assert text.shape == (2000, 17) and torch.equal(text, texts(2000, seed=5)) and not torch.equal(text, texts(2000, 6))
    counts = torch.zeros(TOKENS, TOKENS, TOKENS)
    for begin in range(15):
        a, b, c = text[:, begin], text[:, begin + 1], text[:, begin + 2]
        counts.index_put_((a, b, c), torch.ones(2000), accumulate=True)
    assert counts.max(-1).values.sum() / counts.sum() == pytest.approx(BEST_ACCURACY, abs=0.01)
    inputs, labels = pairs(10, seed=1)
    assert layers(width=16)(inputs).shape == (10, TOKENS) and labels.max() < TOKENS


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_stages_together_are_the_model(stages):
    model = transformer(width=16, blocks=4)
    parts = [stage_of(model, index, stages) for index in range(stages)]
    text = texts(2, seed=1)[:, :-1]
    seen = text
    for part in parts:
        seen = part(seen)
    assert torch.equal(seen, model(text))
    names = [name for part in parts for name in part.state_dict()]
    assert sorted(names) == sorted(model.state_dict()) and len(names) == len(set(names))


def test_stages_that_would_not_be_equal_are_refused():
    with pytest.raises(SystemExit, match="4 blocks cannot be divided into 3 equal stages"):
        stage_of(transformer(width=16, blocks=4), 0, 3)


def test_a_worker_that_is_too_far_ahead_is_held():
    clocks = {1: 5, 2: 3, 3: 2}
    assert parameter_server.may_go_on({1, 2, 3}, clocks, staleness=0) == {3}
    assert parameter_server.may_go_on({1, 2}, clocks, staleness=1) == {2}
    assert parameter_server.may_go_on({1, 2}, clocks, staleness=3) == {1, 2}


def test_events_of_the_profiler_become_spans():
    assert span_of("forward 3 7", 1, 0.0, 1.0) == Span(1, "forward", 3, 7, 0.0, 1.0)
    assert span_of("backward", 1, 0.0, 1.0) == Span(1, "backward", 1, None, 0.0, 1.0)
    assert span_of("gloo:all_reduce", 0, 0.0, 1.0) == Span(0, "exchange", 0, None, 0.0, 1.0)
    assert span_of("aten::add", 0, 0.0, 1.0) is None


def recorded(orders):
    """Spans in the order in which ranks did things, with times that say nothing."""
    return [
        Span(rank, "forward" if what[0] == "F" else "backward", rank, int(what[1:]), number, number + 0.1)
        for rank, order in enumerate(orders)
        for number, what in enumerate(order)
    ]


def test_a_pipeline_with_even_times_idles_as_long_as_the_formula_says():
    both = [[f"F{number}" for number in range(6)] + [f"B{number}" for number in range(6)]] * 3
    spans = picture.even(recorded(both))
    assert picture.idle_share(spans) == pytest.approx(2 / 8)
    assert picture.most_kept(spans) == 6
    for rank in range(3):
        own = sorted((span for span in spans if span.rank == rank), key=lambda span: span.begin)
        assert all(one.end <= other.begin for one, other in itertools.pairwise(own))


def test_what_waits_for_something_that_is_not_there_is_an_error():
    with pytest.raises(SystemExit, match="not whole"):
        picture.even(recorded([["F0", "B0"], ["B0"]]))
    with pytest.raises(SystemExit, match="no micro-batches"):
        picture.even([Span(0, "forward", 0, None, 0.0, 1.0)])


def test_ranks_that_share_a_stage_take_as_long_as_one():
    order = ["F0", "B0"]
    spans = [replace(span, stage=span.rank // 2) for span in recorded([order] * 4)]
    assert max(span.end for span in picture.even(spans)) == 6
