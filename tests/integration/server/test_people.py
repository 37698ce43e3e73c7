"""People and the audit log on both databases; both outlive the server."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DatabaseError
from tests.integration.server.conftest import Site, on_both_databases

from muster.client.connect import connect
from muster.client.workspace import find_workspace


@on_both_databases
def test_people_and_what_they_did_outlive_the_server(site: Site) -> None:
    site.client.add_person("ada", "member")
    made = site.client.create_token("ci", "ada", "reader", 3600.0)
    site.client.change_person("ada", role="reader")
    config = json.loads((site.folder / ".muster" / "workspace.json").read_text())
    url = config.get("database") or f"sqlite:///{site.folder}/.muster/server/muster.db"
    engine = create_engine(url)
    for statement in ("DELETE FROM audit", "UPDATE audit SET who = 'nobody'"):
        with pytest.raises(DatabaseError, match="only added to"), engine.begin() as connection:
            connection.execute(text(statement))
    engine.dispose()
    site.client.shutdown()
    client = connect(find_workspace(site.folder))
    assert [(item.name, item.role) for item in client.people() if not item.owner] == [("ada", "reader")]
    assert [item.id for item in client.tokens(everybody=True) if item.person == "ada"] == [made.id]
    lines = [(item.action, item.target, item.detail) for item in client.audit()]
    assert ("people.change", "ada", "role reader") in lines and ("workspace.change", "server", "ended") in lines
    client.close()
