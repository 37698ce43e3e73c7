"""Outputs before ranks start: what could not be delivered is refused then, and looking leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from muster.agent.link import Link
from muster.agent.mover import Mover
from muster.agent.prepare.outputs import check_outputs
from muster.agent.refusal import Refusal
from muster.wire.data.access import WRITE, Access
from muster.wire.node.agents import Order, OutputOrder


def check(url: Path, *, folder: bool = True, mode: str = "upload") -> None:
    access = Access("file", str(url), WRITE, folder, label="azureml://datastores/disk/paths/out")
    kind = "uri_folder" if folder else "uri_file"
    order = Order("run", 1, "prepare", output_orders=(OutputOrder("m", mode, kind, access),))
    check_outputs(order, cast(Link, None), Mover("", threading.Event()), cast(Any, lambda _: None))


@pytest.mark.parametrize("folder", [True, False])
def test_a_place_that_cannot_be_written_is_refused_with_its_name(tmp_path: Path, folder: bool) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Refusal) as refused:
        check(tmp_path / "file" / "out", folder=folder)
    said = refused.value.event
    assert said.code == "data_unavailable" and "may write" in said.next
    assert said.message.startswith("output 'm' cannot be written to azureml://datastores/disk/paths/out: ")
    assert said.message.endswith(("Not a directory", "File exists"))


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    check(tmp_path / "new" / "out")
    (tmp_path / "one").write_text("before")
    check(tmp_path / "one", folder=False)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "one"]
    assert (tmp_path / "one").read_text() == "before"


def test_what_the_job_writes_itself_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    check(tmp_path / "file" / "out", mode="direct")
