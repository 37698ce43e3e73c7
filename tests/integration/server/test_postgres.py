"""The same server on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.server import test_deaths, test_life, test_retries
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import Conflict
from muster.server.database.connection import Database


@pytest.fixture
def site(workspace: Path, fresh_postgres_url: str) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "database": fresh_postgres_url}))
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()
    assert not (workspace / ".muster" / "server" / "muster.db").exists()


def test_a_run_completes_with_its_files(site: Site):
    test_life.test_files_are_kept_and_nodes_that_write_one_name_do_not_overwrite_each_other(site)


def test_a_failed_rank_is_named(site: Site):
    test_life.test_a_failed_rank_stops_the_others_and_is_named_with_its_traceback(site)


def test_cancel_and_queue(site: Site):
    test_life.test_a_queued_run_says_why_it_waits_and_can_be_cancelled(site)


def test_the_server_can_die(site: Site):
    test_deaths.test_the_server_can_die_at_any_moment(site, "middle")


def test_an_agent_can_die(site: Site):
    test_deaths.test_a_killed_agent_is_a_lost_node_and_its_logs_are_delivered(site, 5)


def test_a_killed_run_resumes(site: Site):
    test_retries.test_a_killed_run_goes_on_from_its_last_checkpoint(site)


def test_every_submission_is_one_run(site: Site):
    test_deaths.test_every_submission_is_one_run_even_when_the_server_dies_between(site)


def test_a_database_has_one_server(fresh_postgres_url: str):
    first = Database(fresh_postgres_url)
    try:
        with pytest.raises(Conflict, match="another server has the database"):
            Database(fresh_postgres_url)
    finally:
        first.close()
    Database(fresh_postgres_url).close()
