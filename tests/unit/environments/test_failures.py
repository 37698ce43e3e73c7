"""What tools printed, as a failure with a next step that fits its cause."""

from __future__ import annotations

import pytest

from muster.environments.failures import classify_engine

REFUSED = "Error: initializing source docker://localhost/mine: pinging container registry localhost: connection refused"


def test_an_image_of_the_node_itself_is_looked_for_on_the_node_and_not_in_the_network() -> None:
    failure = classify_engine("pulling the image localhost/mine:1 failed", 125, [REFUSED], pulled=True)
    assert failure.message == "pulling the image localhost/mine:1 failed: the node has no image of that name"
    assert "network" not in failure.next
    assert "build it there" in failure.next


@pytest.mark.parametrize("image", ["registry.example.com/mine:1", "localhost:5000/mine:1"])
def test_a_registry_that_does_not_answer_is_a_matter_of_the_network(image: str) -> None:
    failure = classify_engine(f"pulling the image {image} failed", 125, ["dial tcp: connection refused"], pulled=True)
    assert "the registry cannot be reached" in failure.message
