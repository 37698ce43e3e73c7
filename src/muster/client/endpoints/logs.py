"""What the replicas of a deployment printed."""

from __future__ import annotations

from muster.client.api import Client


def last_lines(client: Client, run: str | None, lines: int) -> str:
    """The last lines of a run's log; empty where there is none."""
    if run is None:
        return ""
    log = next((file for file in client.run(run).files if file.path.startswith("user_logs/")), None)
    text = client.read_file(run, log.path).decode("utf-8", "replace") if log is not None else ""
    return "".join(text.splitlines(keepends=True)[-lines:])
