"""Open MPI: `mpirun` in the command, and Muster's own."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|submit again|pip install"
HEAD = "from mpi4py import MPI\nimport sys, os, time\ncomm = MPI.COMM_WORLD\nrank, size = comm.rank, comm.size\n"

FAILURES = [
    Failure(
        name="q-mpirun-abort-with-message",
        code="exit_code",
        convention="mpirun",
        num_ranks=3,
        command="mpirun --oversubscribe -n 3 python solver.py",
        rank=1,
        files={
            "solver.py": HEAD
            + """
comm.Barrier()
if rank == 1:
    print("rank 1: residual diverged (1.3e+18), giving up", flush=True)
    comm.Abort(42)
comm.Barrier()
"""
        },
        wanted="rank 1: residual diverged (1.3e+18), giving up",
        helpful=(r"solver\.py", r"residual"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-dash-m-raises",
        code="exception",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python -m mpi4py train.py",
        rank=3,
        files={
            "train.py": HEAD
            + """
shards = {0: "a", 1: "b", 2: "c"}
mine = shards[rank]
comm.allgather(mine)
"""
        },
        wanted="KeyError: 3",
        helpful=(r"train\.py", r"shards"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-slots",
        code="bad_input",
        convention="mpirun",
        num_ranks=64,
        command="mpirun -n 64 hostname",
        rank=None,
        wanted=("There are not enough slots available in the system to satisfy the 64",),
        helpful=(r"oversubscribe", r"slots", r"-n 64|64"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-mpirun-program-missing",
        code="launcher_missing",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 ./lammps_gpu -in in.melt",
        rank=None,
        also=(0, 1),
        files={"in.melt": "units lj\n"},
        wanted=("lammps_gpu",),
        helpful=(r"lammps_gpu",),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-mpirun-bad-option",
        code="bad_input",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe --num-procs 2 python train.py",
        rank=None,
        also=(0, 1),
        files={"train.py": "print(1)\n"},
        wanted=("num-procs",),
        helpful=(r"num-procs|-n\b|-np\b",),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-mpirun-segv-c",
        code="signal",
        convention="mpirun",
        num_ranks=2,
        command="mpicc -o stencil stencil.c && mpirun --oversubscribe -n 2 ./stencil",
        rank=1,
        files={
            "stencil.c": """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int r;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  double *halo = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (r == 1) halo[7] = 1.0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"""
        },
        wanted=("Segmentation fault", "signal 11", "SIGSEGV"),
        helpful=(r"stencil", r"native|gdb|backtrace|-g"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-compile-error",
        code="exit_code",
        convention="mpirun",
        num_ranks=2,
        command="mpicc -o pi pi.c && mpirun --oversubscribe -n 2 ./pi",
        rank=None,
        also=(0, 1),
        files={
            "pi.c": """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank
  MPI_Init(&argc, &argv);
  MPI_Finalize();
}
"""
        },
        wanted=("error: expected",),
        helpful=(r"pi\.c",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-one-rank-nonzero",
        code="exit_code",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe --tag-output -n 4 bash step.sh",
        rank=2,
        files={
            "step.sh": """#!/bin/bash
echo "preprocessing slice $OMPI_COMM_WORLD_RANK"
if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then
  echo "slice 2: header says 4096 rows, found 4011" >&2
  exit 11
fi
sleep 2
"""
        },
        wanted="slice 2: header says 4096 rows, found 4011",
        helpful=(r"slice 2|rows", r"step\.sh"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-exit-without-finalize",
        code="exit_code",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 python check.py",
        rank=0,
        files={
            "check.py": HEAD
            + """
if rank == 0:
    print("self-test failed: expected 3 workers, have", size, flush=True)
    os._exit(4)
comm.recv(source=0)
"""
        },
        wanted="self-test failed: expected 3 workers, have 2",
        helpful=(r"check\.py", r"3 workers|-n 3|world"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpirun-hang-in-finalize-limit",
        code="exception",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 python job.py",
        rank=1,
        limit_s=7,
        files={
            "job.py": HEAD
            + """
model = None
if rank == 1:
    model.train()
comm.Barrier()
"""
        },
        wanted="AttributeError: 'NoneType' object has no attribute 'train'",
        helpful=(r"job\.py", r"-m mpi4py"),
        misleading=(r"raise `?limits|longer", WRONG_WAY),
    ),
    Failure(
        name="q-mpirun-truncate",
        code="exception",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --oversubscribe -n 2 python -m mpi4py exchange.py",
        rank=1,
        also=(0,),
        files={
            "exchange.py": HEAD
            + """
import numpy as np
if rank == 0:
    comm.Send(np.zeros(64), dest=1)
else:
    buf = np.zeros(32)
    comm.Recv(buf, source=0)
"""
        },
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"exchange\.py", r"buffer|size"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-mpirun-stray-hostfile",
        code="bad_input",
        convention="mpirun",
        num_ranks=2,
        command="mpirun --hostfile hosts.txt -n 2 hostname",
        rank=None,
        also=(0, 1),
        wanted=("hosts.txt", "hostfile"),
        helpful=(r"hosts\.txt|hostfile",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-mpi-worker-raises-under-muster",
        code="exception",
        convention="mpi",
        processes=4,
        command="python -m mpi4py train.py",
        rank=2,
        files={
            "train.py": HEAD
            + """
import logging
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
logging.info("start")
grads = [1.0, 2.0] if rank != 2 else [1.0]
total = comm.allreduce(grads[1])
logging.info("total %s", total)
"""
        },
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-raise-without-dash-m-limit",
        code="exception",
        convention="mpi",
        processes=3,
        command="python train.py",
        rank=0,
        limit_s=6,
        files={
            "train.py": HEAD
            + """
import json
cfg = None
if rank == 0:
    cfg = json.load(open("cfg.json"))
cfg = comm.bcast(cfg, root=0)
print(rank, cfg["lr"], flush=True)
"""
        },
        also_codes=("data_unavailable",),
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'cfg.json'",
        helpful=(r"cfg\.json", r"train\.py", r"-m mpi4py"),
        misleading=(r"raise `?limits|longer", WRONG_WAY),
    ),
    Failure(
        name="q-mpi-segv-rank-8",
        code="signal",
        convention="mpi",
        processes=8,
        command="python sim.py",
        rank=6,
        files={
            "sim.py": HEAD
            + """
import ctypes
for it in range(20):
    comm.Barrier()
    if rank == 6 and it == 9:
        ctypes.memset(8, 0, 4)
"""
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"PYTHONFAULTHANDLER", r"native|ctypes"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-sigkill-rank",
        code="signal",
        convention="mpi",
        processes=3,
        command="python sim.py",
        rank=1,
        files={
            "sim.py": HEAD
            + """
comm.Barrier()
if rank == 1:
    os.kill(os.getpid(), 9)
comm.Barrier()
"""
        },
        wanted=("SIGKILL", "signal 9", "Killed"),
        helpful=(r"dmesg|memory|kill",),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-mpi-abort-from-root",
        code="exit_code",
        convention="mpi",
        processes=4,
        command="python sweep.py",
        rank=0,
        files={
            "sweep.py": HEAD
            + """
scores = comm.gather(rank * 0.1, root=0)
if rank == 0:
    best = max(scores)
    if best < 0.9:
        sys.stderr.write(f"[sweep] best score {best:.2f} is under the floor of 0.90: abort\\n")
        sys.stderr.flush()
        comm.Abort(3)
comm.Barrier()
"""
        },
        wanted="[sweep] best score 0.30 is under the floor of 0.90: abort",
        helpful=(r"sweep\.py", r"floor|score"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-module-missing-everywhere",
        code="environment",
        convention="mpi",
        processes=3,
        command="python train_hvd.py",
        rank=0,
        also=(1, 2),
        files={"train_hvd.py": "import sys\nimport horovodx.torch as hvd\nhvd.init()\n"},
        wanted="ModuleNotFoundError: No module named 'horovodx'",
        helpful=(r"horovodx", r"environment"),
        misleading=(r"firewall|network|smaller batch|submit again",),
    ),
    Failure(
        name="q-mpi-timeout-one-rank-busy",
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        processes=3,
        command="python assemble.py",
        rank=1,
        limit_s=6,
        files={
            "assemble.py": HEAD
            + """
def assemble():
    n = 0
    while True:
        n += 1
        time.sleep(0.001)

comm.Barrier()
if rank == 1:
    print("assembling matrix", flush=True)
    assemble()
comm.Barrier()
"""
        },
        wanted=("assemble", "did not", "waited", "stuck", "was in"),
        helpful=(r"rank 1", r"assemble"),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-mpi-deadlock-recv-recv",
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        processes=2,
        command="python swap.py",
        rank=None,
        also=(0, 1),
        limit_s=5,
        files={
            "swap.py": HEAD
            + """
other = 1 - rank
got = comm.recv(source=other, tag=5)
comm.send(rank, dest=other, tag=5)
"""
        },
        wanted=("comm.recv", "recv", "5 s", "time limit"),
        helpful=(r"swap\.py", r"recv"),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-mpi-script-not-there",
        code="bad_input",
        convention="mpi",
        processes=2,
        command="python -u code/main.py",
        rank=0,
        also=(1,),
        files={"main.py": "print(1)\n"},
        wanted=("can't open file", "No such file"),
        helpful=(r"main\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-wrong-size-check",
        code="exit_code",
        also_codes=("bad_input",),
        convention="mpi",
        processes=3,
        command="python grid.py",
        rank=None,
        also=(0, 1, 2),
        files={
            "grid.py": HEAD
            + """
side = int(size ** 0.5)
if side * side != size:
    if rank == 0:
        print(f"error: the number of processes must be a square, got {size}", file=sys.stderr, flush=True)
    sys.exit(22)
"""
        },
        wanted="error: the number of processes must be a square, got 3",
        helpful=(r"square|4 processes|process.count|--procs|-n 4", r"grid\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-memory-limit-rank",
        code="host_oom",
        also_codes=("exception",),
        convention="mpi",
        processes=2,
        command='if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then ulimit -v 2500000; fi; python -m mpi4py big.py',
        rank=1,
        files={
            "big.py": HEAD
            + """
import numpy as np
blocks = []
for i in range(20):
    comm.Barrier()
    if rank == 1:
        blocks.append(np.ones((5000, 5000)))
"""
        },
        wanted=("Unable to allocate 191. MiB", "ArrayMemoryError"),
        helpful=(r"memory|smaller|fewer", r"big\.py"),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-mpi-early-return-one-rank",
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        processes=3,
        command="python epoch.py",
        rank=2,
        limit_s=6,
        files={
            "epoch.py": HEAD
            + """
n = 4 if rank == 2 else 6
for i in range(n):
    comm.allreduce(i)
print("rank", rank, "done after", n, flush=True)
"""
        },
        wanted=("Finalize", "done after 4", "6 s", "time limit", "waited", "ended"),
        helpful=(r"rank 2", r"epoch\.py", r"same number"),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-mpi-c-program-exit-7",
        code="exit_code",
        convention="mpi",
        processes=2,
        command="bash ./run.sh",
        rank=0,
        also=(1,),
        files={
            "run.sh": """#!/bin/bash
set -euo pipefail
cc -o app_$OMPI_COMM_WORLD_RANK app.c
./app_$OMPI_COMM_WORLD_RANK --mesh mesh.dat
""",
            "app.c": """#include <stdio.h>
int main(int argc, char **argv) {
  FILE *f = fopen(argv[2], "rb");
  if (!f) { fprintf(stderr, "app: cannot open mesh '%s'\\n", argv[2]); return 7; }
  return 0;
}
""",
        },
        also_codes=("data_unavailable",),
        wanted="app: cannot open mesh 'mesh.dat'",
        helpful=(r"mesh\.dat",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-mpi-pickle-mismatch-recv",
        code="exception",
        convention="mpi",
        processes=2,
        command="python -m mpi4py talk.py",
        rank=1,
        files={
            "talk.py": HEAD
            + """
class Batch:
    def __init__(self, x):
        self.x = x
if rank == 0:
    comm.send({"batch": [1, 2, 3]}, dest=1)
    comm.recv(source=1)
else:
    b = comm.recv(source=0)
    print(b.x)
"""
        },
        wanted="AttributeError: 'dict' object has no attribute 'x'",
        helpful=(r"talk\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
]
