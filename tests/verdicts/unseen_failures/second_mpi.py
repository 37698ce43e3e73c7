"""Gangs of MPI. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

mpi = partial(Failure, convention="mpi")
mpirun = partial(Failure, convention="mpirun")
HUNG = ("did not", "hung", "stuck", "blocked", "waiting", "not respond", "no answer", "time limit")

FAILURES = [
    mpi(
        name="n-mpi-raises-others-wait-for-limit",
        code="exception",
        processes=4,
        rank=2,
        limit_s=8,
        command="python stencil.py",
        files={
            "grid.py": """\
import numpy as np


def block(rank, size):
    rows = np.array_split(np.arange(50), size)[rank]
    if rank == 2:
        rows = rows.reshape(-1, 1)
    return np.ones((len(rows), 10)) * rows
""",
            "stencil.py": """\
import numpy as np
from mpi4py import MPI

from grid import block

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
print(f"rank {rank} of {size} starts", flush=True)
field = block(rank, size) if rank == 2 else np.ones((12, 10))
if rank == 2:
    field = field + np.ones((9, 10))
for sweep in range(20):
    field = 0.5 * field
    norm = comm.allreduce(float((field**2).sum()))
    if rank == 0:
        print("sweep", sweep, "norm", norm, flush=True)
""",
        },
        wanted="operands could not be broadcast together",
        helpful=(r"stencil\.py|grid\.py", r"shape|broadcast", r"-m mpi4py"),
        misleading=(r"\bmemory\b|firewall|pip install|raise the (time )?limit",),
    ),
    mpi(
        name="n-mpi-module-aborts-all",
        code="exception",
        processes=5,
        rank=1,
        command="python -m mpi4py census.py",
        files={
            "census.py": """\
import csv
import io

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.rank
TABLES = ["a,b", "a;b", "a,b", "a,b", "a,b"]


def rows(text):
    for record in csv.reader(io.StringIO(text)):
        first, second = record
        yield first, second


pairs = list(rows(TABLES[rank]))
print(f"rank {rank}: {pairs}", flush=True)
everything = comm.gather(pairs, root=0)
if rank == 0:
    print("total", sum(len(part) for part in everything))
""",
        },
        wanted="not enough values to unpack (expected 2, got 1)",
        helpful=(r"census\.py", r"\brows\b", r"separator|delimiter|;"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpi(
        name="n-mpi-one-rank-computes-forever",
        code="timeout",
        processes=5,
        rank=3,
        limit_s=8,
        command="python -u solve.py",
        files={
            "solve.py": """\
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.rank


def newton(start, tolerance):
    x = start
    while abs(x**3 - 2 * x + 2) > tolerance:
        x = x - (x**3 - 2 * x + 2) / (3 * x**2 - 2)
    return x


starts = [-2.0, -1.5, -3.0, 0.0, -1.0]
print(f"rank {rank} starts at {starts[rank]}")
root = newton(starts[rank], 1e-12)
print(f"rank {rank} found {root:.6f}")
roots = comm.allgather(root)
if rank == 0:
    print("spread", max(roots) - min(roots))
""",
        },
        wanted=(*HUNG, "newton"),
        helpful=(r"solve\.py", r"\bnewton\b", r"rank 3"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpirun(
        name="n-mpirun-master-aborts-for-worker",
        code="exception",
        num_ranks=4,
        rank=2,
        command="mpirun --oversubscribe -n 4 python farm.py",
        files={
            "farm.py": """\
import sys
import time
import traceback

from mpi4py import MPI

comm = MPI.COMM_WORLD
RESULT, ERROR = 1, 2
JOBS = {1: "10 2", 2: "7 0", 3: "9 3"}


def divide(text):
    a, b = map(int, text.split())
    return a // b


def worker():
    try:
        comm.send((comm.rank, divide(JOBS[comm.rank])), dest=0, tag=RESULT)
    except Exception:
        print(f"worker {comm.rank}:\\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        comm.send((comm.rank, "failed"), dest=0, tag=ERROR)
    time.sleep(15)


def master():
    status = MPI.Status()
    for _ in range(3):
        who, value = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        if status.tag == ERROR:
            print(f"master: worker {who} reports a failure, aborting", flush=True)
            time.sleep(0.5)
            comm.Abort(17)
        print("master:", who, value, flush=True)


master() if comm.rank == 0 else worker()
""",
        },
        wanted="ZeroDivisionError: integer division or modulo by zero",
        helpful=(r"farm\.py", r"\bdivide\b", r"worker 2|rank 2"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpirun(
        name="n-mpirun-leaves-without-finalize",
        code="collective",
        num_ranks=3,
        rank=1,
        command="mpirun --oversubscribe -n 3 python sample.py",
        files={
            "sample.py": """\
import os
import random
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
random.seed(comm.rank)
print(f"chain {comm.rank} warms up", flush=True)
accepted = 0
for draw in range(2000):
    accepted += random.random() < (0.0 if comm.rank == 1 else 0.4)
if accepted == 0:
    print(f"chain {comm.rank}: nothing accepted, leaving the ensemble", flush=True)
    sys.stdout.flush()
    os._exit(0)
total = comm.allreduce(accepted)
print(f"chain {comm.rank}: {accepted} of {total}", flush=True)
""",
        },
        wanted=("nothing accepted, leaving the ensemble", "without calling", "exited", "code 0"),
        helpful=(r"sample\.py", r"os\._exit|finalize", r"rank 1"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpirun(
        name="n-mpirun-exits-with-four",
        code="exit_code",
        num_ranks=4,
        rank=3,
        command="mpirun --oversubscribe --tag-output -n 4 bash worker.sh",
        files={
            "worker.sh": """\
#!/bin/bash
# one tile each
tile=$OMPI_COMM_WORLD_RANK
echo "tile $tile: rendering"
sleep 1
if [ "$tile" = 3 ]; then
  echo "tile $tile: ERROR texture pack 'granite' has no level 4" >&2
  exit 4
fi
sleep 10
echo "tile $tile: done"
""",
        },
        wanted="texture pack 'granite' has no level 4",
        helpful=(r"granite|texture", r"worker\.sh", r"tile 3|rank 3"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpi(
        name="n-mpi-c-program-segfaults",
        code="signal",
        processes=3,
        rank=1,
        command="./build.sh && ./halo",
        files={
            "build.sh": """\
#!/bin/bash
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then
  mpicc -O1 -g -o halo.tmp halo.c && mv halo.tmp halo
fi
while [ ! -x halo ]; do sleep 0.2; done
""",
            "halo.c": """\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double *allocate(int rank, int n) {
    if (rank == 1) n = n * 1000000000L > 2147483647L ? 0 : n;
    return n ? calloc(n, sizeof(double)) : NULL;
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *halo = allocate(rank, 1000);
    printf("rank %d of %d allocated its halo\\n", rank, size);
    fflush(stdout);
    for (int i = 0; i < 1000; i++) halo[i] = rank;
    double sum = 0, total = 0;
    for (int i = 0; i < 1000; i++) sum += halo[i];
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("total %g\\n", total);
    MPI_Finalize();
    return 0;
}
""",
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"halo\.c|\bhalo\b", r"gdb|core|debug", r"address|pointer|NULL"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    mpi(
        name="n-mpi-message-truncated",
        code="exception",
        processes=2,
        rank=1,
        command="python -m mpi4py exchange.py",
        files={
            "exchange.py": """\
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
HALO = {0: 64, 1: 32}  # cells on either side


def swap(step):
    send = np.full(64, comm.rank, dtype=np.float64)
    receive = np.empty(HALO[comm.rank], dtype=np.float64)
    comm.Sendrecv(send[: 64 if comm.rank == 0 else 64], dest=1 - comm.rank, recvbuf=receive, source=1 - comm.rank)
    return receive.mean()


for step in range(3):
    print(f"rank {comm.rank} step {step} mean {swap(step)}", flush=True)
""",
        },
        wanted="MPI_ERR_TRUNCATE",
        helpful=(r"exchange\.py", r"\bHALO\b|buffer|size", r"Sendrecv"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpi(
        name="n-mpi-last-rank-sends-past-the-end",
        code="exception",
        processes=6,
        rank=5,
        command="python -m mpi4py pass_on.py",
        files={
            "pass_on.py": """\
import logging

from mpi4py import MPI

comm = MPI.COMM_WORLD
logging.basicConfig(level=logging.INFO, format=f"[{comm.rank}] %(message)s")
log = logging.getLogger()


def pass_on(token):
    log.info("token %s", token)
    comm.send(token + 1, dest=comm.rank + 1, tag=7)


token = 0 if comm.rank == 0 else comm.recv(source=comm.rank - 1, tag=7)
pass_on(token)
comm.barrier()
log.info("ring complete")
""",
        },
        wanted=("MPI_ERR_RANK", "invalid rank"),
        helpful=(r"pass_on\.py", r"\bdest\b|rank \+ 1", r"rank 5"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpi(
        name="n-mpi-other-root-in-config",
        code="timeout",
        also_codes=("collective",),
        processes=3,
        rank=2,
        limit_s=7,
        command="python spread.py",
        files={
            "root.cfg": "0\n0\n2\n",
            "spread.py": """\
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
root = int(open("root.cfg").read().split()[comm.rank])
print(f"rank {comm.rank}: root is {root}", flush=True)
weights = [0.1] * 200_000 if comm.rank == root else None
weights = comm.bcast(weights, root=root)
print(f"rank {comm.rank}: got {len(weights)} weights", flush=True)
comm.barrier()
for step in range(100):
    comm.allreduce(step)
print("finished")
""",
        },
        wanted=("root is 2", *HUNG),
        helpful=(r"root\.cfg|spread\.py", r"\broot\b", r"rank 2"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpirun(
        name="n-mpirun-program-not-there",
        code="launcher_missing",
        num_ranks=4,
        rank=None,
        command="bash job.sh",
        files={
            "job.sh": """\
#!/bin/bash
set -e
export OMP_NUM_THREADS=1
echo "starting 4 ranks of lmp_mpi"
mpirun --oversubscribe -n 4 lmp_mpi -in melt.in
echo "finished"
""",
            "melt.in": "units lj\natom_style atomic\n",
        },
        wanted=("unable to find the specified executable", "lmp_mpi"),
        helpful=(r"lmp_mpi", r"\bPATH\b|install"),
        misleading=(r"\bmemory\b|firewall",),
    ),
    mpi(
        name="n-mpi-needs-multiple-of-three",
        code="exit_code",
        processes=4,
        rank=0,
        also=(1, 2, 3),
        command="python decompose.py --layout 3x1",
        files={
            "decompose.py": """\
import argparse
import sys

from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("--layout", default="2x2")
columns, rows = map(int, parser.parse_args().layout.split("x"))
comm = MPI.COMM_WORLD
if comm.size != columns * rows:
    sys.exit(f"decompose: layout {columns}x{rows} needs {columns * rows} processes, this job has {comm.size}")
cart = comm.Create_cart([columns, rows])
print("coordinates", cart.Get_coords(comm.rank))
""",
        },
        wanted="layout 3x1 needs 3 processes, this job has 4",
        helpful=(r"--layout|layout", r"process(es)? count|processes"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    mpi(
        name="n-mpi-limit-while-all-work",
        code="timeout",
        processes=2,
        rank=None,
        limit_s=6,
        command="python -u montecarlo.py",
        files={
            "montecarlo.py": """\
import random
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
random.seed(comm.rank)
inside = total = 0
for batch in range(10**6):
    for _ in range(20000):
        inside += random.random() ** 2 + random.random() ** 2 < 1
        total += 1
    estimate = 4 * comm.allreduce(inside) / comm.allreduce(total)
    if comm.rank == 0 and batch % 5 == 0:
        print(f"batch {batch}: pi is about {estimate:.5f}")
""",
        },
        wanted=("time limit", "limits.timeout", "passed"),
        helpful=(r"timeout|time limit|fewer|checkpoint",),
        misleading=(r"\bmemory\b|firewall|pip install|deadlock",),
    ),
]
