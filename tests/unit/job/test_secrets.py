"""`${{secrets.NAME}}` stands in variables only, and its value in no plan."""

from __future__ import annotations

import pytest

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.expressions import resolve_environment, secret_names
from muster.launch.plan import plan, sample_slots
from muster.wire.codec import to_json

VARIABLES = {"TOKEN": "${{secrets.HF}}", "URL": "https://x/${{secrets.KEY}}/${{inputs.n}}", "PLAIN": "1"}


def spec(**changes: object):  # type: ignore[no-untyped-def]
    return make_spec({"command": "python x.py", "inputs": {"n": 3}, "environment_variables": VARIABLES, **changes})


def test_values_are_put_in_where_they_are_known() -> None:
    assert secret_names(spec()) == {"HF", "KEY"}
    assert resolve_environment(spec(), {"HF": "s$1", "KEY": "k"}) == {
        "TOKEN": "s$1",
        "URL": "https://x/k/3",
        "PLAIN": "1",
    }


def test_without_values_such_variables_are_left_out_so_that_no_plan_holds_them() -> None:
    assert resolve_environment(spec()) == {"PLAIN": "1"}
    made = to_json(plan(spec(), sample_slots(spec(), cpus=1, gpus=()), run_id="r", attempt=1, python="python"))
    assert "TOKEN" not in str(made)


@pytest.mark.parametrize("command", ["echo ${{secrets.HF}}", ["echo", "${{secrets.HF}}"]])
def test_a_secret_in_the_command_is_refused_with_the_way_to_write_it(command: object) -> None:
    with pytest.raises(JobError, match="stands in the command") as caught:
        spec(command=command)
    assert "environment_variables: {HF: ${{secrets.HF}}}" in str(caught.value)


def test_a_malformed_reference_is_refused() -> None:
    with pytest.raises(JobError, match="not an expression"):
        spec(environment_variables={"A": "${{secrets.}}"})
