"""Three hosts with a real Ray for the tests of this folder, and a workspace with a cluster on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import _end_workspace as end_workspace
from tests.integration.server.conftest import Site
from tests.sites.ray import RaySite, missing

from muster import errors
from muster.client.connect import connect
from muster.client.workspace import create_workspace

PATIENCE_S = 120.0


class Together:
    """What the tests here share: from the first that needs it until the last one's end, not until the session's."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ray: RaySite | None = None
        self._site: Site | None = None

    def ray(self) -> RaySite:
        if self._ray is None:
            self._ray = self._stack.enter_context(started(RaySite()))
        # A test may have ended it on some hosts.
        self._ray.revive()
        return self._ray

    def site(self, folder: Path) -> Site:
        if self._site is None:
            options = {**self.ray().options, "cut_off_seconds": 8}
            self._site, _ = self._stack.enter_context(attached(self.ray(), folder, "many", options))
        return self._site

    def end(self) -> None:
        self._ray = self._site = None
        self._stack.close()


_together = Together()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _together.end()


def pytest_sessionfinish() -> None:
    """Where the session was stopped in the midst of these tests."""
    _together.end()


@contextmanager
def started(site: RaySite) -> Iterator[RaySite]:
    try:
        site.start()
        yield site
    finally:
        site.close()


@contextmanager
def attached(ray: RaySite, folder: Path, name: str, options: dict[str, Any]) -> Iterator[tuple[Site, list[str]]]:
    """A workspace with a cluster on that Ray, and its notices; an error shows what Ray's head has to say."""
    client = connect(create_workspace(folder, name))
    try:
        made = client.create_cluster(name, "ray", options)
        yield Site(folder, client), list(made.notices)
    except errors.MusterError as error:
        error.add_note(ray.last_words())
        raise
    finally:
        client.close()
        end_workspace(folder)


@pytest.fixture
def ray() -> RaySite:
    if lacking := missing():
        pytest.skip(lacking)
    return _together.ray()


@pytest.fixture
def shared(ray: RaySite, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return _together.site(tmp_path_factory.mktemp("ray"))


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A workspace with the cluster `many` on three hosts."""
    monkeypatch.chdir(shared.folder)
    return shared


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder that ranks on every host see."""
    return tmp_path
