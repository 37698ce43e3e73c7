"""Three hosts with a real Ray for the session, and a workspace with a cluster on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import _end_workspace as end_workspace
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import create_workspace
from muster.testing.ray_site import RaySite, missing

PATIENCE_S = 120.0


@pytest.fixture(scope="session")
def ray() -> Iterator[RaySite]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    site = RaySite()
    try:
        site.start()
        yield site
    finally:
        site.close()


@pytest.fixture(scope="session")
def shared(ray: RaySite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("ray")
    client = connect(create_workspace(folder, "ray"))
    client.create_cluster({"name": "many", "engine": "ray", "options": {**ray.options, "cut_off_seconds": 8}})
    yield Site(folder, client)
    client.close()
    end_workspace(folder)


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A workspace with the cluster `many` on three hosts."""
    monkeypatch.chdir(shared.folder)
    return shared


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder that ranks on every host see."""
    return tmp_path
