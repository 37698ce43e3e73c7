"""What a dry run says of where bytes come from."""

from __future__ import annotations

import pytest

from muster.job.explain import make_spec
from muster.launch.data_sources import data_sources

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
