"""What is ordered of a node for what is recorded of an attempt: decided without processes or a database."""

from __future__ import annotations

import pytest

from muster.job.parts import Mpi, PyTorch
from muster.job.spec import JobSpec
from muster.server.nodes.orders import Material, Standing, run_order, stop_order
from muster.wire import states
from muster.wire.node.containers import Container, Login
from muster.wire.node.plan import NodePlan

PLAN = NodePlan(0, "local-0", "127.0.0.1", (), ())


def standing(phase: str = states.ORDERED, **more: object) -> Standing:
    return Standing("run", 1, 0, 1, phase, **more)  # type: ignore[arg-type]


def spec(**more: object) -> JobSpec:
    return JobSpec.model_validate({"command": "python train.py", **more})


@pytest.mark.parametrize("phase", [states.ORDERED, states.PREPARED, states.STARTED])
def test_an_attempt_that_goes_on_is_not_stopped(phase: str) -> None:
    assert stop_order(standing(phase)) is None


@pytest.mark.parametrize("phase", [states.ORDERED, states.PREPARED, states.STARTED])
def test_a_stop_carries_its_reason_and_grace(phase: str) -> None:
    order = stop_order(standing(phase, stop_reason="cancelled", stop_grace_s=30.0))
    assert order is not None
    assert (order.key, order.action, order.stop_reason, order.grace_s) == (("run", 1), "stop", "cancelled", 30.0)


def test_a_stop_without_a_grace_is_at_once() -> None:
    order = stop_order(standing(states.STARTED, stop_reason="killed"))
    assert order is not None
    assert order.grace_s == 0.0


@pytest.mark.parametrize("reason", [None, "done", "rank_failed"])
def test_a_node_whose_ranks_have_ended_is_told_to_give_up_its_delivery(reason: str | None) -> None:
    order = stop_order(standing(states.ENDED, stop_reason=reason))
    assert order is not None
    assert (order.action, order.stop_reason) == ("stop", "abandoned")


def test_a_node_that_was_given_up_ends_what_it_runs_at_once_whatever_the_attempt_says() -> None:
    order = stop_order(standing(states.GIVEN_UP, stop_reason="cancelled", stop_grace_s=30.0))
    assert order is not None
    assert (order.action, order.stop_reason, order.grace_s) == ("stop", "superseded", 0.0)


@pytest.mark.parametrize(
    ("phase", "plan", "action", "is_checked"),
    [
        (states.ORDERED, None, "prepare", True),
        (states.ORDERED, PLAN, "prepare", True),
        (states.PREPARED, None, "prepare", False),
        (states.PREPARED, PLAN, "go", False),
        (states.STARTED, PLAN, "go", False),
    ],
)
def test_a_node_prepares_until_the_plan_is_made_and_is_checked_before(
    phase: str, plan: NodePlan | None, action: str, is_checked: bool
) -> None:
    order = run_order(standing(phase), Material(spec(), plan=plan))
    assert (order.action, order.plan) == (action, plan)
    assert (order.needs is not None) is is_checked


def test_ports_are_held_where_the_convention_needs_them() -> None:
    pytorch = spec(distribution=PyTorch(process_count_per_instance=2), resources={"instance_count": 2})
    first, second = (run_order(Standing("run", 1, rank, 2, states.ORDERED), Material(pytorch)) for rank in (0, 1))
    assert (first.ports_count, second.ports_count) == (1, 0)
    assert run_order(standing(), Material(spec())).ports_count == 0
    again = run_order(Standing("run", 2, 0, 2, states.ORDERED), Material(pytorch, used_ports=(6105,), resume=(7, 3)))
    assert (again.ports_avoid, again.resume) == ((6105,), (7, 3))


def test_secrets_reach_the_ranks_and_are_masked_with_the_registrys_passwords() -> None:
    given = spec(environment_variables={"KEY": "${{secrets.KEY}}"})
    container = Container(image="i", login=Login("r", "u", "hush"))
    order = run_order(standing(), Material(given, container=container, secrets={"KEY": "value"}))
    assert order.user_env["KEY"] == "value"
    assert order.masked == ("value", "hush")


def test_mpi_jobs_say_so_and_carry_the_secret_of_their_plan() -> None:
    order = run_order(standing(states.PREPARED), Material(spec(distribution=Mpi()), plan=PLAN, plan_secret="s"))
    assert (order.mpi, order.secret) == (True, "s")
    assert not run_order(standing(), Material(spec())).mpi
