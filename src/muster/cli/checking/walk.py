"""Checks the way to a cluster: first from the server, then with a gang."""

from __future__ import annotations

from muster.cli.checking.gang import examine
from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.wire.clusters import Finding


def check_cluster(name: str, wait_s: float | None) -> list[Finding]:
    """All findings; with `wait_s` a gang runs, unless an earlier finding rules it out."""
    client = connect()
    view = client.cluster(name)
    findings = list(client.check_cluster(name).findings)
    if wait_s is None or any(finding.level == "fail" for finding in findings):
        return findings
    return findings + examine(client, view, find_workspace().paths.root, wait_s)
