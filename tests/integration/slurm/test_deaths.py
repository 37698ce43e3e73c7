"""A few cells of the table of deaths × moments; `python -m tests.sites.deaths` plays them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sites import deaths
from tests.sites.slurm import missing


@pytest.fixture(scope="module")
def here() -> Iterator[deaths.Scene]:
    if lacking := missing():
        pytest.skip(f"Slurm is not installed: {', '.join(lacking)}")
    with deaths.scene() as made:
        yield made


@pytest.mark.parametrize(
    ("death", "moment", "outcomes"),
    [
        ("controller", "queued", {"completed"}),
        # What its ranks had done is delivered from the folder where they were through before anybody missed the agent.
        ("agent", "running", {"node_lost, completed", "completed"}),
        ("server", "preparing", {"completed"}),
    ],
)
def test_a_run_comes_to_its_end_and_the_cluster_takes_the_next(
    here: deaths.Scene, death: str, moment: str, outcomes: set[str]
):
    cell = deaths.play(here, death, moment)
    assert cell.well, cell
    assert cell.outcome in outcomes


def test_the_table_says_what_went_wrong():
    cells = [deaths.Cell("agent", "idle", "", True), deaths.Cell("agent", "running", "node_lost", False)]
    assert deaths.table(cells).splitlines()[-1] == "| agent | next job completed | **wrong**: node_lost |"
