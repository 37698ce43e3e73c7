"""The queue in memory against the database: nothing is lost between two passes, and loops do not end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from tests.unit.server.conftest import Server

from muster.control.scheduling.queue import Passed
from muster.server import loops
from muster.server.clock import shift
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.queue.passed import keep_passed
from muster.server.queue.state import RunQueue
from muster.server.runs import changes, submission
from muster.wire.runs import Submission

PER_NODE = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}}


@pytest.fixture
def closed(server: Server) -> Server:
    """A server whose cluster starts nothing."""
    stopped = update(tables.clusters).values(state="stopped")
    server.write(lambda transaction: transaction.execute(stopped))
    return server


def submit(server: Server, key: str, **parts: Any) -> str:
    spec = {"command": "true", "compute": "two", **parts}
    return server.write(lambda t: submission.accept(server.context, t, Submission(key, spec)))


def cancel(server: Server, run_id: str) -> None:
    server.write(lambda t: changes.cancel(server.context, t, [run_id], True, "ann"))


def forget(server: Server, run_id: str) -> None:
    server.write(lambda t: changes.forget(t, run_id))


def make_pass(server: Server) -> set[str]:
    """One pass; returns who waits afterwards."""
    server.write(lambda t: loops.schedule_pass(server.context, t))
    return {gang.run_id for queue in server.context.runs.queue.queues.values() for gang in queue}


def test_a_run_that_comes_as_another_is_removed_is_not_missed(closed: Server) -> None:
    """A removed run's events were the last; the next ones must not get their numbers, which the queue has seen."""
    first, second = submit(closed, "1"), submit(closed, "2")
    assert make_pass(closed) == {first, second}
    cancel(closed, second)
    make_pass(closed)
    forget(closed, second)
    cancel(closed, first)
    third = submit(closed, "3")
    assert make_pass(closed) == {third}


def test_a_run_that_waits_for_another_hears_of_its_end_though_one_was_removed(closed: Server) -> None:
    first = submit(closed, "1")
    after = submit(closed, "2", after=[f"{first}:ended"])
    removed = submit(closed, "3")
    cancel(closed, removed)
    make_pass(closed)
    assert after in closed.context.runs.queue.dependencies.held
    forget(closed, removed)
    cancel(closed, first)
    another = submit(closed, "4")
    assert make_pass(closed) == {after, another}
    assert not closed.context.runs.queue.dependencies.held


def test_a_queue_that_does_not_match_the_database_is_read_anew_and_that_is_an_error(
    closed: Server, caplog: pytest.LogCaptureFixture
) -> None:
    first = submit(closed, "1")
    make_pass(closed)
    # Behind the queue's back: without an event.
    closed.write(lambda t: t.execute(update(tables.runs).values(status="Canceled")))
    with caplog.at_level(logging.ERROR, "muster.server"):
        assert make_pass(closed) == set()
    assert "did not match the database" in caplog.text
    assert first not in closed.context.runs.queue.all_passed()


def test_who_was_passed_over_is_remembered_when_the_queue_is_read_anew(server: Server) -> None:
    server.add_cluster("one", max_nodes=1, gpus=1)
    spec = {"compute": "one", "resources": {"gpus_per_node": 1}}
    holder, waiting = submit(server, "1", **spec), submit(server, "2", **spec)
    make_pass(server)
    known = server.context.runs.queue.all_passed()
    assert holder not in known and known[waiting].first_at is not None
    server.context.runs.start_over()
    make_pass(server)
    assert server.context.runs.queue.all_passed()[waiting].first_at == known[waiting].first_at


def test_promises_and_forecasts_move_with_a_clock_that_is_set(server: Server) -> None:
    """With the clock a year behind, nobody who passes would count, and the end of passing would be a year away."""
    server.add_cluster("one", max_nodes=1, gpus=1)
    spec = {"compute": "one", "resources": {"gpus_per_node": 1}}
    submit(server, "1", **spec)
    waiting = submit(server, "2", **spec)
    make_pass(server)
    queue = server.context.runs.queue
    server.write(lambda t: keep_passed(t, {waiting: replace(queue.all_passed()[waiting], times=3, due_at=5e8)}))
    before, told = queue.all_passed()[waiting], queue._forecasts[waiting]

    server.write(lambda t: shift(t, -3e7))
    server.context.runs.read_queue()
    make_pass(server)
    queue = server.context.runs.queue
    known, forecast = queue.all_passed()[waiting], queue._forecasts[waiting]
    assert (known.times, known.due_at) == (3, 4.7e8)
    assert before.first_at is not None and known.first_at == before.first_at - 3e7
    assert (forecast.since, forecast.first.low_at) == (told.since - 3e7, told.first.low_at - 3e7)


def test_runs_share_a_gpu_and_what_is_left_survives_a_restart(server: Server) -> None:
    server.add_cluster("one", max_nodes=1, gpus=1)
    first, second, third = (
        submit(server, str(share), compute="one", resources={"gpus_per_node": share}) for share in (0.5, 0.25, 0.375)
    )
    make_pass(server)
    server.context.runs.start_over()
    make_pass(server)
    placed = server.write(lambda t: {row.run_id: row.gpus for row in t.execute(select(tables.placements))})
    assert placed[first] == placed[second] and len(placed[first]) == 1 and third not in placed
    running = server.write(lambda t: server.context.runs.queue.running(t, (), 0.0))
    assert {item.run_id: item.num_gpus for item in running} == {first: 0.5, second: 0.25}


def test_a_run_is_judged_by_its_own_pace_as_soon_as_it_has_one(server: Server) -> None:
    """What is said of those who wait for its nodes agrees with the time left that `muster ps` shows."""
    server.add_cluster("one", max_nodes=1, gpus=1)
    spec = {"compute": "one", "resources": {"gpus_per_node": 1}}
    holder, _ = submit(server, "1", **spec), submit(server, "2", **spec)
    make_pass(server)
    progress = {"run_id": holder, "rank": 0, "attempt": 1, "done": 36.0, "total": 60.0, "unit": "steps"}
    server.write(lambda t: t.execute(update(tables.attempts).values(started_at=1000.0)))
    server.write(lambda t: t.execute(insert(tables.progress).values(**progress)))
    expected = [likely_end(server, holder, now) - now for now in (1010.0, 1036.0)]
    assert expected[0] > 600 and expected[1] < 120


def test_a_run_that_waits_for_another_is_not_told_the_short_waits_of_those_that_need_only_nodes(
    server: Server,
) -> None:
    server.add_cluster("one", max_nodes=1, gpus=1)
    holder = submit(server, "1", compute="one", resources={"gpus_per_node": 1})
    after = submit(server, "2", compute="one", after=[holder])
    free = submit(server, "3", compute="one", resources={"gpus_per_node": 1})
    make_pass(server)
    queue, now = server.context.runs.queue, 1e9
    before = {run_id: queue.starts_between(run_id, now) for run_id in (after, free)}
    forecast = queue._forecasts[free]
    for _ in range(50):
        queue.learned.waits.learn(forecast.traits, now, now + 1.0)
    known = {run_id: queue.starts_between(run_id, now) for run_id in (after, free)}
    assert known[free].high_at - now < 60 < before[free].high_at - now
    assert known[after].high_at - now > 3600


def test_a_run_that_resumes_is_judged_by_all_its_attempts_and_by_no_report_of_an_earlier_one(server: Server) -> None:
    """It worked for 1,000 s on half of its steps, so about as much is still to come."""
    server.add_cluster("one", max_nodes=1, gpus=1)
    spec = {"compute": "one", "resources": {"gpus_per_node": 1}}
    holder, _ = submit(server, "1", **spec), submit(server, "2", **spec)
    make_pass(server)
    attempts = tables.attempts

    def resume(transaction: Transaction) -> None:
        before = {**transaction.execute(select(attempts)).mappings().one(), "started_at": 0.0, "ended_at": 1000.0}
        transaction.execute(update(attempts).values(number=2, started_at=5000.0))
        transaction.execute(insert(attempts).values(before))
        transaction.execute(update(tables.placements).values(number=2))
        transaction.execute(update(tables.runs).where(tables.runs.c.id == holder).values(attempt=2, started_at=0.0))
        part = {
            "run_id": holder,
            "attempt": 1,
            "name": "c",
            "node_rank": 0,
            "key": "c",
            "files": [],
            "size": 0,
            "at": 900.0,
        }
        transaction.execute(insert(tables.checkpoints).values(part))
        progress = {"run_id": holder, "rank": 0, "attempt": 1, "done": 990.0, "total": 1000.0, "unit": "steps"}
        transaction.execute(insert(tables.progress).values(progress))

    server.write(resume)
    by_old_report = likely_end(server, holder, 5030.0) - 5030.0
    server.write(lambda t: t.execute(update(tables.progress).values(attempt=2, done=515.0)))
    left = likely_end(server, holder, 5030.0) - 5030.0
    assert by_old_report > 600
    assert 800 < left < 1500


def likely_end(server: Server, run_id: str, now: float) -> float:
    running = server.write(lambda t: server.context.runs.queue.running(t, (), now))
    return next(item.likely_end(now) for item in running if item.run_id == run_id)


def test_a_loop_that_ends_by_a_fault_is_begun_again(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "WATCH_S", 0.0)
    lives: list[int] = []

    async def fragile(context: Context) -> None:
        lives.append(len(lives))
        if len(lives) < 3:
            raise OSError("a fault that nobody thought of")

    server.runner.run(asyncio.wait_for(loops.kept_up(fragile, server.context), 30))
    assert lives == [0, 1, 2]
    assert "fragile failed; it is restarted" in caplog.text


def test_a_server_that_starts_again_knows_how_often_a_run_was_passed_over(server: Server) -> None:
    for number in range(3):
        submit(server, f"{number}", resources={"instance_count": 2}, **PER_NODE)
    make_pass(server)
    (first,) = server.context.runs.queue.all_passed()
    counted = Passed(3, frozenset({"host"}), 10.0, 20.0)
    server.write(lambda t: keep_passed(t, {first: counted}))
    server.context.runs.queue = RunQueue()
    server.write(server.context.runs.queue.update)
    assert server.context.runs.queue.all_passed() == {first: counted}
    make_pass(server)
    found = server.context.runs.queue.all_passed()[first]
    assert (found.times, found.first_at, found.due_at) == (3, 10.0, 20.0)


def test_what_was_counted_is_forgotten_once_the_run_starts(server: Server) -> None:
    running = submit(server, "1", resources={"instance_count": 2}, **PER_NODE)
    waiting = submit(server, "2", resources={"instance_count": 2}, **PER_NODE)
    assert make_pass(server) == {running, waiting}
    assert make_pass(server) == {waiting}
    assert passed_over(server, waiting)["times"] == 0
    cancel(server, running)
    make_pass(server)
    assert passed_over(server, waiting) is None


def passed_over(server: Server, run_id: str) -> Any:
    query = select(tables.runs.c.passed_over).where(tables.runs.c.id == run_id)
    return server.write(lambda t: t.execute(query).scalar_one())
