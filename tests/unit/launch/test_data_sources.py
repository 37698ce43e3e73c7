"""What a dry run says of where bytes come from."""

from __future__ import annotations

import pytest

from muster.job.explain import make_spec
from muster.launch.data_sources import Holding, data_sources

ADDRESS = "azureml://datastores/blob/paths/images"


@pytest.mark.parametrize(
    ("item", "nodes", "shared", "said"),
    [
        ({"path": ADDRESS}, 4, True, "read once for 4 nodes: about 1/4 of it by each, the rest from the others"),
        ({"path": ADDRESS}, 1, True, "from other nodes of the cluster that have it, the rest from the source"),
        ({"path": ADDRESS}, 4, False, "staged from the source by every node for itself"),
        ({"path": ADDRESS}, 1, False, "staged from the source"),
        ({"path": ADDRESS, "mode": "direct"}, 4, True, "read by the job itself"),
        ({"path": "/data/images"}, 4, True, "a path that each node reads itself"),
    ],
)
def test_every_input_has_a_line(item: dict[str, str], nodes: int, shared: bool, said: str) -> None:
    spec = make_spec({"command": "true", "inputs": {"images": {"type": "uri_folder", **item}, "rate": 0.1}})
    assert data_sources(spec, nodes, shared) == (f"input images: {item['path']}, {said}",)


@pytest.mark.parametrize(
    ("holding", "nodes", "shared", "said"),
    [
        (Holding(8 << 20, 1), 1, False, " (8.0 MiB in 1 file), staged from the source"),
        (
            Holding(8 << 20, 2), 4, False,
            " (8.0 MiB in 2 files), staged from the source by every node for itself, 32.0 MiB in all",
        ),
        (
            Holding(8 << 20, 2), 4, True,
            " (8.0 MiB in 2 files), read once for 4 nodes: about 1/4 of it by each, the rest from the others, "
            "2.0 MiB from the source and 6.0 MiB from other nodes",
        ),
        (
            Holding(8 << 20, 2, nodes=("a", "b", "c", "d")), 4, True,
            " (8.0 MiB in 2 files), all of it from other nodes (a, b, c and 1 more have it): "
            "nothing is read from the source",
        ),
        (
            Holding(8 << 20, 2, cached=True), 4, False,
            " (8.0 MiB in 2 files), all of it is in the node's cache: nothing is read from the source",
        ),
        (Holding(5, 3, more=True), 1, False, " (more than 5 B in 3 files), staged from the source"),
        (Holding(0, 0, trouble="no right"), 1, False, " (it could not be listed: no right), staged from the source"),
    ],
)  # fmt: skip
def test_sizes_and_who_has_it_are_told_where_they_are_known(
    holding: Holding, nodes: int, shared: bool, said: str
) -> None:
    spec = make_spec({"command": "true", "inputs": {"images": {"type": "uri_folder", "path": ADDRESS}}})
    assert data_sources(spec, nodes, shared, {"images": holding}) == (f"input images: {ADDRESS}{said}",)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("ro_mount", "read where it lies, not copied"),
        ("stream", "read where it lies, not copied"),
        ("download", "copied from where it lies, on the node"),
        ("direct", "read by the job itself"),
    ],
)
def test_what_nodes_see_as_files_is_not_called_staged(mode: str, said: str) -> None:
    item = {"type": "uri_folder", "path": ADDRESS, "mode": mode}
    spec = make_spec({"command": "true", "inputs": {"images": item}})
    local = {"images": Holding(0, 0, is_local=True)}
    assert data_sources(spec, 2, True, local) == (f"input images: {ADDRESS}, {said}",)


def test_a_streamed_input_comes_while_the_job_runs() -> None:
    spec = make_spec(
        {"command": "true", "inputs": {"images": {"type": "uri_folder", "path": ADDRESS, "mode": "stream"}}}
    )
    assert data_sources(spec, 1, False) == (f"input images: {ADDRESS}, staged from the source, while the job runs",)
