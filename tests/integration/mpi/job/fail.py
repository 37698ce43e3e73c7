"""One rank ends in a way of its own while the others wait for it."""

import os
import signal
import sys
import time

from mpi4py import MPI

how, who = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)


def save(*_: object) -> None:
    # Longer than mpirun would wait for a rank that it has told to end.
    time.sleep(2.5)
    print("saved", flush=True)
    os._exit(0)


if how == "save" and world.rank == who:
    signal.signal(signal.SIGTERM, save)
if world.rank == who:
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        MPI.Finalize = lambda: None
        sys.excepthook(ValueError, ValueError("bad luck"), None)
        os._exit(1)
    if how == "abort":
        world.Abort(5)
while True:
    time.sleep(0.1)
