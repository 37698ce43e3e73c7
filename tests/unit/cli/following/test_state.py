"""What is known of a run, from the events of its stream."""

import pytest

from muster.cli.console import Paint
from muster.cli.following.display import live_area, progress_line, rank_lines
from muster.cli.following.lines import Line
from muster.cli.following.state import RunState
from muster.cli.views.metrics import loss, throughput
from muster.wire.stream import MetricLogged, ProgressMade, RankEnded, RankStarted, RunEnded, StateChanged

PLAIN = Paint(color=False)


def running() -> RunState:
    state = RunState(created_at=0.0, num_ranks=2)
    state.apply(StateChanged("Running", at=10.0), 10.0)
    for number in (0, 1):
        state.apply(RankStarted(number, "running", at=10.0), 10.0)
    return state


def metric(name: str, value: float) -> MetricLogged:
    return MetricLogged(name, value, step=None, rank=0, source="rank_0", type="scalar", at=70.0, attempt=1)


def test_the_status_line_counts_ranks_and_shows_figures() -> None:
    state = running()
    state.apply(RankEnded(1, "node-1", "ended", exit_code=0, signal=None, at=70.0), 70.0)
    state.apply(metric("train_loss", 2.5), 70.0)
    state.apply(metric("throughput", 99.0), 70.0)
    area = live_area(state, {}, "brave-otter", PLAIN, 75.0, 80, 24)
    assert area == ["brave-otter  Running  1/2 ranks, 1 ended  1m 05s  99.0/s  loss 2.5"]


def test_a_waiting_run_shows_its_reason() -> None:
    state = RunState(created_at=0.0)
    state.apply(StateChanged("Queued", at=1.0, reason="waits for 2 nodes"), 1.0)
    assert live_area(state, {}, "r", PLAIN, 5.0, 80, 24) == ["r  Queued  waits for 2 nodes  5.0s"]


def test_a_reason_too_long_for_the_line_has_lines_of_its_own() -> None:
    reason = "local-0: fetching input images: 288.0 MiB of 381.5 MiB, 111.6 MiB/s, about 5 s left"
    state = RunState(status="Preparing", reason=reason, created_at=0.0)
    area = live_area(state, {}, "brave-otter", PLAIN, 5.0, 60, 24)
    assert area[0] == "brave-otter  Preparing  5.0s"
    assert " ".join(line.strip() for line in area[1:]) == reason
    assert all(len(line) <= 60 for line in area)


def test_progress_is_that_of_the_slowest_rank_with_the_time_left() -> None:
    state = running()
    state.apply(ProgressMade(0, 100, "steps", rank=0), 10.0)
    state.apply(ProgressMade(50, 100, "steps", rank=0), 20.0)
    assert state.progress is not None
    assert state.progress.left_s == pytest.approx(10.0)
    assert progress_line(state, PLAIN, 80, 0.0).endswith(" 50% 50/100 steps  about 10s left")
    state.apply(ProgressMade(25, 100, "steps", rank=1), 20.0)
    assert progress_line(state, PLAIN, 80, 0.0) == "━" * 10 + "─" * 30 + "  25% 25/100 steps"


def test_progress_without_a_total_has_no_bar() -> None:
    state = running()
    state.apply(ProgressMade(7, None, "files", rank=0), 10.0)
    assert progress_line(state, PLAIN, 80, 0.0) == "7 files"


def test_a_further_attempt_starts_from_nothing() -> None:
    state = running()
    state.apply(ProgressMade(7, 10, "", rank=0), 10.0)
    state.apply(StateChanged("Queued", at=20.0, reason="node lost; attempt 2"), 20.0)
    assert state.progress is None
    assert state.ranks == {}


def test_an_event_without_a_rank_is_the_progress_of_the_run() -> None:
    state = running()
    for done in (1, 2):
        state.apply(ProgressMade(done, 4, "epochs"), 10.0)
    assert progress_line(state, PLAIN, 80, 0.0).endswith(" 50% 2/4 epochs")


def test_the_end_has_a_status() -> None:
    state = running()
    state.apply(RunEnded("Failed", verdict=None), 20.0)
    assert state.ended
    assert state.status == "Failed"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("images_per_sec", "812.4 images/s"),
        ("images_per_second", "812.4 images/s"),
        ("samples/s", "812.4 samples/s"),
        ("Tokens_per_sec", "812.4 tokens/s"),
        ("throughput", "812.4/s"),
        ("loss", None),
        ("images", None),
    ],
)
def test_throughput_is_found_by_the_name_of_a_metric(name: str, shown: str | None) -> None:
    assert throughput({"x": 1, name: 812.4}) == shown


def test_figures_that_are_no_numbers_are_left_out() -> None:
    assert throughput({"throughput": [1, 2]}) is None
    assert loss({"loss": "none"}) is None
    assert str(loss({"loss": "NaN"})) == "nan"
    assert loss({"val_loss": 1.0, "train_loss": 2.0}) == 2.0


def test_unfinished_lines_of_ranks_stand_above_the_state_and_never_fill_the_screen() -> None:
    pending = {f"user_logs/std_log_process_{n:02d}.txt": f"{n}% " + "x" * 200 for n in range(20)}
    area = live_area(running(), pending, "r", PLAIN, 20.0, 60, 12)
    assert len(area) == 10
    assert area[0].startswith("[rank 0] 0% xxx")
    assert area[8] == "… and 12 more ranks"
    assert all(len(line) <= 60 + len("[rank 0] ") for line in area)


def test_lines_carry_the_prefix_of_their_rank() -> None:
    lines = [
        Line("user_logs/std_log_process_07.txt", "a"),
        Line("user_logs/std_log.txt", "b"),
        Line("user_logs/std_log_node_1_ps.txt", "c"),
        Line("user_logs/mpi_log.txt", "d"),
    ]
    assert rank_lines(lines, PLAIN) == "[rank 7] a\nb\n[ps 1] c\n[mpirun] d\n"
    assert "\x1b[" in rank_lines(lines[:1], Paint(color=True))
