"""Runs that wait for other runs."""

from __future__ import annotations

import pytest

from muster import errors
from muster.control.dependencies import Standing, parse, standing
from muster.job.explain import make_spec


@pytest.mark.parametrize(
    ("wanted", "statuses", "expected"),
    [
        (["a:completed"], {"a": "Completed"}, Standing()),
        (["a"], {"a": "Running"}, Standing(waits="waits for a (Running)")),
        (["a"], {"a": "Failed"}, Standing(never="a, which it depends on, ended as Failed")),
        (["a:ended"], {"a": "Failed"}, Standing()),
        (["a:ended"], {"a": "Finalizing"}, Standing(waits="waits for a (Finalizing)")),
        (["a"], {}, Standing(never="a, which it depends on, was removed")),
        (["a", "b"], {"a": "Queued", "b": "Canceled"}, Standing(never="b, which it depends on, ended as Canceled")),
        (
            list("abcde"),
            dict.fromkeys("abcde", "Queued"),
            Standing(waits="waits for a (Queued), b (Queued), c (Queued) and 2 more"),
        ),
    ],
)
def test_where_a_run_stands(wanted: list[str], statuses: dict[str, str], expected: Standing):
    assert standing(wanted, statuses) == expected


def test_a_job_names_one_run_or_several():
    assert make_spec({"command": "true", "after": "prepare"}).after == ("prepare",)
    assert make_spec({"command": "true", "after": ["a-1", "@latest", "b.2:ended"]}).after == (
        "a-1",
        "@latest",
        "b.2:ended",
    )
    assert parse("b.2:ended").run == "b.2"
    for wrong in ("a b", "a:sometimes", "", "-x", "a;rm"):
        with pytest.raises(errors.JobError, match="is not a run"):
            make_spec({"command": "true", "after": wrong})
