"""The same on PostgreSQL: what is kept of data, grants and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Postgres, _end_workspace
from tests.integration.server.conftest import Site
from tests.integration.storage import test_assets, test_grants, test_retention, test_secrets
from tests.integration.storage.test_assets import digits
from tests.integration.storage.test_grants import results

from muster.client.connect import connect
from muster.client.storage import Storage
from muster.client.workspace import create_workspace, find_workspace

__all__ = ["digits", "results"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("postgres")
    create_workspace(folder, "test")
    config = folder / ".muster" / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "database": postgres.new_database()}))
    client = connect(find_workspace(folder))
    yield Site(folder, client)
    client.close()
    _end_workspace(folder)


def test_versions_of_assets(storage: Storage, digits: Path, tmp_path: Path) -> None:
    test_assets.test_a_local_folder_becomes_versions_with_sizes_and_hashes(storage, digits, tmp_path)


def test_revocation(site: Site, storage: Storage, results: str) -> None:
    test_grants.test_a_revoked_grant_is_refused_at_once(site, storage, results)


def test_secrets_are_masked(site: Site, storage: Storage) -> None:
    test_secrets.test_a_secret_that_a_rank_prints_is_masked_in_every_spelling(site, storage)


def test_retention_works(site: Site) -> None:
    test_retention.test_a_run_that_a_model_comes_from_stays(site)
