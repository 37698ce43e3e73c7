"""Clusters, file servers and batch endpoints as somebody sees them at 80 columns."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.sites.screens import golden

from muster.cli.console import Paint
from muster.cli.views import batch_endpoints, cluster, endpoints, fileservers
from muster.wire.clusters import ClusterView, NodeShape
from muster.wire.data.fileservers import FileServerView, FillProgress, FillView
from muster.wire.serving.batch import BatchDeploymentView, BatchEndpointView, BatchSettings
from muster.wire.serving.endpoints import DeploymentView, EndpointView, RequestLimits, ServingFigures

SCREENS = Path(__file__).parent / "screens"
NOON = time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1))
STORE = "azureml://datastores/workspaceblobstore/paths"


def fits(name: str, lines: list[str]) -> None:
    shown = [part for line in lines for part in line.split("\n")]
    assert all(len(line) <= 80 for line in shown)
    golden(SCREENS / f"{name}-80.txt", shown)


def deployment(name: str, is_default: bool) -> BatchDeploymentView:
    settings = BatchSettings("score.py", mini_batch_size=10)
    return BatchDeploymentView(name, "nightly", is_default, 1, "resnet50:12", settings, 2, 4, "gpu-cluster")


def test_a_batch_endpoint_fits_the_terminal() -> None:
    deployments = (deployment("first", True), deployment("second", False))
    view = BatchEndpointView("nightly", "first", deployments, None, {}, {}, "ada", NOON, NOON)
    fits("batch-endpoint", list(batch_endpoints.description(view, NOON, 80)))


def test_an_endpoint_fits_the_terminal() -> None:
    figures = ServingFigures(
        "blue", requests=1_234_567, failed=12, rate=1234.5, p50_ms=12.3, p95_ms=45.6, p99_ms=178.9, queue_p95_ms=10.1
    )
    view = EndpointView(
        "digits", "key", "https://10.1.0.7:41707/score", None, "ready", {"blue": 90, "canary-of-may": 10}, {},
        (
            online("blue", 90, figures), online("canary-of-may", 10, replace(figures, deployment="canary-of-may")),
        ),
        "endpoint-digits-4yn7s52y", None, {}, {}, None, "ada", NOON, NOON,
    )  # fmt: skip
    fits("endpoint", list(endpoints.description(view, NOON, 80)))


def online(name: str, share: int, figures: ServingFigures) -> DeploymentView:
    return DeploymentView(
        name, "digits", "serving", share, 0, 3, f"digits-{name}-xbmwnf4g", "resnet50:12", 2, 4, 2, RequestLimits(),
        None, {}, None, 3, f"digits-{name}-xbmwnf4g", NOON, NOON, figures, replace(figures, batch_mean=3.2),
    )  # fmt: skip


def file_server(name: str) -> FileServerView:
    fills = (
        FillView(f"{STORE}/imagenet/train", "train", "ada", NOON, FillProgress(1, "filled", 9, 9, 3, 3)),
        FillView(
            f"{STORE}/imagenet/vall", "val", "ada", NOON,
            FillProgress(2, "failed", text=f"{STORE}/imagenet/vall: No such file or directory; it is tried again"),
        ),
    )  # fmt: skip
    return FileServerView(
        name=name, state="serving", cluster="local", size_bytes=200 * 10**9, used_bytes=10**9, clients="10.1.0.0/16",
        folder="/data", node="local-0", address="10.1.0.7", port=2049, export=f"/{name}", run="fileserver-1", why=None,
        restarts=0, description=None, datastore=name, created_by="ada", created_at=NOON, updated_at=NOON, fills=fills,
    )  # fmt: skip


def test_a_file_server_fits_the_terminal() -> None:
    fits("fileserver", list(fileservers.description(file_server("imagenet"), NOON, 80)))


def test_the_address_of_a_file_server_is_whole() -> None:
    fits("fileservers", fileservers.listing([file_server("imagenet"), file_server("validation")], NOON, 80))


def test_a_cluster_says_what_it_mounts() -> None:
    mounts = [
        {"source": "fileserver:imagenet", "target": "imagenet"},
        {"source": "10.1.0.7:/export/shared", "target": "shared", "read_only": False},
    ]
    view = ClusterView(
        name="gpu", engine="local", state="ready", options={"mounts": mounts}, created_at=NOON, min_nodes=0,
        max_nodes=2, lent=False, idle_seconds_before_scaledown=1800, vm_priority="dedicated", price_per_hour=None,
        size=None, node=NodeShape(1, 1, 16 * 10**9), queued=1, nodes=(),
    )  # fmt: skip
    fits("cluster", cluster.cluster_lines(view, Paint(color=False), NOON))
