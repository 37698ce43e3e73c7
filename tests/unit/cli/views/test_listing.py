"""The table of `muster ps` at the widths of real terminals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sites.screens import golden

from muster.cli.console import Paint
from muster.cli.views.columns import Column, cut, fit
from muster.cli.views.listing import (
    in_order,
    listing,
    parse_columns,
    server_order,
    summary_columns,
    unknown_columns,
)
from muster.cli.views.metrics import figure
from muster.cli.views.run import everything, summary
from muster.errors import UserError
from muster.wire.tracking import RunMetric, SummaryQuery

PLAIN = Paint(color=False)
SCREENS = Path(__file__).parent / "screens"
View = Callable[..., Any]

LONG = (
    "rank 3 on gpu-7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.10 GiB of which 1.12 GiB is free"
)


@pytest.fixture
def views(run_view: View, verdict: dict[str, Any], now: float) -> list[Any]:
    """Runs of every kind: named, failed with a long reason, waiting, silent, one of another experiment."""
    return [
        run_view(id="resnet50-synthetic-k3v9x2ab", name="short-try", display_name="resnet50-synthetic"),
        run_view(
            id="train-a2b3c4d5",
            name=None,
            display_name="train",
            status="Failed",
            verdict={**verdict, "message": LONG},
            metrics={"loss": "NaN"},
        ),
        run_view(
            id="train-b2b3c4d5",
            name=None,
            display_name="train",
            status="Queued",
            started_at=None,
            ended_at=None,
            reason="waits for 2 nodes of gpu: 6 runs are before it, the first of them ends in about 12 minutes",
            starts_between={"low_at": now + 300, "high_at": now + 900},
            metrics={},
        ),
        run_view(
            id="train-c2b3c4d5",
            name=None,
            display_name="train",
            experiment="vision",
            status="Running",
            ended_at=None,
            moved_at=now - 250,
            metrics={"loss": 0.75},
            tags={"team": "vision"},
        ),
    ]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_list_fits_the_terminal(views: list[Any], now: float, columns: int) -> None:
    lines = listing(views, PLAIN, now, columns)
    assert all(len(line) <= columns for line in lines)
    golden(SCREENS / f"ps-{columns}.txt", lines)


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_failed_run_is_shown_in_whole_words(views: list[Any], now: float, columns: int) -> None:
    command = (
        "python train.py --epochs ${{inputs.epochs}} --learning-rate 0.1 --data ${{inputs.images}} --out ./outputs"
    )
    spec = {"command": command, "inputs": {"epochs": 3, "images": {"type": "uri_folder", "path": "./images"}}}
    failed = views[1].__class__(**{**vars(views[1]), "spec": spec, "name": "first"})
    lines = everything(failed, PLAIN, now, columns)
    assert all(len(line) <= columns for line in lines)
    golden(SCREENS / f"show-{columns}.txt", lines)


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_summary_at_a_runs_end_fits_the_terminal(views: list[Any], now: float, columns: int) -> None:
    lines = summary(views[1], PLAIN, now, columns)
    assert all(len(line) <= columns for line in lines)
    golden(SCREENS / f"summary-{columns}.txt", lines)


def test_in_a_pipe_nothing_is_cut(views: list[Any], now: float) -> None:
    assert LONG.removeprefix("rank 3 on gpu-7: ") in "\n".join(listing(views, PLAIN, now))


def test_a_run_that_stands_still_says_so_instead_of_its_rate(views: list[Any], now: float) -> None:
    assert listing(views, PLAIN, now)[-1].endswith("4m 10s without output or metric")
    assert "no output or metric for 4m 10s" in "\n".join(everything(views[3], PLAIN, now))


def test_columns_are_chosen_by_name_metric_tag_and_input(views: list[Any], now: float) -> None:
    lines = listing(views, PLAIN, now, 80, parse_columns("run,loss, tag.team"))
    assert lines[0].split() == ["RUN", "LOSS", "TAG.TEAM"]
    assert lines[-1].split() == ["train-c2b3c4d5", "0.75", "vision"]
    assert lines[2].split() == ["train-a2b3c4d5", "NaN", "vision"]


def test_a_column_that_no_run_has_is_refused_with_the_nearest(views: list[Any]) -> None:
    assert "Did you mean 'loss'?" in unknown_columns(["run", "los"], views)
    assert unknown_columns(["run", "loss", "tag.team", "tags.team"], views) == ""
    with pytest.raises(UserError, match="written small"):
        parse_columns("RUN")


def test_runs_are_sorted_by_a_metric_and_those_without_it_come_last(views: list[Any], now: float) -> None:
    views[0] = views[0].__class__(**{**vars(views[0]), "metrics": {"loss": 0.5}})
    assert [view.metrics.get("loss") for view in in_order(views, "loss", now)] == [0.5, 0.75, "NaN", None]
    assert [view.metrics.get("loss") for view in in_order(views, "-loss", now)] == [0.75, 0.5, "NaN", None]


@pytest.mark.parametrize(
    ("sort", "asked"),
    [
        ("loss", SummaryQuery(metric="loss", by="last", ascending=True)),
        ("-val/acc", SummaryQuery(metric="val/acc", by="last", ascending=False)),
        ("best.loss", SummaryQuery(metric="loss", by="best", ascending=True)),
        ("-max.train.acc", SummaryQuery(metric="train.acc", by="greatest", ascending=False)),
        ("duration", SummaryQuery(sort="duration", ascending=True)),
        ("-user", SummaryQuery(sort="person", ascending=False)),
        ("ranks", None),
        ("tag.team", None),
    ],
)
def test_the_server_is_asked_for_the_order(sort: str, asked: SummaryQuery | None) -> None:
    assert server_order(sort) == asked


def test_columns_of_other_values_than_the_last() -> None:
    assert summary_columns(["run", "loss", "best.loss", "min.val.loss", "best."]) == {
        "best.loss": ("best", "loss"),
        "min.val.loss": ("least", "val.loss"),
    }


def test_what_runs_shows_how_far_it_is_and_how_long_it_takes_unless_it_stands_still(run_view: View, now: float) -> None:
    known = {"status": "Running", "ended_at": None, "progress": {"done": 40, "total": 100, "unit": "steps"}}
    known |= {"ends_between": {"low_at": now + 300, "high_at": now + 420}}
    moving, still = (run_view(**known, moved_at=now - silent_s) for silent_s in (1, 500))
    head, line = listing([moving], PLAIN, now, 120)
    assert "PROGRESS" in head and "40 of 100 steps, 5m to 7m left" in line
    assert "left" not in listing([still], PLAIN, now, 120)[1]
    assert "PROGRESS" not in listing([run_view()], PLAIN, now, 120)[0]


def test_a_run_is_shown_with_the_best_of_what_it_logged_more_than_once(run_view: View, now: float) -> None:
    view = run_view(metrics={"loss": 0.5, "once": 1, "node/cpu_percent": 3})
    logged = {
        "loss": RunMetric(0.5, 0.25, 0.25, 2.0, 3, 2.0, now),
        "once": RunMetric(1, 1.0, 1.0, 1.0, 1, None, now),
        "node/cpu_percent": RunMetric(3, 9.0, 1.0, 9.0, 30, None, now),
    }
    lines = [line.split() for line in everything(view, PLAIN, now, 80, None, logged)]
    assert ["METRIC", "LAST", "BEST", "LEAST", "GREATEST", "POINTS"] in lines
    assert ["loss", "0.5", "0.25", "0.25", "2", "3"] in lines and ["once", "1"] in lines
    assert lines.index(["nodes"]) < lines.index(["node/cpu_percent", "3%"]) < lines.index(["files"])


def test_runs_in_an_order_are_shown_with_what_it_is_by(views: list[Any], now: float) -> None:
    head, *lines = listing(views, PLAIN, now, 80, sort="-loss")
    assert head.split()[:4] == ["RUN", "NAME", "STATUS", "LOSS"]
    assert "0.75" in lines[-1].split() and all(len(line) <= 80 for line in lines)
    assert "LOSS" not in listing(views, PLAIN, now, 80, ["run", "why"], sort="loss")[0]
    assert listing(views, PLAIN, now, 80, sort="duration")[0] == listing(views, PLAIN, now, 80)[0]


def test_a_training_that_diverged_says_so_in_the_list(run_view: View, now: float) -> None:
    assert listing([run_view(metrics={"loss": "NaN"})], PLAIN, now)[1].endswith(
        "the loss is NaN: the training diverged"
    )
    assert listing([run_view(metrics={"loss": 0.5})], PLAIN, now)[1].endswith("12s")


def test_figures_have_the_unit_that_their_name_says() -> None:
    known = {
        "node/memory_used_bytes": (2829729792, "2.8 GB"),
        "node/network_sent_bytes_per_s": (96838.2, "96.8 kB/s"),
        "node/cpu_percent": (99.94, "99.94%"),
        "loss": (0.00467212, "0.004672"),
        "bytes": (2829729792, "2829729792"),
        "peak_bytes": ("NaN", "NaN"),
    }
    assert {name: figure(name, value) for name, (value, _) in known.items()} == {
        name: text for name, (_, text) in known.items()
    }


def test_columns_leave_before_a_line_wraps_and_the_last_one_is_cut_first() -> None:
    columns = [Column("A"), Column("B", leaves=1), Column("WHY", 6)]
    rows = [("aaaaaaaaaa", "bbbbbbbbbb", "one two three four")]
    assert fit(columns, rows, None)[1] == "aaaaaaaaaa  bbbbbbbbbb  one two three four"
    assert fit(columns, rows, 36)[1] == "aaaaaaaaaa  bbbbbbbbbb  one two…"
    assert fit(columns, rows, 24)[1] == "aaaaaaaaaa  one two…"
    assert all(len(line) <= 9 for line in fit(columns, rows, 9))


def test_a_text_is_cut_behind_a_word_where_one_ends_nearby() -> None:
    assert cut("hello wide world", 12) == "hello wide…"
    assert cut("a verylongwordindeed", 12) == "a verylongw…"
    assert cut("short", 12) == "short"


def test_names_of_others_neither_split_a_row_nor_act_on_the_terminal(run_view: View, now: float) -> None:
    lines = listing([run_view(id="train-a2b3c4d5", name=None, display_name="evil\nTitle: x\x1b[31m")], PLAIN, now)
    assert len(lines) == 2 and "\x1b" not in lines[1] and "evil\\nTitle" in lines[1]


def test_the_settings_of_a_server_are_not_shown_as_its_command(run_view: View, now: float) -> None:
    command = ["python", "-m", "muster.scoring.serve", '{"script": "score.py", "port": 5001}']
    shown = "\n".join(everything(run_view(spec={"command": command}), PLAIN, now))
    assert "muster.scoring.serve …" in shown and "5001" not in shown


def test_the_summary_says_what_was_not_scored(run_view: View, now: float) -> None:
    assert "2 items failed" in "\n".join(summary(run_view(metrics={"items": 7, "failed_items": 2}), PLAIN, now))
    assert "1 item failed" in "\n".join(summary(run_view(metrics={"items": 7, "failed_items": 1}), PLAIN, now))
    assert "items failed" not in "\n".join(summary(run_view(metrics={"items": 7, "failed_items": 0}), PLAIN, now))
