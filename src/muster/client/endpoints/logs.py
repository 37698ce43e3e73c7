"""What the replicas of a deployment printed."""

from __future__ import annotations

from muster.client.api import Client
from muster.wire.serving.endpoints import DeploymentView


def last_lines(client: Client, deployment: DeploymentView | None, lines: int) -> str:
    """The last lines of each of its runs' logs; empty where there is none."""
    return "".join(_of_run(client, run, lines) for run in (deployment.runs if deployment is not None else ()))


def _of_run(client: Client, run: str, lines: int) -> str:
    log = next((file for file in client.run(run).files if file.path.startswith("user_logs/")), None)
    text = client.read_file(run, log.path).decode("utf-8", "replace") if log is not None else ""
    return "".join(text.splitlines(keepends=True)[-lines:])
