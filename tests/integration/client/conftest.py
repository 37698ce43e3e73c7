"""A server for a team."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.workspace import ServerRef


@pytest.fixture
def team(workspace: Path) -> Iterator[ServerRef]:
    """A server on a TLS port; what a member of the team needs to reach it."""
    root = workspace / ".muster"
    config = root / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "isolation": "none"}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready, told = os.pipe()
    command = [sys.executable, "-m", "muster.server", "--workspace", str(root), "--tcp", f"127.0.0.1:{port}"]
    command += ["--tls-self-signed", "--foreground", "--ready-fd", str(told)]
    with subprocess.Popen(command, pass_fds=(told,), stderr=subprocess.DEVNULL) as process:
        os.close(told)
        try:
            assert os.read(ready, 1), "the server did not start"
            url, tls = f"https://127.0.0.1:{port}", root / "server/tls/server.crt"
            yield ServerRef(url, token_file=root / "server/admin.token", certificate=tls)
        finally:
            os.close(ready)
            process.terminate()
