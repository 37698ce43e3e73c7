"""Whether a failed attempt is followed by another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.retry import Past, Policy, Retry, Stop, decide, delay_s
from muster.defaults import RETRY_BACKOFF_MAX_S
from muster.job import parts
from muster.wire.verdicts import CODES, code_of

codes = st.sampled_from(sorted(CODES))
pasts = st.lists(st.builds(Past, code=codes, node=st.sampled_from([None, "a", "b"])), min_size=1, max_size=12)
budgets = st.integers(0, 5)
policies = st.builds(
    Policy,
    preemption=budgets,
    node_loss=budgets,
    platform=budgets,
    user_error=budgets,
    backoff_s=st.floats(0, 100),
    on_codes=st.none() | st.lists(codes, max_size=3).map(tuple),
)


def test_an_error_of_the_job_is_final_unless_asked_for():
    decision = decide([Past("exception")], Policy(), "run")
    assert decision == Stop("no further attempt: retry.user_error allows none for errors of the job")
    assert isinstance(decide([Past("exception")], Policy(user_error=1), "run"), Retry)


@pytest.mark.parametrize(("code", "budget"), [("preempted", 10), ("node_lost", 3), ("platform", 3), ("gpu_fault", 3)])
def test_defaults_have_a_budget_for_each_kind(code, budget):
    past = [Past(code)] * budget
    assert isinstance(decide(past, Policy(), "run"), Retry)
    stopped = decide([*past, Past(code)], Policy(), "run")
    assert isinstance(stopped, Stop) and f"{budget} of {budget} for" in stopped.why


def test_budgets_are_separate():
    past = [Past("preempted")] * 8 + [Past("node_lost")] * 2 + [Past("node_lost")]
    assert isinstance(decide(past, Policy(), "run"), Retry)


def test_only_the_named_codes_are_retried():
    policy = Policy(user_error=3, on_codes=("signal",))
    assert isinstance(decide([Past("signal")], policy, "run"), Retry)
    assert decide([Past("exception")], policy, "run") == Stop(
        "no further attempt: exception is not retried (retry.on_codes: signal)"
    )


@pytest.mark.parametrize("code", ["timeout", "bad_input", "launcher_missing"])
def test_what_would_only_happen_again_must_be_named(code):
    assert isinstance(decide([Past(code)], Policy(user_error=3), "run"), Stop)
    assert isinstance(decide([Past(code)], Policy(user_error=3, on_codes=(code,)), "run"), Retry)


def test_a_node_that_failed_as_a_node_is_kept_off():
    past = [Past("node_lost", "a"), Past("exception", "b"), Past("gpu_fault", "c")]
    decision = decide(past, Policy(user_error=5), "run")
    assert isinstance(decision, Retry) and decision.exclude == ("a", "c")


def test_layers_of_a_policy():
    policy = Policy.of(parts.Retry(user_error=2, backoff_s=1.0), parts.Retry(user_error=5, keep_checkpoints=3))
    assert (policy.user_error, policy.backoff_s, policy.node_loss) == (5, 1.0, 3)


@given(pasts, policies)
def test_attempts_end(past, policy):
    """However often it fails, the sum of all budgets bounds the attempts."""
    decision = decide(past, policy, "run")
    total = policy.preemption + policy.node_loss + policy.platform + policy.user_error
    if isinstance(decision, Retry):
        kind = code_of(past[-1].code).budget
        if kind is not None:
            used = [item for item in past if code_of(item.code).budget == kind]
            assert len(used) <= policy.allows(kind) <= total


@given(pasts, policies)
def test_it_is_repeatable_and_never_retries_what_is_over(past, policy):
    assert decide(past, policy, "run") == decide(past, policy, "run")
    over = decide([*past, Past("cancelled")], policy, "run")
    assert isinstance(over, Stop)


@given(st.integers(0, 10_000), st.floats(0, 10_000), st.text(max_size=20))
def test_a_delay_is_bounded_and_spread(used, backoff_s, seed):
    delay = delay_s(used, backoff_s, seed)
    assert 0 <= delay <= max(RETRY_BACKOFF_MAX_S, backoff_s)
    assert delay >= min(backoff_s, RETRY_BACKOFF_MAX_S) / 2


def test_two_runs_do_not_come_back_together():
    assert len({round(delay_s(0, 2.0, f"run-{number}"), 6) for number in range(20)}) > 10


def test_what_the_script_did_itself_is_not_paid_by_the_platforms_budget():
    assert isinstance(decide([Past("port_trouble")], Policy(), "x"), Retry)
    own = Past("port_trouble", of_script=True)
    assert isinstance(decide([own], Policy(), "x"), Stop)
    assert isinstance(decide([own], Policy(user_error=1), "x"), Retry)
    assert isinstance(decide([own, own], Policy(user_error=1), "x"), Stop)
