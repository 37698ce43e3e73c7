"""Process 1 of a container: the keeper of the attempt's ranks. Runs in the image's own Python, from 3.8 on.

Its arguments are the folder with this copy of Muster and the attempt's folder. It ends when the socket to the keeper
on the node closes, and the kernel then ends whatever is left in the container.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.agent.run.records import Launch, LaunchMpi, LaunchRank

SOCKET = "inside/container.sock"

# Open MPI 4 and 5 in a container whose engine does not let processes read each other's memory.
_WITHOUT_SINGLE_COPY = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma"}


def main() -> None:
    sys.path.append(sys.argv[1])
    from muster.agent.run.keeper import Keeper

    os.chdir(sys.argv[2])
    node_keeper = socket.socket(socket.AF_UNIX)
    # By a relative name: a socket's path may have 107 bytes.
    node_keeper.connect(SOCKET)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, wake_write = os.pipe()
    for end in (wake, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    with open("launch.json", "rb") as file:  # noqa: PTH123
        launch: Launch = json.load(file)
    launch["ranks"] = [found(rank) for rank in launch["ranks"]]
    if launch["mpi"] is not None and not reads_memory():
        copy_twice(launch["mpi"], launch["ranks"])
    Keeper(launch, node_keeper, wake).run()


def reads_memory() -> bool:
    """Whether the seccomp profile lets a process read another one's memory; older ones of docker do not."""

    class Span(ctypes.Structure):
        _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    word, copy = ctypes.create_string_buffer(b"word"), ctypes.create_string_buffer(5)
    remote, local = (Span(ctypes.addressof(buffer), 5) for buffer in (word, copy))
    read = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    return read is not None and read(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == 5


def copy_twice(mpi: LaunchMpi, ranks: list[LaunchRank]) -> None:
    """Have the ranks copy messages through shared memory; mpirun and its daemon pass the setting on."""
    for env in (mpi["daemon_env"], *(rank["env"] for rank in ranks)):
        env.update({name: value for name, value in _WITHOUT_SINGLE_COPY.items() if name not in env})


def found(rank: LaunchRank) -> LaunchRank:
    """The rank with its program's path in the image; empty where it is not on PATH."""
    name = rank["argv"][0]
    if "/" in name:
        program = name if name.startswith("/") else os.path.normpath(os.path.join(rank["cwd"], name))  # noqa: PTH118
    else:
        program = shutil.which(name, path=rank["env"].get("PATH")) or ""
    return {**rank, "program": program, "argv": [program or name, *rank["argv"][1:]]}


if __name__ == "__main__":
    main()
