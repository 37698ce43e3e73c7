"""Every default figure is one that the product uses."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from muster import defaults
from muster.sdk.compute import AmlCompute

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "muster"


def test_every_default_is_used() -> None:
    used: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "muster.defaults":
                used |= {item.name for item in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "defaults":
                used.add(node.attr)
    unused = {name for name in vars(defaults) if name.isupper()} - used
    assert not unused, f"nothing reads {', '.join(sorted(unused))}: use each where it counts, or remove it"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("job-file.md", f"Further attempts after preemptions ({defaults.RETRIES_PREEMPTION})."),
        ("job-file.md", f"lost nodes and faults of GPUs ({defaults.RETRIES_NODE_LOSS})."),
        ("job-file.md", f"or its surroundings ({defaults.RETRIES_PLATFORM})."),
        ("job-file.md", f"after every other failure ({defaults.RETRIES_USER_ERROR})."),
        ("job-file.md", f"before the first further attempt ({defaults.RETRY_BACKOFF_S:g});"),
        ("job-file.md", f"published checkpoints are kept ({defaults.CHECKPOINTS_KEPT})."),
        ("job-file.md", f"All of the folder, up to {defaults.CODE_LIMIT_BYTES >> 30} GiB"),
        ("clusters.md", f"how long a node may have nothing to do | {defaults.IDLE_SCALEDOWN_S:g} |"),
        ("commands.md", f"How long an idle node stays (default: {defaults.IDLE_SCALEDOWN_S:g})."),
        ("launch-contract.md", f"`MASTER_PORT` | {defaults.MASTER_PORT} where that is free"),
        ("slurm.md", f"the ranks get SIGTERM | {defaults.SLURM_WARNING_S} |"),
        ("slurm.md", f"one `squeue` for all runs | {defaults.SLURM_POLL_S:g} |"),
        ("storage.md", f"runs up to {defaults.CODE_CACHE_BYTES >> 30} GiB"),
        ("environments.md", f"| {defaults.ENVIRONMENTS_LIMIT_BYTES >> 30} GiB |"),
        ("environments.md", f"| {defaults.IMAGES_LIMIT_BYTES >> 30} GiB |"),
        ("quickstart.md", f"stops after {defaults.IDLE_EXIT_S / 60:g} idle minutes"),
        ("verdicts.md", f"SIGTERM and {defaults.GRACE_CANCEL_S:g} seconds"),
    ],
)
def test_documents_give_the_figure_that_is_used(document: str, text: str) -> None:
    assert text in (ROOT / "docs" / document).read_text()


def test_a_cluster_made_by_a_v1_script_keeps_idle_nodes_as_long_as_any_other() -> None:
    parameters = inspect.signature(AmlCompute.provisioning_configuration).parameters
    assert parameters["idle_seconds_before_scaledown"].default == defaults.IDLE_SCALEDOWN_S
