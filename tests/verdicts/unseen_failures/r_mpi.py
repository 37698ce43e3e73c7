"""Gangs of Open MPI: a command with mpirun in it, and one that Muster starts with its own mpirun."""

from recorder import Failure

HEAD = """import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
"""
WRONG_WAY = r"firewall|submit again|smaller batch|disk"
MPIRUN = "mpirun --oversubscribe -n {} "


def mpi(
    name: str, source: str, ranks: int, how: str = "mpirun", run: str = "python -m mpi4py job.py", **labels: object
) -> Failure:
    start = MPIRUN.format(ranks) if how == "mpirun" else ""
    common = {"processes": ranks} if how == "mpi" else {"num_ranks": ranks}
    labels = {"files": {"job.py": HEAD + source}, "misleading": (WRONG_WAY,), "command": start + run} | common | labels
    return Failure(name=name, convention=how, **labels)  # type: ignore[arg-type]


C_HEAD = """#include <mpi.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
"""

FAILURES = [
    mpi(
        "r-mpirun-raises-on-one",
        """
grid = [[0.0] * 4 for _ in range(3)]
comm.Barrier()
if rank == 1:
    grid[3][0] = 1.0
comm.Barrier()
""",
        3,
        code="exception",
        rank=1,
        wanted="IndexError: list index out of range",
        helpful=(r"job\.py",),
    ),
    mpi(
        "r-mpi-raises-on-one",
        """
total = comm.allreduce(rank)
if rank == 2:
    raise ValueError(f"negative density in cell 118 after step {total}")
comm.Barrier()
""",
        4,
        how="mpi",
        code="exception",
        rank=2,
        wanted="ValueError: negative density in cell 118 after step 6",
        helpful=(r"job\.py|density",),
    ),
    mpi(
        "r-mpirun-abort-5",
        """
comm.Barrier()
if rank == 2:
    print("solver diverged: residual 3.2e+08 after 40 iterations", flush=True)
    comm.Abort(5)
comm.Barrier()
""",
        3,
        code="exit_code",
        also_codes=("exception",),
        rank=2,
        wanted="solver diverged: residual 3.2e+08 after 40 iterations",
        helpful=(r"job\.py|residual|diverge|Abort",),
    ),
    mpi(
        "r-mpi-abort-with-message",
        """
comm.Barrier()
if rank == 0:
    print("FATAL: input deck has no section [materials]", file=sys.stderr, flush=True)
    comm.Abort(2)
comm.Barrier()
""",
        2,
        how="mpi",
        code="exit_code",
        also_codes=("exception", "bad_input"),
        rank=0,
        wanted="input deck has no section [materials]",
        helpful=(r"materials|deck|job\.py",),
    ),
    mpi(
        "r-mpirun-raise-waits-in-finalize",
        """
if rank == 1:
    config = {"dt": None}
    steps = int(10 / config["dt"])
comm.Barrier()
""",
        3,
        run="python job.py",
        limit_s=9,
        code="exception",
        also_codes=("timeout",),
        rank=1,
        wanted="TypeError: unsupported operand type(s) for /: 'int' and 'NoneType'",
        helpful=(r"job\.py|mpi4py",),
        misleading=(WRONG_WAY, r"raise .{0,20}timeout"),
    ),
    mpi(
        "r-mpi-raise-waits-in-finalize",
        """
comm.Barrier()
if rank == 3:
    names = ("rho", "u", "v")
    print(names.index("w"))
comm.Barrier()
""",
        4,
        how="mpi",
        run="python job.py",
        limit_s=9,
        code="exception",
        also_codes=("timeout",),
        rank=3,
        wanted="ValueError: tuple.index(x): x not in tuple",
        helpful=(r"job\.py|mpi4py",),
        misleading=(WRONG_WAY, r"raise .{0,20}timeout"),
    ),
    mpi(
        "r-mpirun-c-segfault",
        "",
        3,
        files={
            "heat.c": C_HEAD
            + """  double *cells = malloc(100 * sizeof(double));
  if (rank == 1) cells = (double *)8;
  MPI_Barrier(MPI_COMM_WORLD);
  cells[10] = 3.0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"""
        },
        command="mpicc -o heat heat.c && mpirun --oversubscribe -n 3 ./heat",
        code="signal",
        rank=1,
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"heat\.c|gdb|native|core|-g|sanitize|pointer|heat",),
        misleading=(WRONG_WAY, r"PYTHONFAULTHANDLER"),
    ),
    mpi(
        "r-mpi-c-assert",
        "",
        2,
        how="mpi",
        files={
            "sweep.c": C_HEAD
            + """  int n = rank == 1 ? 0 : 64;
  MPI_Barrier(MPI_COMM_WORLD);
  assert(n > 0 && "empty subdomain");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"""
        },
        command="mpicc -o sweep_$OMPI_COMM_WORLD_RANK sweep.c && ./sweep_$OMPI_COMM_WORLD_RANK",
        code="signal",
        rank=1,
        wanted=('Assertion `n > 0 && "empty subdomain"\' failed',),
        helpful=(r"sweep\.c|assert|subdomain",),
        misleading=(WRONG_WAY, r"PYTHONFAULTHANDLER"),
    ),
    mpi(
        "r-mpirun-message-truncated",
        """
import numpy as np
if rank == 0:
    comm.Send(np.zeros(100), dest=1)
elif rank == 1:
    buf = np.empty(50)
    comm.Recv(buf, source=0)
comm.Barrier()
""",
        3,
        code="exception",
        rank=1,
        also=(0,),
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"job\.py|buffer|buf",),
    ),
    mpi(
        "r-mpirun-too-few-slots",
        "print(rank)\n",
        40,
        command="mpirun -n 40 python job.py",
        code="bad_input",
        rank=None,
        wanted=("not enough slots available",),
        helpful=(r"slots|oversubscribe|-n|processes",),
        misleading=(r"pip install|firewall",),
    ),
    mpi(
        "r-mpirun-unknown-option",
        "print(rank)\n",
        2,
        command="mpirun --ranks-per-node 2 python job.py",
        code="bad_input",
        rank=None,
        wanted=("ranks-per-node",),
        helpful=(r"ranks-per-node|option|--help",),
        misleading=(r"pip install|firewall",),
    ),
    mpi(
        "r-mpirun-program-missing",
        "",
        2,
        command="mpirun --oversubscribe -n 2 ./build/lbm --steps 10",
        files={"src/lbm.c": "int main(void) { return 0; }\n"},
        code="launcher_missing",
        rank=None,
        also=(0, 1),
        wanted=("./build/lbm", "lbm"),
        helpful=(r"lbm|build",),
        misleading=(r"firewall",),
    ),
    mpi(
        "r-mpirun-invalid-rank",
        """
right = rank + 1
data = comm.sendrecv(rank, dest=right, source=(rank - 1) % size)
""",
        3,
        code="exception",
        rank=2,
        wanted="MPI_ERR_RANK: invalid rank",
        helpful=(r"job\.py|dest|rank",),
    ),
    mpi(
        "r-mpirun-leaves-without-finalize",
        """
comm.Barrier()
if rank == 2:
    print("rank 2: no more work", flush=True)
    os._exit(0)
comm.Barrier()
""",
        3,
        limit_s=10,
        code="collective",
        also_codes=("exit_code",),
        rank=2,
        wanted=("finalize", "rank 2: no more work"),
        helpful=(r"job\.py|finalize|os\._exit|rank 2|barrier",),
    ),
    mpi(
        "r-mpi-rank1-killed",
        """
import signal
for step in range(40):
    comm.allreduce(1)
    if rank == 1 and step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
""",
        3,
        how="mpi",
        code="signal",
        rank=1,
        wanted=("SIGKILL", "signal 9", "Killed"),
        helpful=(r"SIGKILL|outside|memory|dmesg",),
    ),
    mpi(
        "r-mpirun-rank0-killed",
        """
import signal
comm.Barrier()
if rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
comm.Barrier()
""",
        2,
        code="signal",
        rank=0,
        wanted=("SIGKILL", "signal 9", "Killed"),
        helpful=(r"SIGKILL|outside|memory|dmesg",),
    ),
    mpi(
        "r-mpi-memory-error",
        """
import resource
comm.Barrier()
if rank == 2:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    halo = bytearray(8 << 30)
comm.Barrier()
""",
        3,
        how="mpi",
        code="host_oom",
        rank=2,
        wanted="MemoryError",
        helpful=(r"memory|job\.py|halo",),
        misleading=(r"firewall|submit again|pip install",),
    ),
    mpi(
        "r-mpirun-limit-one-spins",
        """
def relax(eps):
    error = 1.0
    while error > eps:
        error = max(error * 0.5, 0.001)

if rank == 1:
    print("rank 1 relaxing to 1e-6", flush=True)
    relax(1e-6)
comm.Barrier()
""",
        3,
        limit_s=8,
        code="timeout",
        rank=1,
        wanted=("limit", "relax", "error = max"),
        helpful=(r"job\.py|relax|while",),
    ),
    mpi(
        "r-mpi-limit-recv-without-send",
        """
if rank == 0:
    for source in range(1, size):
        print("got", comm.recv(source=source), flush=True)
elif rank != 2:
    comm.send(f"result of {rank}", dest=0)
else:
    print("part 2 has no particles, skipping", flush=True)
print("rank", rank, "waits for the others", flush=True)
comm.Barrier()
""",
        4,
        how="mpi",
        limit_s=8,
        code="timeout",
        rank=2,
        also=(0,),
        wanted=("limit", "comm.recv", "no particles, skipping"),
        helpful=(r"job\.py|recv|rank 2|rank 0",),
    ),
    mpi(
        "r-mpi-exit-12",
        """
comm.Barrier()
if rank == 1:
    print("mesh file has version 2, this program reads version 4", flush=True)
    sys.stdout.flush()
    os._exit(12)
comm.Barrier()
""",
        2,
        how="mpi",
        code="exit_code",
        rank=1,
        wanted="mesh file has version 2, this program reads version 4",
        helpful=(r"mesh|version|job\.py",),
    ),
    mpi(
        "r-mpirun-restart-file-missing",
        """
from pathlib import Path
for r in (0, 1, 2):
    if rank == 0:
        Path(f"restart.{r:04d}").write_text("ok")
comm.Barrier()
print(open(f"restart.{rank:04d}").read())
comm.Barrier()
""",
        4,
        code="exception",
        rank=3,
        wanted="No such file or directory: 'restart.0003'",
        helpful=(r"restart\.0003|job\.py",),
    ),
    mpi(
        "r-mpirun-argparse-all",
        """
import argparse
p = argparse.ArgumentParser(prog="job.py")
p.add_argument("--cells", type=int, required=True)
p.parse_args()
""",
        2,
        run="python -m mpi4py job.py --cell-count 20",
        code="bad_input",
        rank=0,
        also=(1,),
        wanted=("the following arguments are required: --cells",),
        helpful=(r"--cells",),
    ),
    mpi(
        "r-mpirun-cpp-out-of-range",
        "",
        3,
        files={
            "mix.cpp": """#include <mpi.h>
#include <iostream>
#include <vector>
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<double> flux(8);
  MPI_Barrier(MPI_COMM_WORLD);
  std::cout << "rank " << rank << " flux " << flux.at(rank * 4) << std::endl;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""
        },
        command="mpicxx -o mix mix.cpp && mpirun --oversubscribe -n 3 ./mix",
        code="signal",
        also_codes=("exception",),
        rank=2,
        wanted=("std::out_of_range", "vector::_M_range_check: __n (which is 8) >= this->size() (which is 8)"),
        helpful=(r"mix\.cpp|mix|range|at\(",),
        misleading=(WRONG_WAY, r"PYTHONFAULTHANDLER"),
    ),
    mpi(
        "r-mpi-dtype-mismatch",
        """
import numpy as np
send = np.arange(4, dtype="f8")
recv = np.empty(4, dtype="f4" if rank == 1 else "f8")
comm.Barrier()
if rank == 1:
    send = send.astype(object)
comm.Allreduce(send, recv)
""",
        2,
        how="mpi",
        code="exception",
        rank=1,
        wanted="cannot map 'O' to MPI datatype",
        helpful=(r"job\.py|dtype|object",),
    ),
    mpi(
        "r-mpirun-two-fail-others-wait",
        """
comm.Barrier()
if rank in (1, 2):
    assert rank % 3 == 0, f"uneven split: {17 + rank} rows for 3 ranks"
comm.Barrier()
""",
        3,
        code="exception",
        rank=1,
        also=(2,),
        wanted=("AssertionError: uneven split: 18 rows", "AssertionError: uneven split: 19 rows"),
        helpful=(r"job\.py|split|rows",),
    ),
    mpi(
        "r-mpi-module-missing",
        """
import h5pyd
""",
        3,
        how="mpi",
        code="environment",
        rank=0,
        also=(1, 2),
        wanted="ModuleNotFoundError: No module named 'h5pyd'",
        helpful=(r"h5pyd",),
        misleading=(r"firewall|smaller batch",),
    ),
    mpi(
        "r-mpirun-prefixed-output",
        """
comm.Barrier()
print("step 1 ok", flush=True)
if rank == 1:
    temperatures = {"inlet": 300}
    temperatures["outlet"] += 1
comm.Barrier()
""",
        3,
        command="mpirun --oversubscribe --output tag -n 3 python -m mpi4py job.py",
        code="exception",
        rank=1,
        wanted="KeyError: 'outlet'",
        helpful=(r"job\.py|outlet",),
    ),
    mpi(
        "r-mpirun-shell-wrapper-fails",
        "comm.Barrier()\n",
        2,
        files={
            "job.py": HEAD + "comm.Barrier()\n",
            "wrap.sh": """#!/bin/bash
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
  source /opt/intel/setvars.sh || { echo "wrap.sh: cannot set up the compiler environment" >&2; exit 9; }
fi
sleep 3
""",
        },
        command="mpirun --oversubscribe -n 2 ./wrap.sh",
        code="exit_code",
        rank=1,
        wanted=("cannot set up the compiler environment", "/opt/intel/setvars.sh: No such file or directory"),
        helpful=(r"wrap\.sh|setvars",),
    ),
]
