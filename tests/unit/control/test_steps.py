"""Steps that scripts print: read where they are plain, left alone where they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.steps import Counted, read_line
from muster.wire.runs import Progress


def last(*lines: str) -> tuple[float | None, float | None, str | None] | None:
    """What is known of the progress after these lines."""
    known, found = Counted(), None
    for line in lines:
        known, progress = read_line(known, line)
        found = progress or found
    return None if found is None else (found.done, found.total, found.unit)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step 40/100 loss 0.3"], (40, 100, "steps")),
        (["2026-11-16 10:00:00,123 INFO root: Step: 40/100"], (40, 100, "steps")),
        (["[rank 0] iteration 7 of 9"], (7, 9, "steps")),
        (["Epoch 3/10"], (2, 10, "epochs")),
        (["Epoch 3/10, loss=0.25"], (3, 10, "epochs")),
        (["Epoch [3/10], Step [50/100], Loss: 0.1"], (2.5, 10, "epochs")),
        (["Train Epoch: 3/10 batch 25/100"], (2.25, 10, "epochs")),
        # Keras, old and new.
        (["Epoch 3/10", " 45/100 [=====>......] - ETA: 1s - loss: 0.5"], (2.45, 10, "epochs")),
        (
            ["Epoch 3/10", "\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━\x1b[0m\x1b[37m━━━━\x1b[0m 1s 10ms/step"],
            (2.45, 10, "epochs"),
        ),
        # tqdm and Transformers.
        ([" 45%|████▌     | 45/100 [00:04<00:05,  9.90it/s]"], (45, 100, "steps")),
        (["Epoch 3/10:  45%|####5     | 45/100 [00:04<00:05, 9.9it/s, loss=0.3]"], (2.45, 10, "epochs")),
        # An evaluation's bar beside the training's.
        ([" 45%|####  | 45/100 [00:04<00:05]", " 10%|#     | 1/10 [00:01<00:09]"], (45, 100, "steps")),
        # Lightning: the bar of an epoch, and its other bar.
        (["Epoch 3:  45%|████▌     | 45/100 [00:04<00:05, 9.9it/s, v_num=0]"], (3.45, None, "epochs")),
        (["Epoch 3/9 ━━━━━━━╺━━━ 45/100 0:00:04 • 0:00:05 9.90it/s"], (3.45, 10, "epochs")),
    ],
)
def test_what_frameworks_and_people_print(lines: list[str], expected: tuple[float, float | None, str]) -> None:
    assert last(*lines) == expected


@pytest.mark.parametrize(
    "line",
    [
        "Downloading batch 3/10",
        "see step 1/2 of the manual at https://example.org/steps/1/2",
        "date 3/10/2026",
        "accuracy 45/100",
        "step 11/10",
        "Epoch 0/10 begins",
        "epoch 3/10.5",
        "step 5/0",
        "Extracting: 45% 45/100",
        "99%|####| 45/100 [00:04<00:05]",
        "step 99999999999999999999/99999999999999999999",
        "multistep 3/10",
    ],
)
def test_what_counts_something_else_is_left_alone(line: str) -> None:
    assert last(line) is None


def test_a_bar_that_begins_again_says_nothing_of_the_whole() -> None:
    known = Counted()
    for line in ("100%|####| 10/10 [00:01<00:00]", " 10%|#   | 1/10 [00:00<00:01]"):
        known, found = read_line(known, line)
    assert found is None
    assert read_line(known, " 20%|##  | 2/10 [00:00<00:01]")[1] is None


@given(st.text(max_size=400), st.lists(st.text(max_size=60), max_size=4))
def test_garbage_is_never_an_error_and_never_more_than_the_whole(line: str, before: list[str]) -> None:
    known = Counted()
    for item in (*before, line, "step " + line, "Epoch " + line, line + "%|" + line):
        known, found = read_line(known, item)
        assert found is None or found.total is None or 0 <= (found.done or 0) <= found.total


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line", ["1" * 400, " " * 399 + "x", "epoch " * 66, "[" * 400, "epoch" + " " * 394, "%|" * 200]
)
def test_lines_that_would_make_a_careless_pattern_try_for_ever(line: str) -> None:
    assert all(read_line(Counted(), line + "/1")[1] is None for _ in range(50))


def test_progress_is_what_views_show() -> None:
    assert read_line(Counted(), "step 4/8")[1] == Progress(4, 8, "steps")
