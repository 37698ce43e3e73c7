"""Process 1 of a container: the keeper of the attempt's ranks. Runs in the image's own Python, from 3.8 on.

Started with the folder that holds this copy of Muster and the attempt's folder. It ends when the socket to the keeper
outside closes, and the kernel ends with it whatever is left in the container.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from typing import Any

SOCKET = "container.sock"


def main() -> None:
    sys.path.append(sys.argv[1])
    from muster.agent.keeper import ExecStarter, Keeper

    os.chdir(sys.argv[2])
    outside = socket.socket(socket.AF_UNIX)
    # By a relative name: a socket's path may have 107 bytes.
    outside.connect(SOCKET)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, wake_write = os.pipe()
    for end in (wake, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    with open("launch.json", "rb") as file:  # noqa: PTH123
        launch = json.load(file)
    launch["ranks"] = [found(rank) for rank in launch["ranks"]]
    Keeper(launch, outside, ExecStarter(), wake).run()


def found(rank: dict[str, Any]) -> dict[str, Any]:
    """The rank with its program as the image has it; empty where PATH does not."""
    name = rank["argv"][0]
    if "/" in name:
        program = name if name.startswith("/") else os.path.normpath(os.path.join(rank["cwd"], name))  # noqa: PTH118
    else:
        program = shutil.which(name, path=rank["env"].get("PATH")) or ""
    return {**rank, "program": program, "argv": [program or name, *rank["argv"][1:]]}


if __name__ == "__main__":
    main()
