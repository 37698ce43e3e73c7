"""A gigabyte through a tunnel to a rank's port, against a bare TCP connection to it; and the memory that it takes.

Both read the output of `head -c`. The tunnel is the one that users have: `muster forward` on this machine, the server,
and the process that the rank's keeper forked.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.wire.tunnels import TunnelTarget

MB = 1 << 20
SENDER = """
import os, socket, subprocess
listener = socket.create_server(("127.0.0.1", 0))
with open("port.part", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename("port.part", "port")
while True:
    line = listener.accept()[0]
    subprocess.Popen(["head", "-c", line.recv(20).decode().strip(), "/dev/zero"], stdout=line.fileno())
    line.close()
"""


def main() -> None:
    is_quick = quick(__doc__)
    size, rounds = (100 * MB, 1) if is_quick else (1024 * MB, 3)
    with temporary_workspace() as workspace:
        run, port = serving(workspace)
        words = ["forward", run, f"0:{port}"]
        command = [sys.executable, "-m", "muster.cli", *words]
        with subprocess.Popen(command, cwd=workspace.folder, stderr=subprocess.PIPE, text=True) as forward:
            assert forward.stderr is not None
            local = int(forward.stderr.readline().split()[0].rpartition(":")[2])
            server = psutil.Process(workspace.client.health().pid)
            before = server.memory_info().rss
            ways = {"bare": partial(rate, port, size), "tunnel": partial(rate, local, size)}
            samples = interleave(rounds, ways)
            grown = (server.memory_info().rss - before) / MB
            opened = [opening(workspace, run, port) for _ in range(5 if is_quick else 30)]
            forward.terminate()
        workspace.client.cancel(run, force=True)
        while workspace.client.run(run).status != "Canceled":
            time.sleep(0.05)
    ratios = [through / bare for through, bare in zip(samples["tunnel"], samples["bare"], strict=True)]
    figures = [
        median("bare TCP", samples["bare"], "MB/s"),
        median("through a tunnel", samples["tunnel"], "MB/s"),
        median("ratio", ratios, ""),
        median("opening one", opened, "ms"),
        Figure(f"what the server grew by, {size // MB:,} MB a time", grown, "MB", at_most=20.0),
    ]
    report("tunnel", figures, is_quick)


def serving(workspace: Workspace) -> tuple[str, int]:
    """A run whose rank sends as many bytes as it is asked for, and its port."""
    (workspace.folder / "sender.py").write_text(SENDER)
    spec = make_spec({"command": ["python", "sender.py"], "code": "."})
    run = submit(workspace.client, spec, workspace.folder, python=sys.executable).id
    while True:
        found = list(workspace.folder.glob(f".muster/nodes/*/attempts/{run}.1/work/port"))
        if found:
            return run, int(Path(found[0]).read_text())
        time.sleep(0.05)


def rate(port: int, size: int) -> float:
    """MB a second from a port of this machine."""
    buffer = bytearray(MB)
    began, got = time.perf_counter(), 0
    with closing(socket.create_connection(("127.0.0.1", port))) as line:
        line.sendall(f"{size}\n".encode())
        while count := line.recv_into(buffer):
            got += count
    if got != size:
        raise SystemExit(f"{got} of {size} bytes came")
    return got / MB / (time.perf_counter() - began)


def opening(workspace: Workspace, run: str, port: int) -> float:
    """How long it takes until a tunnel's ends are joined, in ms."""
    began = time.perf_counter()
    tunnel = workspace.client.open_tunnel(run, TunnelTarget("port", port=port))
    passed = time.perf_counter() - began
    tunnel.connection.close()
    return passed * 1000


if __name__ == "__main__":
    main()
