"""What people of a Ray cluster expect to find on a run, and the check of the way to it."""

from __future__ import annotations

from tests.integration.ray.conftest import PATIENCE_S
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import muster
from tests.sites.ray import RaySite


def test_a_run_has_its_placement_group_and_a_check_walks_the_whole_way(site: Site, ray: RaySite):
    said = muster("cluster", "check", "many")
    assert "ok    reach       Ray " in said
    assert "2 nodes added up on " in said
    # Long enough for Ray to be asked about it.
    run_id = site.run(command="sleep 4", compute="many")
    view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert view["status"] == "Completed", view["verdict"]
    job = view["attempts"][-1]["queue_job"]
    assert job["id"].startswith("muster:")
    assert job["id"].endswith(f"{run_id}.1")
    assert job["nodes"] == view["attempts"][-1]["nodes"][0]["name"]
    assert f"nodes {job['nodes']}" in muster("show", run_id)
