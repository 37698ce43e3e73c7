"""A sign-on service (OpenID Connect) of a team's own, as a real provider."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = Path(os.environ.get("MUSTER_TEST_TOOLS") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/muster-tests")
PROVIDER = Path(__file__).with_name("oidc_provider.mjs")


def named(workspace: Path) -> str:
    """The address at which the workspace's people sign on, written into its settings."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        issuer = f"http://127.0.0.1:{probe.getsockname()[1]}"
    config = workspace / ".muster" / "workspace.json"
    sso = {"issuer": issuer, "client_id": "muster"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "sso": sso}))
    return issuer


@contextmanager
def serving(issuer: str, portal: str = "") -> Iterator[None]:
    """The provider while it runs; with the address of a portal, people may come from there."""
    command = ["node", str(PROVIDER), str(TOOLS / "oidc"), issuer.rpartition(":")[2], *filter(None, [portal])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
