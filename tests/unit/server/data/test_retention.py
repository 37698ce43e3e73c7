"""What may go and what stays, decided on plain data."""

from __future__ import annotations

import pytest

from muster.server.data.retention import Known, _objects, _orphan, _snapshots

FOLDER = f"runs/r1/checkpoints/1/node_0/{'a' * 16}"
KNOWN = Known(
    runs=frozenset({"r1"}),
    snapshots={"used": 1.0, "old": 1.0, "older": 0.0, "new": 100.0},
    used_snapshots=frozenset({"used"}),
    checkpoint_folders=frozenset({FOLDER}),
    superseded=(),
    assets=("assets/digits/1", "raw"),
)


@pytest.mark.parametrize(
    "name",
    [
        "runs/r1/attempts/1/outputs/m",
        "runs/r1/user_logs/x",
        f"{FOLDER}/w",
        "data/assets/digits/1/x",
        "data/assets/a-folder-of/someone/x",
        "data/raw/y",
        "data/results/z",
        "code/blobs/ab/abc",
        "clusters/c/n/setup.log",
        "anything/else",
    ],
)
def test_what_something_may_refer_to_stays(name: str) -> None:
    assert _orphan(KNOWN, name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("runs/r2/attempts/1/x", "was removed"),
        (f"runs/r1/checkpoints/1/node_0/{'b' * 16}/w", "never published"),
        ("data/assets/digits/0123456789ab/x", "no data asset"),
        ("runs/r1/outputs/.m.part-1a2b3c4d", "never finished"),
    ],
)
def test_what_belongs_to_nothing_may_go_with_a_reason(name: str, why: str) -> None:
    assert why in _orphan(KNOWN, name)


def test_only_what_is_old_enough_goes() -> None:
    objects = [("runs/r2/a", 1, 5.0), ("runs/r2/b", 1, 50.0)]
    assert [item.name for item in _objects(KNOWN, objects, before=10.0)] == ["runs/r2/a"]


def test_unused_code_goes_but_the_last_few() -> None:
    assert {item.name for item in _snapshots(KNOWN, before=10.0, keep_last=0)} == {"old", "older"}
    assert {item.name for item in _snapshots(KNOWN, before=10.0, keep_last=2)} == {"older"}
    assert _snapshots(KNOWN, before=10.0, keep_last=3) == []
