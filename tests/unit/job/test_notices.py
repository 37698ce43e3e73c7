"""A notice says what has no effect; what a container may not have is refused."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import JobError
from muster.job.check import no_effect_notices
from muster.job.explain import make_spec


def checked(**data: Any) -> list[str]:
    return no_effect_notices(make_spec({"command": "x", **data}))


def test_limits_of_a_container_are_ignored_with_a_notice_where_there_is_none() -> None:
    limits = {"resources": {"docker_args": "--memory 8g --cpus=4"}}
    assert "docker_args" in checked(**limits)[0]
    assert checked(**limits, environment={"image": "python"}) == []
    assert checked(**limits, environment="registered") == []


@pytest.mark.parametrize(
    "text", ["--privileged", "-v /:/host", "--memory", "--memory --cpus", "'", "--memory 1g image"]
)
def test_what_a_container_may_not_have_is_refused(text: str) -> None:
    with pytest.raises(JobError) as caught:
        checked(environment={"image": "python"}, resources={"docker_args": text})
    assert "docker_args" in caught.value.message
    assert "--memory" in str(caught.value)


def test_everything_else_passes() -> None:
    assert checked(inputs={"a": 1, "b": {"path": "/data"}, "c": {"path": "https://x", "mode": "direct"}}) == []
    assert checked(outputs={"model": None}, environment={"pip": ["six"]}) == []
