"""A head whose tables are in a real Redis: it dies, comes back, and the run goes on in the attempt that it was in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.ray.conftest import PATIENCE_S, attached, started
from tests.integration.server.conftest import Site
from tests.sites.ray import RaySite, missing


@pytest.fixture
def lasting() -> Iterator[RaySite]:
    if lacking := missing():
        pytest.skip(lacking)
    if shutil.which("redis-server") is None:
        pytest.skip("Redis is not installed (apt-get install redis-server)")
    with started(RaySite(2, redis=True)) as made:
        yield made


def test_a_head_that_comes_back_finds_its_gangs_and_the_attempt_goes_on(lasting: RaySite, tmp_path: Path):
    workplace = tmp_path / "ranks"
    workplace.mkdir()
    with attached(lasting, tmp_path / "workspace", "lasting", lasting.options) as (site, _):
        wait = f"touch {workplace}/up; while [ ! -e {workplace}/go ]; do sleep 0.1; done"
        run = site.run(command=wait, compute="lasting", retry={"node_loss": 0, "platform": 0})
        wait_until((workplace / "up").exists, PATIENCE_S, "the rank")
        lasting.kill_ray(lasting.hosts[0])
        wait_until(lambda: state_of(site) == "unreachable", PATIENCE_S, "the loss to be noticed")
        lasting.start_ray(lasting.hosts[0])
        wait_until(lambda: state_of(site) == "ready", PATIENCE_S, "the head to be attached to")
        (workplace / "go").touch()
        view = site.wait(run, timeout_s=PATIENCE_S)
        assert view["status"] == "Completed", view["verdict"]
        assert len(view["attempts"]) == 1
        after = site.run(command="true", compute="lasting")
        assert site.wait(after, timeout_s=PATIENCE_S)["status"] == "Completed"


def state_of(site: Site) -> str:
    return site.client.cluster("lasting").state
