"""A few cells of the table of deaths × moments on Ray; `python -m tests.sites.deaths --engine ray` plays them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sites import deaths
from tests.sites.ray import RaySite


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deaths")


@pytest.fixture
def here(ray: RaySite, folder: Path) -> Iterator[deaths.RayScene]:
    with deaths.ray_workspace(ray, folder) as made:
        yield made


@pytest.mark.parametrize(
    ("death", "moment", "outcomes"),
    [
        ("broker", "queued", {"completed"}),
        # What its ranks had done is delivered from the folder where they were through before anybody missed the agent.
        ("agent", "running", {"node_lost, completed", "completed"}),
    ],
)
def test_a_run_comes_to_its_end_and_the_cluster_takes_the_next(
    here: deaths.RayScene, death: str, moment: str, outcomes: set[str]
):
    cell = deaths.play(here, death, moment)
    assert cell.well, cell
    assert cell.outcome in outcomes
