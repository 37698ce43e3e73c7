"""Runs as lines."""

from collections.abc import Callable
from typing import Any

from muster.cli.console import Paint
from muster.cli.following.lines import clean
from muster.cli.views.listing import listing
from muster.cli.views.run import everything, summary

PLAIN = Paint(color=False)
View = Callable[..., Any]


def test_the_summary_of_a_completed_run(run_view: View, now: float) -> None:
    assert (
        "\n".join(summary(run_view(), PLAIN, now))
        == """\
brave-otter  Completed in 12s  2 ranks on 2 nodes
  throughput  812.4 images/s
  loss        2.311
  outputs     1 file, 102 MB: muster download brave-otter outputs
  logs        muster logs brave-otter
  metrics     muster metrics brave-otter"""
    )


def test_a_command_to_copy_is_never_broken(run_view: View, now: float) -> None:
    long = run_view(id="resnet50-synthetic-674bp53w", name="resnet50-synthetic-674bp53w")
    lines = summary(long, PLAIN, now, 72)
    assert max(map(len, lines)) <= 72
    assert "              muster download resnet50-synthetic-674bp53w outputs" in lines


def test_a_summary_has_what_was_logged_beside_the_loss(run_view: View, now: float) -> None:
    values = {"loss": 0.25, "test_accuracy": 0.93, "f1": 0.9, "table": {"a": 1}, "node/cpu_percent": 3.0}
    assert summary(run_view(metrics=values), PLAIN, now)[-1].split("  ")[-1] == (
        "test_accuracy 0.93, f1 0.9: muster metrics brave-otter"
    )
    many = {f"score_{number}": 1.0 for number in range(7)}
    assert "score_3 1, 3 more: muster metrics" in summary(run_view(metrics=many), PLAIN, now)[-1]


def test_the_summary_of_a_failed_run_gives_the_verdict(run_view: View, verdict: dict[str, Any], now: float) -> None:
    failed = run_view(status="Failed", verdict=verdict, metrics={}, files=[])
    assert (
        "\n".join(summary(failed, PLAIN, now))
        == """\
brave-otter  Failed after 12s  2 ranks on 2 nodes

exception
  rank 1 on node-1: ValueError: boom

  last lines:
    Traceback (most recent call last):
    ValueError: boom

  evidence: rank 1 on node-1: exit code 1; rank 0 on node-0: SIGKILL; stop reason rank_failed

  next: Fix the script and run it again.

  logs  muster logs brave-otter
  more  muster show brave-otter"""
    )


def test_a_verdict_of_no_rank_names_none(run_view: View, verdict: dict[str, Any], now: float) -> None:
    nobody = {**verdict, "code": "timeout", "message": "too long", "rank": None, "node": None, "lines": []}
    lines = summary(run_view(status="Failed", verdict=nobody), PLAIN, now)
    assert "timeout" in lines
    assert not any("last lines" in line for line in lines)


def test_a_verdict_whose_message_leaves_the_rank_out_names_it_all_the_same(
    run_view: View, verdict: dict[str, Any], now: float
) -> None:
    short = {**verdict, "message": "killed", "evidence": {"launcher_rank": 0}}
    lines = summary(run_view(status="Failed", verdict=short), PLAIN, now)
    assert "exception: rank 1 on node-1" in lines
    assert "  evidence: launcher rank 0" in lines


def test_a_run_that_was_cancelled_from_outside_says_why_and_which_job_it_was(
    run_view: View, attempt_view: View, verdict: dict[str, Any], now: float
) -> None:
    why = "Slurm job 4711 was cancelled outside Muster (scancel)"
    attempts = [attempt_view(job_id="4711")]
    cancelled = run_view(status="Canceled", verdict={**verdict, "message": why}, files=[], attempts=attempts)
    shown = [line.split() for line in everything(cancelled, PLAIN, now)]
    assert ["job", "id", "4711"] in shown
    assert ["why", *why.split()] in shown
    assert listing([cancelled], PLAIN, now)[-1].endswith(why)


def test_a_cancelled_run_is_no_failure(run_view: View, verdict: dict[str, Any], now: float) -> None:
    cancelled = run_view(status="Canceled", verdict={**verdict, "message": "cancelled by ada"}, files=[])
    assert summary(cancelled, PLAIN, now)[:2] == [
        "brave-otter  Canceled after 12s  2 ranks on 2 nodes",
        "  why         cancelled by ada",
    ]


def test_everything_has_ranks_metrics_and_files(run_view: View, now: float) -> None:
    text = "\n".join(everything(run_view(notices=["curated name"]), PLAIN, now))
    assert "r1a2b3c4" in text
    assert "notice: curated name" in text
    assert "team=vision" in text
    assert "RANK  NODE    STATE  EXIT  DURATION  LOG" in text
    assert "1     node-1  ended  0     12s       user_logs/std_log_process_1.txt" in text
    assert "images_per_sec  812.4" in text
    assert "102 MB  outputs/model.pt" in text


def test_roles_are_shown_where_there_are_several(
    run_view: View, attempt_view: View, rank_view: View, now: float
) -> None:
    ranks = [rank_view(0, role="ps"), rank_view(1)]
    text = "\n".join(everything(run_view(attempts=[attempt_view(ranks=ranks)]), PLAIN, now))
    assert "RANK  NODE    ROLE    STATE  EXIT  DURATION  LOG" in text
    killed = run_view(attempts=[attempt_view(ranks=[rank_view(0, exit_code=None, signal=9)])])
    assert all(len(line) <= 80 for line in everything(killed, PLAIN, now, 80))


def test_everything_keeps_attempts_apart(
    run_view: View, attempt_view: View, rank_view: View, verdict: dict[str, Any], now: float
) -> None:
    first = attempt_view(
        status="Failed",
        verdict={**verdict, "action": "attempt 2: 1 of 3 for errors of the job; starts in 2.0 s"},
        ranks=[rank_view(0, exit_code=None, signal=9)],
    )
    second = attempt_view(number=2, status="Running", ranks=[], resumed_from=4)
    kept = [{"id": 4, "name": "step_40", "size": 2_000_000, "attempt": 1, "at": now - 5}]
    view = run_view(status="Running", ended_at=None, attempts=[first, second], checkpoints=kept)
    text = "\n".join(everything(view, PLAIN, now))
    one, two = text.index("attempt 1  Failed"), text.index("attempt 2  Running")
    assert one < text.index("  exception: rank 1 on node-1: ValueError: boom") < text.index("  then: attempt 2") < two
    assert "SIGKILL" in text
    assert "resumed from a checkpoint" in text[two:]
    assert "  step_40  2.0 MB, attempt 1, 5.0s ago" in text
    assert all(len(line) <= 50 for line in everything(view, PLAIN, now, 50) if "attempt 2: 1 of 3" in line)


def test_a_run_that_waits_says_for_what(run_view: View, now: float) -> None:
    waiting = run_view(
        status="Queued", reason="waits for 2 nodes", started_at=None, ended_at=None, attempts=[], metrics={}, files=[]
    )
    assert any("waits for 2 nodes" in line for line in everything(waiting, PLAIN, now))
    header, row = listing([waiting], PLAIN, now)
    assert header.split() == ["RUN", "NAME", "STATUS", "RANKS", "AGE", "DURATION", "WHY"]
    assert row.split() == ["r1a2b3c4", "brave-otter", "Queued", "2x1", "65s", "-", "waits", "for", "2", "nodes"]


def test_the_list_says_why_a_run_failed(run_view: View, verdict: dict[str, Any], now: float) -> None:
    row = listing([run_view(status="Failed", verdict=verdict)], PLAIN, now)[1]
    assert row.endswith("ValueError: boom")


def test_colours_do_not_move_columns(run_view: View, now: float) -> None:
    plain = listing([run_view(), run_view(status="Failed")], PLAIN, now)
    colored = listing([run_view(), run_view(status="Failed")], Paint(color=True), now)
    assert [clean(line, color=False) for line in colored] == plain
    assert colored != plain


def test_a_queued_run_says_between_which_moments_it_starts(run_view: View, now: float) -> None:
    between = {"low_at": now + 600, "high_at": now + 5400, "held": None}
    queued = run_view(status="Queued", reason="waits behind r2", started_at=None, ended_at=None, starts_between=between)
    assert any(line.split() == ["starts", "in", "10m", "to", "90m"] for line in everything(queued, PLAIN, now))
    assert "starts in 10m to 90m: waits behind r2" in listing([queued], PLAIN, now)[1]


def test_a_run_that_waited_says_how_good_its_forecast_was(run_view: View, now: float) -> None:
    told = {"low_at": now - 64, "high_at": now - 50, "held": True}
    lines = "\n".join(everything(run_view(told_at_first=told), PLAIN, now))
    assert "after 5.0s (the estimate, in 1s to 15s, held)" in lines
    missed = run_view(told_at_first={**told, "held": False})
    assert "(the estimate, in 1s to 15s, did not hold)" in "\n".join(everything(missed, PLAIN, now))


def test_a_service_is_not_said_to_end(run_view: View, now: float) -> None:
    ends = {"status": "Running", "ends_between": {"low_at": now + 60, "high_at": now + 120}}
    job = run_view(**ends, spec={"command": ["python", "train.py"]})
    service = run_view(**ends, spec={"command": ["python", "-m", "muster.scoring.serve", "{}"]})
    assert any(line.split()[:1] == ["ends"] for line in everything(job, PLAIN, now))
    assert not any(line.split()[:1] == ["ends"] for line in everything(service, PLAIN, now))
