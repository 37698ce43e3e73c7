"""Names of files that only just are names: each is stored and read back, or refused."""

from __future__ import annotations

import pytest
from tests.unit.server.conftest import Server

from muster.server.runs.submission import submit
from muster.wire.runs import Submission

KEPT = [
    "line\nbreak", "ends\n", "\n", "a%b", "100%25", "a#b", "a b", "a&b=c", "tab\there", "ünï",
    "..hidden", "a..b", "-rf", "\u202ereversed", "\x1b[31mred", "x" * 200, "; rm", "'\"",
]  # fmt: skip
REFUSED = ["../x", "a/../x", "/etc/passwd", "a//b", "./a", "a\0b", "..", "a/.."]


@pytest.fixture
def run(server: Server) -> str:
    spec = {"command": "python train.py", "compute": "two"}
    return server.write(lambda t: submit(server.context, t, Submission("k", spec))).id


@pytest.mark.parametrize("name", KEPT, ids=ascii)
def test_an_odd_name_is_kept_and_read_back(server: Server, run: str, name: str) -> None:
    path = f"/runs/{run}/files/outputs/{name}"
    assert server.status("PUT", path, b"data") == 201
    assert server.fetch(path, {}) == (200, b"data")
    listed = server.call("GET", f"/runs/{run}/files")[1]
    assert f"outputs/{name}" in [file["path"] for file in listed]
    assert server.fetch(f"/data/workspaceblobstore/nobody/{name}", {})[0] == 404


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_leaves_its_folder_is_refused(server: Server, run: str, name: str) -> None:
    assert server.status("PUT", f"/runs/{run}/files/outputs/{name}", b"data") in (400, 404, 422)
    assert server.fetch(f"/runs/{run}/files/outputs/{name}", {})[0] in (400, 404, 422)
