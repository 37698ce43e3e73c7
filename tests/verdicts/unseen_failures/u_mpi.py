"""Gangs of mpi4py below Muster's mpirun."""

from functools import partial

from recorder import Failure

Mpi = partial(Failure, convention="mpi", processes=4)

FAILURES = [
    Mpi(
        name="u-mpi-root-cannot-read-input",
        way="root raises before the broadcast, others wait until mpirun or the limit ends them",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        command="python -m mpi4py train_hvd.py --train-file data/train.npz",
        files={
            "train_hvd.py": """import argparse
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
parser = argparse.ArgumentParser()
parser.add_argument("--train-file", required=True)
args = parser.parse_args()
data = None
if comm.rank == 0:
    with np.load(args.train_file) as z:
        data = z["x"]
data = comm.bcast(data, root=0)
print(comm.rank, data.shape)
"""
        },
        wanted="No such file or directory: 'data/train.npz'",
        helpful=(r"train\.npz|train-file", r"path|file"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-rank-raises-others-hang",
        way="without mpi4py's runner: a rank raises, finalize hangs, the limit ends it",
        code="exception",
        also_codes=("timeout",),
        rank=2,
        limit_s=25,
        command="python jacobi.py",
        files={
            "jacobi.py": """import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
u = np.zeros((10, 10)) + rank
for it in range(100):
    north, south = (rank - 1) % size, (rank + 1) % size
    halo = comm.sendrecv(u[0].copy(), dest=north, source=south)
    if it == 30 and rank == 2:
        halo = halo[:-1]
    u[-1] = halo
    if rank == 0 and it % 10 == 0:
        print("it", it, "norm", np.linalg.norm(u), flush=True)
"""
        },
        wanted="could not broadcast input array from shape (9,) into shape (10,)",
        helpful=(r"jacobi\.py", r"shape|halo"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-abort-with-code",
        way="one rank calls Abort after its own check",
        code="exit_code",
        rank=3,
        command="python -u mpi_train.py",
        files={
            "mpi_train.py": """from mpi4py import MPI
import time, sys
comm = MPI.COMM_WORLD
rank = comm.rank


def fatal(msg, code=17):
    print(f"FATAL (rank {rank}): {msg}", file=sys.stderr, flush=True)
    comm.Abort(code)


energy = -3.2
for sweep in range(100):
    energy += 0.01 if rank != 3 else 0.8
    if abs(energy) > 10:
        fatal(f"energy {energy:.2f} left the physical range at sweep {sweep}")
    comm.allreduce(energy)
    time.sleep(0.02)
"""
        },
        wanted="left the physical range at sweep",
        helpful=(r"mpi_train\.py", r"energy|range|step|sweep"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-segfault",
        way="numpy's memory is written behind its end by ctypes on one rank",
        code="signal",
        rank=1,
        processes=3,
        command="python kernel.py",
        files={
            "kernel.py": """import ctypes, numpy as np, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
print("rank", comm.rank, "on duty", flush=True)
comm.barrier()
a = np.zeros(16)
offset = 0 if comm.rank != 1 else 1 << 40
ctypes.memset(a.ctypes.data + offset, 0, a.nbytes)
time.sleep(0.2)
comm.allgather(a.sum())
comm.barrier()
"""
        },
        wanted=("Segmentation fault", "SIGSEGV", "Signal 11", "signal 11"),
        helpful=(r"kernel\.py", r"native|ctypes|memory access|faulthandler|core"),
        misleading=(r"firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-truncated-message",
        way="a receive buffer is too small on one rank",
        code="exception",
        also_codes=("collective",),
        rank=2,
        processes=3,
        command="python -m mpi4py exchange.py",
        files={
            "exchange.py": """from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
rank = comm.rank
if rank == 0:
    for dest in range(1, comm.size):
        comm.Send(np.arange(100, dtype="d"), dest=dest, tag=11)
else:
    n = 100 if rank != 2 else 50
    buf = np.empty(n, dtype="d")
    comm.Recv(buf, source=0, tag=11)
    print(f"rank {rank} received {buf.size} values", flush=True)
comm.Barrier()
"""
        },
        wanted=("MPI_ERR_TRUNCATE", "message truncated"),
        helpful=(r"exchange\.py", r"buffer|size|count|shape"),
        misleading=(r"network|firewall|oversubscribe|out of memory",),
    ),
    Mpi(
        name="u-mpi-one-rank-deadlock",
        way="one rank waits for a message with another tag",
        code="timeout",
        rank=1,
        processes=3,
        limit_s=20,
        command="python pipeline.py",
        files={
            "pipeline.py": """from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
TAG_GRAD, TAG_STOP = 5, 6
for step in range(8):
    if rank == 0:
        for r in range(1, comm.size):
            comm.send({"step": step}, dest=r, tag=TAG_GRAD)
    else:
        tag = TAG_GRAD
        if rank == 1 and step == 5:
            tag = TAG_STOP
        msg = comm.recv(source=0, tag=tag)
        print(f"stage {rank} got {msg}", flush=True)
    comm.barrier()
"""
        },
        wanted=("comm.recv(source=0, tag=tag)", "comm.recv", "recv", "pipeline.py"),
        helpful=(r"pipeline\.py", r"tag|recv"),
        misleading=(r"firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-kill-nine",
        way="one rank is killed from outside",
        code="signal",
        also_codes=("host_oom",),
        rank=2,
        command="python worker.py",
        files={
            "worker.py": """import os, signal, subprocess, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
for step in range(200):
    comm.allreduce(step)
    if comm.rank == 2 and step == 20:
        print("step 20: allocating optimizer state", flush=True)
        # the node's watchdog
        subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {os.getpid()}"])
    time.sleep(0.02)
"""
        },
        wanted=("SIGKILL", "signal 9", "Killed", "allocating optimizer state"),
        helpful=(r"memory|kill|OOM|watchdog|dmesg", r"worker\.py"),
        misleading=(r"firewall|oversubscribe|port\b",),
    ),
    Mpi(
        name="u-mpi-wrong-size",
        way="the script wants a square number of ranks",
        code="exit_code",
        also_codes=("bad_input", "exception"),
        rank=0,
        also=(1, 2, 3, 4, 5),
        processes=6,
        command="python grid2d.py",
        files={
            "grid2d.py": """from mpi4py import MPI
import math, sys
comm = MPI.COMM_WORLD
side = math.isqrt(comm.size)
if side * side != comm.size:
    if comm.rank == 0:
        sys.stderr.write("grid2d: the number of processes must be a square, got %d\\n" % comm.size)
    sys.exit(2)
comm.Create_cart((side, side))
"""
        },
        wanted="the number of processes must be a square, got 6",
        helpful=(r"process|ranks|square|\b4\b|\b9\b", r"grid2d\.py"),
        misleading=(r"network|firewall|memory",),
    ),
    Mpi(
        name="u-mpi-gathered-errors",
        way="rank 0 gathers the errors of all and raises them as one",
        code="exception",
        also_codes=("timeout",),
        rank=3,
        also=(0,),
        command="python validate_shards.py",
        files={
            "validate_shards.py": """from mpi4py import MPI
import hashlib, sys

comm = MPI.COMM_WORLD
rank = comm.rank
shards = {0: b"aaaa", 1: b"bbbb", 2: b"cccc", 3: b"ddd"}
expected = {0: "74b87337454200d4d33f80c4663dc5e5", 1: "65ba841e01d6db7733e90a5b7f9e6f80",
            2: "41fcba09f2bdcdf315ba4119dc7978dd", 3: "11ddbaf3386aea1f2974eee984542152"}

error = None
try:
    digest = hashlib.md5(shards[rank]).hexdigest()
    if digest != expected[rank]:
        raise ValueError(f"shard {rank}: checksum {digest[:8]} does not match manifest {expected[rank][:8]}")
except Exception as e:
    error = f"{type(e).__name__}: {e}"
errors = comm.gather(error, root=0)
if rank == 0:
    bad = {r: e for r, e in enumerate(errors) if e}
    if bad:
        raise RuntimeError("validation failed on: " + "; ".join(f"rank {r} ({e})" for r, e in bad.items()))
ok = comm.bcast(True if rank == 0 else None, root=0)
print("training may start")
""",
        },
        limit_s=20,
        wanted="shard 3: checksum",
        helpful=(r"shard 3|shard|checksum|manifest", r"validate_shards\.py"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-cannot-pickle-lock",
        way="an object cannot be pickled for the broadcast",
        code="exception",
        rank=0,
        processes=2,
        limit_s=20,
        command="python -m mpi4py bcast_model.py",
        files={
            "bcast_model.py": """import threading
from mpi4py import MPI


class Model:
    def __init__(self):
        self.weights = [0.1] * 100
        self.lock = threading.Lock()


comm = MPI.COMM_WORLD
model = Model() if comm.rank == 0 else None
model = comm.bcast(model, root=0)
print(comm.rank, len(model.weights))
"""
        },
        wanted=("cannot pickle '_thread.lock' object",),
        helpful=(r"bcast_model\.py", r"pickle|lock|__getstate__"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-exits-zero-early",
        way="one rank leaves with 0 before the last reduce",
        code="timeout",
        also_codes=("collective",),
        rank=1,
        processes=3,
        limit_s=25,
        command="python -u reduce_loop.py",
        files={
            "reduce_loop.py": """import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
budget = {0: 12, 1: 7, 2: 12}[comm.rank]
done = 0
while True:
    comm.allreduce(1)
    done += 1
    if done == budget:
        print(f"rank {comm.rank}: {done} steps done, budget used up", flush=True)
        if comm.rank == 1:
            time.sleep(1000)   # park the process so that the scheduler keeps the slot
        sys.exit(0)
"""
        },
        wanted=("7 steps done, budget used up", "time.sleep(1000)"),
        helpful=(r"reduce_loop\.py", r"budget|steps|park"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-cpp-abort",
        way="a C++ rank throws and aborts",
        code="signal",
        also_codes=("exception",),
        rank=2,
        processes=3,
        command="bash go.sh",
        files={
            "solver.cpp": """#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <chrono>

int main() {
    int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
    std::cout << "solver " << rank << ": factorising" << std::endl;
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    double pivot = rank == 2 ? 0.0 : 1.0;
    if (pivot == 0.0)
        throw std::runtime_error("matrix is singular: zero pivot in row 118 (rank " + std::to_string(rank) + ")");
    std::this_thread::sleep_for(std::chrono::seconds(20));
    return 0;
}
""",
            "go.sh": """set -e
out=$TMPDIR/solver.$OMPI_COMM_WORLD_RANK
g++ -O1 -o $out solver.cpp
exec $out
""",
        },
        wanted=("matrix is singular: zero pivot in row 118",),
        helpful=(r"solver\.cpp", r"singular|pivot|matrix"),
        misleading=(r"network|firewall|oversubscribe",),
    ),
    Mpi(
        name="u-mpi-watchdog-of-program",
        way="each rank's watchdog ends it when a step lasts too long; rank 0 was in its evaluation",
        code="exit_code",
        rank=0,
        command="python -u steps.py",
        files={
            "steps.py": """import os, threading, time, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
last = [time.monotonic(), "start"]


def watchdog(limit):
    while True:
        time.sleep(0.5)
        age = time.monotonic() - last[0]
        if age > limit:
            what = f"no progress for {age:.0f} s in '{last[1]}', giving up"
            print(f"watchdog: rank {comm.rank} {what}", file=sys.stderr, flush=True)
            os._exit(99)


def phase(name):
    last[:] = [time.monotonic(), name]


threading.Thread(target=watchdog, args=(6 + comm.rank,), daemon=True).start()
for step in range(10):
    phase(f"allreduce {step}")
    comm.allreduce(step)
    if comm.rank == 0 and step == 4:
        phase("full evaluation")
        time.sleep(30)
""",
        },
        wanted=("in 'full evaluation', giving up", "full evaluation"),
        helpful=(r"steps\.py", r"evaluation|watchdog"),
        misleading=(r"network|firewall|memory|oversubscribe",),
    ),
]
