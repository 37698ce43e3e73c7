"""What is refused before anything starts, and what is kept of what is taken."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update
from tests.unit.server.conftest import Server

from muster.errors import Conflict, JobError
from muster.job.explain import make_spec
from muster.server.database import tables
from muster.server.runs.submission import accept, new_id, submit, submit_many
from muster.wire.runs import RunView, Submission, SubmitRuns

GANG = {"type": "pytorch", "process_count_per_instance": 2}


def job(**parts: Any) -> dict[str, Any]:
    return {"command": "python train.py", "compute": "two", **parts}


def take(server: Server, spec: dict[str, Any], key: str = "k", **given: Any) -> RunView:
    body = Submission(key, spec, **given)
    return server.write(lambda transaction: submit(server.context, transaction, body))


def test_a_job_is_queued_with_what_its_gang_needs(server: Server) -> None:
    spec = job(
        resources={"instance_count": 2},
        distribution=GANG,
        tags={"a": "b"},
        display_name="first",
    )
    view = take(server, spec, submitted_by="ann", notices=("said", "said"))
    assert (view.status, view.num_nodes, view.num_ranks) == ("Queued", 2, 4)
    assert (view.compute, view.submitted_by, view.display_name, view.tags) == ("two", "ann", "first", {"a": "b"})
    assert view.notices.count("said") == 1
    assert (view.attempts, view.verdict, view.progress) == ((), None, None)
    assert view.reason == "waits for the next pass of the scheduler"


def test_the_same_key_is_the_same_run(server: Server) -> None:
    first = take(server, job(), "one")
    assert take(server, job(command="python other.py"), "one") == first
    assert take(server, job(), "two").id != first.id


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (job(compute="nowhere"), "there is no compute 'nowhere'"),
        (job(resources={"instance_count": 3}, distribution=GANG), "can never start"),
        (job(resources={"gpus_per_node": 3}), "can never start"),
        ({"compute": "two"}, "command"),
    ],
)
def test_what_can_never_run_is_refused(server: Server, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        take(server, spec)
    assert server.context.database.read_now(lambda c: c.execute(select(tables.runs)).all()) == []


def test_a_quota_that_a_job_exceeds_alone_refuses_it(server: Server) -> None:
    server.add_cluster("small", max_nodes=4, quotas={"per_user": {"nodes": 1}})
    with pytest.raises(JobError, match="can never start"):
        take(server, job(compute="small", resources={"instance_count": 2}, distribution=GANG), submitted_by="ann")
    assert take(server, job(compute="small"), submitted_by="ann").status == "Queued"


def test_code_must_be_here_first(server: Server) -> None:
    with pytest.raises(Conflict, match="is not here"):
        take(server, job(), snapshot="0" * 64)


def test_a_cluster_that_is_being_deleted_takes_nothing(server: Server) -> None:
    server.write(lambda t: t.execute(update(tables.clusters).values(state="deleting")))
    with pytest.raises(Conflict, match="is being deleted"):
        take(server, job())


def test_a_refused_write_leaves_nothing(server: Server) -> None:
    def work(transaction: Any) -> None:
        accept(server.context, transaction, Submission("k", job()))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        server.write(work)
    assert server.context.database.read_now(lambda c: c.execute(select(tables.runs)).all()) == []


@pytest.mark.parametrize(
    ("name", "stem"), [("resnet 50/x", "resnet-50-x-"), ("--", "run-"), ("a" * 60, "a" * 40 + "-")]
)
def test_ids_are_readable(server: Server, name: str, stem: str) -> None:

    spec = make_spec(job(display_name=name))
    assert new_id(spec).startswith(stem) and len(new_id(spec)) == len(stem) + 8
    assert new_id(spec) != new_id(spec)


def test_many_jobs_are_taken_in_their_order_or_none_is(server: Server) -> None:
    many = [Submission(f"m{number}", job(display_name=f"n{number}")) for number in range(3)]
    views = server.write(lambda transaction: submit_many(server.context, transaction, many))
    assert [view.display_name for view in views] == ["n0", "n1", "n2"]
    again = server.write(lambda transaction: submit_many(server.context, transaction, many))
    assert [view.id for view in again] == [view.id for view in views]
    bad = [Submission("m3", job()), Submission("m4", job(display_name="wrong", compute="nowhere"))]
    with pytest.raises(JobError, match=r"run 2 of 2 \(wrong\): there is no compute 'nowhere'"):
        server.write(lambda transaction: submit_many(server.context, transaction, bad))
    keys = server.write(lambda transaction: transaction.execute(select(tables.runs.c.key)).scalars().all())
    assert sorted(keys) == ["m0", "m1", "m2"]


def test_more_runs_than_one_call_takes_are_refused_by_number() -> None:
    with pytest.raises(ValueError, match="the number of runs 1001 is out of range"):
        SubmitRuns(tuple(Submission(str(number), {}) for number in range(1001)))
