"""What cannot run yet is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.support import check_supported


def checked(**data: Any) -> list[str]:
    return check_supported(make_spec({"command": "x", **data}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"environment": {"image": "python"}}, "environment.image: environments cannot be built yet"),
        ({"environment": {"pip": ["torch"]}}, "environment.pip: environments cannot be built yet"),
        ({"environment": "nowhere"}, "there is no environment 'nowhere'; known are"),
        (
            {"inputs": {"a": {"path": "azureml://datastores/x"}}},
            "inputs.a.path: 'azureml://datastores/x' is an address",
        ),
        ({"outputs": {"a": {"path": "azureml://datastores/x"}}}, "outputs.a.path: 'azureml://datastores/x' cannot be"),
    ],
)
def test_parts_that_cannot_run_yet_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        checked(**data)
    assert message in caught.value.message
    assert caught.value.hint


def test_everything_else_passes() -> None:
    assert checked(inputs={"a": 1, "b": {"path": "/data"}, "c": {"path": "https://x", "mode": "direct"}}) == []
    assert checked(outputs={"model": None}) == []


@pytest.mark.parametrize("name", ["azureml:AzureML-PyTorch-1.6-GPU", "azureml:pytorch@latest", "tensorflow-2.4"])
def test_curated_names_stand_for_the_submitting_python_with_a_notice(name: str) -> None:
    assert len(checked(environment=name)) == 1
