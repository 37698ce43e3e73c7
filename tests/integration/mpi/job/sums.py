"""Every rank adds up all ranks' numbers, and says what it was told."""

import os
import sys

from mpi4py import MPI

from muster import Run

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
Run.get_context().log("total", total)
told = [os.environ[f"OMPI_COMM_WORLD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
print(world.rank, world.size, total, *told, os.environ["MUSTER_NODE_RANK"], *sys.argv[1:])
