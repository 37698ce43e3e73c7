"""What is known of a run besides its evidence."""

from __future__ import annotations

import json

import pytest
from tests.unit.server.conftest import Server

from muster.server.runs import facts


def keep(server: Server, run_id: str, data: bytes) -> None:
    server.context.files.store.put(f"runs/{run_id}/attempts/0/muster/provenance.json", [data])


def test_code_is_called_by_its_commit_where_the_client_recorded_one(server: Server) -> None:
    keep(server, "a", json.dumps({"git": {"commit": "1a2b3c4d5e6f", "dirty": False}}).encode())
    keep(server, "b", json.dumps({"git": {"commit": "1a2b3c4d5e6f", "dirty": True}}).encode())
    assert facts._commit(server.context, "a") == "commit 1a2b3c4d"
    assert facts._commit(server.context, "b") == "commit 1a2b3c4d and changes that were not committed"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"git": null}', b'{"git": {"commit": 7}}', b'{"git": "x"}'])
def test_a_record_that_says_nothing_of_a_commit_is_none(server: Server, data: bytes) -> None:
    keep(server, "a", data)
    assert facts._commit(server.context, "a") == ""
    assert facts._commit(server.context, "never recorded") == ""
