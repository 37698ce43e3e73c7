"""Ranks below Muster's own mpirun: mpi4py and C."""

from functools import partial

from recorder import Failure

HEAD = r"""import os
import sys
import time
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, size = comm.Get_rank(), comm.Get_size()
"""

mpi = partial(Failure, convention="mpi", misleading=(r"firewall|memory|disk",))


def script(body: str) -> dict[str, str]:
    return {"solve.py": HEAD + body}


ABORTING = "python -m mpi4py solve.py"

FAILURES = [
    mpi(
        name="t-mpi-raises-and-aborts",
        code="exception",
        way="one rank raises; mpi4py aborts all",
        processes=4,
        command=ABORTING,
        files=script(r"""
grid = np.linspace(0, 1, 100).reshape(10, 10)
block = grid[me * 3:(me + 1) * 3]
comm.Barrier()
print(f"{me}: mean {block.mean():.3f}, first row {block[0, 0]:.2f}, last row {block[2, 0]:.2f}", flush=True)
comm.Barrier()
"""),
        wanted="IndexError: index 2 is out of bounds for axis 0 with size 1",
        helpful=(r"solve\.py|block|size",),
        rank=3,
    ),
    mpi(
        name="t-mpi-raises-others-wait-for-ever",
        code="exception",
        also_codes=("timeout",),
        way="one rank raises and waits in finalize; the time limit ends it",
        processes=3,
        command="python solve.py",
        limit_s=8,
        files=script(r"""
rates = {"H2": 1.2, "O2": 0.7}
total = comm.allreduce(rates["H2"])
if me == 1:
    total += rates["N2"]
total = comm.allreduce(total)
print(me, total)
"""),
        wanted="KeyError: 'N2'",
        helpful=(r"solve\.py|N2|mpi4py",),
        rank=1,
    ),
    mpi(
        name="t-mpi-own-abort",
        code="exit_code",
        also_codes=("exception",),
        way="one rank finds a wrong residual and aborts all with a code of its own",
        processes=4,
        command="python solve.py",
        files=script(r"""
residual = 1e-3 if me != 2 else float("nan")
print(f"[{me}] residual {residual}", flush=True)
comm.Barrier()
if residual != residual:
    print(f"[{me}] ERROR: solver diverged in subdomain {me}, aborting", file=sys.stderr, flush=True)
    comm.Abort(17)
comm.Barrier()
"""),
        wanted="ERROR: solver diverged in subdomain 2",
        helpful=(r"solve\.py|diverge|subdomain|residual",),
        rank=2,
    ),
    mpi(
        name="t-mpi-message-truncated",
        code="exception",
        way="a rank receives more than its buffer holds",
        processes=2,
        command=ABORTING,
        files=script(r"""
if me == 0:
    comm.Send(np.arange(120, dtype="d"), dest=1, tag=4)
else:
    halo = np.empty(100)
    comm.Recv(halo, source=0, tag=4)
comm.Barrier()
"""),
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"solve\.py|halo|buffer|Recv",),
        rank=1,
    ),
    mpi(
        name="t-mpi-invalid-peer",
        code="exception",
        way="the last rank sends to a neighbour that does not exist",
        processes=4,
        command=ABORTING,
        files=script(r"""
right = me + 1
buffer = np.full(10, float(me))
if me > 0:
    comm.Recv(np.empty(10), source=me - 1)
comm.Send(buffer, dest=right)
comm.Barrier()
"""),
        wanted="MPI_ERR_RANK: invalid rank",
        helpful=(r"solve\.py|right|neighbour|PROC_NULL",),
        rank=3,
    ),
    mpi(
        name="t-mpi-deadlock-order",
        code="timeout",
        also_codes=("collective",),
        way="one rank receives before it sends, from a peer that waits too",
        processes=3,
        command="python solve.py",
        limit_s=7,
        files=script(r"""
big = np.zeros(4_000_000)
got = np.empty_like(big)
comm.Barrier()
if me < 2:
    peer = 1 - me
    comm.Recv(got, source=peer)
    comm.Send(big, dest=peer)
print(me, "exchanged", flush=True)
comm.Barrier()
"""),
        wanted=("comm.Recv", "time limit", "did not end", "passed", "Recv"),
        helpful=(r"solve\.py|Recv|Sendrecv|rank [01]",),
        misleading=(r"raise limits|longer limit|memory",),
        rank=0,
        also=(1,),
    ),
    mpi(
        name="t-mpi-one-never-comes-to-bcast",
        code="timeout",
        also_codes=("collective",),
        way="one rank waits for a file that nobody writes",
        processes=5,
        command="python solve.py",
        limit_s=7,
        files=script(r"""
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.1)

print(f"rank {me} up", flush=True)
if me == 3:
    wait_for("mesh.ready")
params = comm.bcast({"dt": 0.01} if me == 0 else None)
comm.Barrier()
print(f"rank {me} done")
"""),
        wanted=("wait_for", "mesh.ready", "did not"),
        helpful=(r"solve\.py|mesh\.ready|wait_for|rank 3",),
        misleading=(r"raise limits|longer limit|memory",),
        rank=3,
    ),
    mpi(
        name="t-mpi-root-differs",
        code="timeout",
        also_codes=("collective",),
        way="one rank gathers at another root than the rest",
        processes=4,
        command="python solve.py",
        limit_s=7,
        files=script(r"""
mine = np.full(500_000, float(me))
root = 0 if me != 2 else 2
everything = comm.gather(mine, root=root)
print("gathered on", me, flush=True)
comm.Barrier()
"""),
        wanted=("comm.gather", "did not", "time limit", "gather", "Barrier"),
        helpful=(r"solve\.py|root|rank 2",),
        misleading=(r"memory",),
        rank=2,
    ),
    mpi(
        name="t-mpi-segfault-c",
        code="signal",
        way="a C program writes beyond its array on one rank",
        processes=3,
        command='[ "$OMPI_COMM_WORLD_RANK" = 0 ] && mpicc -g -o heat heat.c && touch built; '
        "while [ ! -e built ]; do sleep 0.1; done; ./heat",
        files={
            "heat.c": r"""#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double *cells = rank == 2 ? NULL : calloc(100, sizeof(double));
    printf("rank %d: %d cells\n", rank, 100); fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    cells[10] = rank;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
"""
        },
        wanted=("Segmentation fault", "SIGSEGV", "Signal: Segmentation", "signal 11"),
        helpful=(r"heat\.c|native|gdb|core|heat",),
        rank=2,
    ),
    mpi(
        name="t-mpi-cpp-exception",
        code="signal",
        also_codes=("exception",),
        way="a C++ exception that nobody catches",
        processes=4,
        command='[ "$OMPI_COMM_WORLD_RANK" = 0 ] && mpicxx -o lookup lookup.cpp && touch built; '
        "while [ ! -e built ]; do sleep 0.1; done; ./lookup",
        files={
            "lookup.cpp": r"""#include <mpi.h>
#include <iostream>
#include <map>
#include <string>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::map<std::string, int> table{{"alpha", 1}, {"beta", 2}};
    MPI_Barrier(MPI_COMM_WORLD);
    std::cout << table.at(rank == 1 ? "gamma" : "alpha") << std::endl;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
"""
        },
        wanted=("std::out_of_range", "map::at"),
        helpful=(r"lookup\.cpp|map|table|key",),
        rank=1,
    ),
    mpi(
        name="t-mpi-killed",
        code="signal",
        way="one rank is killed",
        processes=4,
        command="python solve.py",
        files=script(r"""
for i in range(40):
    comm.allreduce(i)
    time.sleep(0.05)
    if me == 0 and i == 10:
        os.kill(os.getpid(), 9)
"""),
        wanted=("SIGKILL", "Killed", "signal 9"),
        helpful=(r"kill|outside|dmesg|memory",),
        misleading=(r"firewall|disk",),
        rank=0,
    ),
    mpi(
        name="t-mpi-leaves-without-finalize",
        code="collective",
        also_codes=("exit_code",),
        way="one rank leaves with code 0 without finalizing",
        processes=3,
        command="python solve.py",
        limit_s=10,
        files=script(r"""
comm.Barrier()
if me == 2:
    print("rank 2 has no cells, nothing to do", flush=True)
    os._exit(0)
for i in range(20):
    comm.allreduce(i)
"""),
        wanted=("rank 2 has no cells", "finalize", "code 0"),
        helpful=(r"solve\.py|finalize|rank 2|cells",),
        rank=2,
    ),
    mpi(
        name="t-mpi-exit-3-silent",
        code="exit_code",
        way="one rank leaves with code 3 without a word",
        processes=4,
        command="python solve.py",
        files=script("comm.Barrier()\nif me == 1:\n    os._exit(3)\ncomm.Barrier()\ntime.sleep(3)\n"),
        wanted=("code 3", "exit code: 3", "exited with 3", "exit code 3"),
        helpful=(r"rank 1|solve\.py",),
        rank=1,
    ),
    mpi(
        name="t-mpi-unpicklable",
        code="exception",
        way="a lambda cannot be sent",
        processes=3,
        command=ABORTING,
        files=script("work = [lambda x: x + 1] * size if me == 0 else None\nprint(comm.scatter(work, root=0)(1))\n"),
        wanted=("Can't pickle", "Can't get local object", "PicklingError"),
        helpful=(r"solve\.py|lambda|pickle",),
        rank=0,
    ),
    mpi(
        name="t-mpi-module-missing-on-one",
        code="environment",
        way="one rank imports what is not there",
        processes=4,
        command=ABORTING,
        files=script("comm.Barrier()\nif me == 0:\n    import petsc4py_lite\ncomm.Barrier()\n"),
        wanted="No module named 'petsc4py_lite'",
        helpful=(r"petsc4py_lite",),
        rank=0,
    ),
    mpi(
        name="t-mpi-all-know-that-one-failed",
        code="exception",
        also_codes=("exit_code",),
        way="ranks reduce an error flag and all leave",
        processes=6,
        command="python solve.py",
        files=script(r"""
import traceback
ok = True
try:
    weights = np.ones(5).reshape(5 if me != 4 else (2, 2))
except Exception:
    traceback.print_exc()
    ok = False
if not comm.allreduce(ok, op=MPI.LAND):
    print(f"[rank {me}] set-up failed on at least one rank, giving up", flush=True)
    sys.exit(1)
"""),
        wanted="ValueError: cannot reshape array of size 5 into shape (2,2)",
        helpful=(r"solve\.py|reshape|shape",),
        rank=4,
    ),
    mpi(
        name="t-mpi-input-file-missing-on-zero",
        code="exception",
        way="rank 0 reads the input for all, and it is not there",
        processes=4,
        command="python solve.py case.toml",
        limit_s=7,
        also_codes=("timeout",),
        files=script(r"""
import tomllib
settings = None
if me == 0:
    with open(sys.argv[1], "rb") as f:
        settings = tomllib.load(f)
settings = comm.bcast(settings)
"""),
        wanted="No such file or directory: 'case.toml'",
        helpful=(r"case\.toml",),
        rank=0,
    ),
    mpi(
        name="t-mpi-torch-gloo-over-mpi-variables",
        code="exception",
        way="torch takes its rank from mpirun; one rank raises",
        processes=3,
        command="python fit.py",
        files={
            "fit.py": r"""import os, datetime, socket
import torch
import torch.distributed as dist
from mpi4py import MPI
rank, world = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
port = None
if rank == 0:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
port = MPI.COMM_WORLD.bcast(port)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=15))
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
for i in range(5):
    x = torch.randn(2, 3 if (rank, i) != (1, 2) else 5)
    net(x).sum().backward()
"""
        },
        limit_s=15,
        wanted="mat1 and mat2 shapes cannot be multiplied (2x5 and 3x3)",
        helpful=(r"fit\.py|shape",),
        rank=1,
    ),
]
