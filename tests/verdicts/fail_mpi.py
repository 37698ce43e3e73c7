"""Fails in a named way under mpirun."""

import ctypes
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

way, who = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
world.Barrier()
if world.Get_rank() == who:
    if way == "exception":
        raise ValueError("labels out of range: 17 of 10 classes")
    if way == "abort":
        world.Abort(3)
    if way == "SIGKILL":
        os.kill(os.getpid(), 9)
    if way == "segfault":
        ctypes.string_at(0)
    if way == "module":
        import no_such_module  # noqa: F401
    if way == "disk":
        Path("/dev/full").write_bytes(b"x")
time.sleep(1)
world.Barrier()
