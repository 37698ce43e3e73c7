"""A loss that is not a number any more."""

from muster.control.divergence import diverged, is_noted
from muster.wire.runs import MetricPoint


def point(name: str, value: object, step: float | None = 3, rank: int | None = 0) -> MetricPoint:
    return MetricPoint(name, value, step, rank, "rank_0", "scalar", 0.0, 1)  # type: ignore[arg-type]


def test_the_first_loss_that_is_no_number_is_named_with_its_step_and_rank() -> None:
    text = diverged([point("train_loss", 0.5, 1), point("train_loss", "NaN", 2, 1), point("train_loss", "NaN", 3)])
    assert text is not None
    assert text.startswith("train_loss of rank 1 is not a number since step 2 (NaN)")


def test_losses_by_their_usual_names_count() -> None:
    for name in ("loss", "Loss", "train/loss", "val_loss", "loss/total", "eval.loss"):
        assert diverged([point(name, "Infinity")]), name


def test_other_metrics_and_texts_are_no_news() -> None:
    assert (
        diverged([point("glossary", "NaN"), point("accuracy", "NaN"), point("loss", "none"), point("loss", 1e30)])
        is None
    )


def test_it_is_said_once() -> None:
    text = diverged([point("loss", "NaN", None, None)])
    assert text is not None and text.startswith("loss is not a number (NaN)")
    assert is_noted(["another notice", text])
    assert not is_noted(["another notice"])
