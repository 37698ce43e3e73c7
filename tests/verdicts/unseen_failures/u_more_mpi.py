"""More gangs below Muster's mpirun: stalls that the program finds itself, loops, silent codes, archives."""

from functools import partial

from recorder import Failure

Mpi = partial(Failure, convention="mpi", processes=4)

FAILURES = [
    Mpi(
        name="u-mpi-stall-inspector",
        way="the program's own stall check names the rank that did not submit a tensor",
        code="exit_code",
        also_codes=("collective",),
        rank=2,
        also=(0,),
        command="python -u train_ring.py",
        files={
            "ring/__init__.py": "",
            "ring/controller.py": """import sys, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
SUBMIT, GO = 40, 41
STALL_WARN, STALL_ABORT = 3.0, 7.0


def negotiate(name):
    \"\"\"Rank 0 lets a tensor go when everybody has submitted it.\"\"\"
    if comm.rank:
        comm.send(name, dest=0, tag=SUBMIT)
        while not comm.iprobe(source=0, tag=GO):
            time.sleep(0.01)
        return comm.recv(source=0, tag=GO)
    ready, began, warned = {0}, time.monotonic(), False
    while len(ready) < comm.size:
        status = MPI.Status()
        if comm.iprobe(tag=SUBMIT, status=status):
            comm.recv(source=status.Get_source(), tag=SUBMIT)
            ready.add(status.Get_source())
            continue
        waited = time.monotonic() - began
        missing = sorted(set(range(comm.size)) - ready)
        if waited > STALL_WARN and not warned:
            warned = True
            print(f"[W controller] One or more tensors were submitted by a subset of ranks for more than "
                  f"{STALL_WARN:.0f} s. Missing ranks: {name}: {missing}", file=sys.stderr)
        if waited > STALL_ABORT:
            print(f"[E controller] Stalled: {name} still waits for ranks {missing}. Shutting down.", file=sys.stderr)
            comm.Abort(75)
        time.sleep(0.01)
    for r in range(1, comm.size):
        comm.send(name, dest=r, tag=GO)
""",
            "train_ring.py": """import time
from ring.controller import comm, negotiate


def save_checkpoint(step):
    print(f"rank {comm.rank}: checkpoint {step} to /mnt/cold (slow mount)")
    time.sleep(60)


for step in range(10):
    for layer in ("conv1", "conv2", "fc"):
        negotiate(f"allreduce.{layer}.grad")
    if step == 4 and comm.rank == 2:
        save_checkpoint(step)
    if comm.rank == 0:
        print("step", step)
""",
        },
        wanted=("still waits for ranks [2]", "Missing ranks: allreduce.conv1.grad: [2]", "checkpoint 4 to /mnt/cold"),
        helpful=(r"train_ring\.py", r"checkpoint|/mnt/cold|rank 2|slow"),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-silent-seven",
        way="one rank leaves with 7 and says nothing",
        code="exit_code",
        rank=1,
        processes=3,
        command="python quiet.py",
        files={
            "quiet.py": """import os, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
comm.barrier()
free = {1: 0}.get(comm.rank, 1)
if not free:
    os._exit(7)
time.sleep(15)
"""
        },
        wanted=("code 7", "exit code 7", "Exit code:    7", "with 7", "status 7"),
        helpful=(r"quiet\.py", r"exit|code|log"),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-never-converges",
        way="one rank iterates for ever because its residual is NaN",
        code="timeout",
        rank=3,
        limit_s=25,
        command="python -u solve.py",
        files={
            "solve.py": """import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def relax(a, tol=1e-6):
    res = np.inf
    sweeps = 0
    while not res < tol:
        b = 0.5 * a
        res = float(np.abs(b - a).max())
        a = b
        sweeps += 1
        if sweeps % 2_000_000 == 0:
            print(f"rank {comm.rank}: sweep {sweeps}, residual {res}")
    return sweeps


block = np.ones(64)
if comm.rank == 3:
    block[5] = np.nan
n = relax(block)
print(f"rank {comm.rank}: converged after {n} sweeps")
print(comm.allreduce(n))
"""
        },
        wanted=("relax", "residual nan", "did not"),
        helpful=(r"solve\.py", r"nan|relax|converge"),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-bad-zip",
        way="one rank's archive is an error page",
        code="exception",
        rank=1,
        processes=2,
        command="python -m mpi4py unpack.py",
        files={
            "cache/shard-1.zip": "<html><body><h1>504 Gateway Time-out</h1></body></html>\n",
            "unpack.py": """import logging
import zipfile
from mpi4py import MPI

comm = MPI.COMM_WORLD
logging.basicConfig(format=f"%(levelname)s [{comm.rank}/{comm.size}] %(message)s", level="INFO")
path = f"cache/shard-{comm.rank}.zip"
if comm.rank == 0:
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a.txt", "a")
logging.info("unpacking %s", path)
with zipfile.ZipFile(path) as z:
    z.extractall("data")
comm.barrier()
logging.info("all shards unpacked")
""",
        },
        wanted="File is not a zip file",
        helpful=(r"shard-1\.zip|unpack\.py|download|zip",),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-scratch-full-on-one-rank",
        way="one rank's scratch is a small tmpfs",
        code="disk_full",
        also_codes=("exception",),
        rank=2,
        processes=3,
        command="bash rank.sh",
        files={
            "rank.sh": """#!/bin/bash
export SCRATCH=$TMPDIR/scratch.$OMPI_COMM_WORLD_RANK
mkdir -p $SCRATCH
if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then
  exec unshare -m bash -c 'mount -t tmpfs -o size=2m tmpfs $SCRATCH && exec python -u -m mpi4py spill.py'
fi
exec python -u -m mpi4py spill.py
""",
            "spill.py": """import os
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
for n in range(8):
    np.save(os.path.join(os.environ["SCRATCH"], f"spill{n}.npy"), np.zeros(65536))
    comm.barrier()
    print(f"rank {comm.rank} spilled part {n}")
""",
        },
        wanted=("65536 requested and 63984 written", "No space left on device"),
        helpful=(r"disk|space|SCRATCH|spill",),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
]
