"""A deployment that may have no replica: the front door holds the request that starts one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli
from tests.integration.scoring.test_endpoints import Asking, deploy, processes_of

__all__ = ["cli", "deploy"]

MORE = """
scale_settings: {type: target_utilization, min_instances: 0, max_instances: 2, idle_s: 1}
request_settings: {request_timeout_ms: 60000, max_concurrent_requests_per_instance: 4}
"""


@pytest.mark.timeout(300)
def test_the_first_request_starts_a_replica_and_is_answered_by_it(cli: Any, deploy: Any) -> None:
    deploy("blue", "--all-traffic", more=MORE)
    ask = Asking(cli)
    first = ask("{}")
    assert first[0] == 200
    wait_until(lambda: not processes_of(cli.folder, "serve.replica"), 60, "no replica")
    view = ask.view()
    assert view["state"] == "ready" and view["deployments"][0]["ready"] == 0
    second = ask("{}")
    assert second[0] == 200 and second[1]["pid"] != first[1]["pid"]
    assert "replicas: 0 → 1" in cli("endpoint", "logs", "digits", "-d", "blue").stdout
