"""torchrun, accelerate and mpirun."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
WAIT = """\
import os, pathlib, sys, time
RANK, WORLD = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
def barrier(name, seconds=20):
    pathlib.Path('sync').mkdir(exist_ok=True)
    pathlib.Path(f'sync/{name}.{RANK}').touch()
    end = time.monotonic() + seconds
    while len(list(pathlib.Path('sync').glob(f'{name}.*'))) < WORLD:
        if time.monotonic() > end:
            raise TimeoutError(f'rank {RANK}: barrier {name} timed out')
        time.sleep(0.02)
barrier('start')
"""
GLOO = """\
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
"""
MPI = """\
from mpi4py import MPI
import os, sys, time
comm = MPI.COMM_WORLD
RANK, WORLD = comm.Get_rank(), comm.Get_size()
"""

FAILURES = [
    Failure(
        name="torchrun-key-error-one-of-4",
        way="a child raises; the report has no error file",
        convention="torchrun",
        num_ranks=4,
        code="exception",
        rank=2,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "train.py": WAIT
            + """\
heads = {'cls': 1}
if RANK == 2:
    print(heads['lm'])
barrier('end', 30)
"""
        },
        wanted="KeyError: 'lm'",
        helpful=(
            r"train\.py",
            "heads|'lm'",
        ),
        misleading=(r"network|memory|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-record-error-file",
        way="a child with @record raises",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=1,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if RANK == 1:
        raise NotImplementedError('optimizer lion8bit is not implemented for float64')
    barrier('end', 30)
main()
"""
        },
        wanted="NotImplementedError: optimizer lion8bit is not implemented for float64",
        helpful=(
            r"train\.py",
            "lion8bit|float64",
        ),
        misleading=(r"network|memory|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-two-nodes-raise",
        way="a child on the second node raises; the others wait in gloo",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        code="exception",
        rank=3,
        command=(
            "torchrun --nnodes 2 --node-rank $NODE_RANK --nproc-per-node 2 --master-addr "
            "$MASTER_ADDR --master-port $MASTER_PORT train.py"
        ),
        files={
            "train.py": GLOO
            + """\
dist.barrier()
if RANK == 3:
    raise ValueError('bucket 4 holds 0 samples after filtering')
dist.all_reduce(torch.ones(4))
"""
        },
        wanted="ValueError: bucket 4 holds 0 samples after filtering",
        helpful=(
            r"train\.py",
            "bucket|filter",
        ),
        misleading=(r"network|memory|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-segv-one-of-4",
        way="a child crashes",
        convention="torchrun",
        num_ranks=4,
        code="signal",
        rank=1,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "train.py": WAIT
            + """\
if RANK == 1:
    import ctypes
    ctypes.memmove(0, 1, 8)
barrier('end', 30)
"""
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "Signal 11",
        ),
        helpful=("faulthandler|native|rank 1",),
        misleading=(r"network|memory limit|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-child-killed",
        way="SIGKILL for one child",
        convention="torchrun",
        num_ranks=3,
        code="signal",
        rank=2,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
if RANK == 2:
    print('evaluating', flush=True)
    os.kill(os.getpid(), 9)
barrier('end', 30)
"""
        },
        wanted=(
            "SIGKILL",
            "Killed",
            "Signal 9",
        ),
        helpful=("SIGKILL|kill|rank 2",),
        misleading=(r"network|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-exit-message",
        way="one child leaves with a sentence",
        convention="torchrun",
        num_ranks=3,
        code="exit_code",
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
if RANK == 0:
    sys.exit('refusing to overwrite runs/base-7b, use --overwrite')
barrier('end', 30)
"""
        },
        wanted="refusing to overwrite runs/base-7b, use --overwrite",
        helpful=("--overwrite|runs/base-7b",),
        misleading=(r"network|memory|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-all-lack-module",
        way="all children lack a package",
        convention="torchrun",
        num_ranks=3,
        code="environment",
        also=(
            1,
            2,
        ),
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": """\
import os
import bitsandbytes as bnb
"""
        },
        wanted="No module named 'bitsandbytes'",
        helpful=("bitsandbytes",),
        misleading=("network|memory|firewall",),
    ),
    Failure(
        name="torchrun-script-missing",
        way="the script is not there",
        convention="torchrun",
        num_ranks=3,
        code="exit_code",
        also_codes=(
            "bad_input",
            "launcher_missing",
        ),
        also=(
            1,
            2,
        ),
        command="torchrun --standalone --nproc-per-node 3 src/train.py",
        files={"train.py": "print(1)\n"},
        wanted="can't open file",
        helpful=(r"train\.py",),
        misleading=(r"network|memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torchrun-hung-child-of-4",
        way="a child does not come to the all-reduce",
        convention="torchrun",
        num_ranks=4,
        code="collective",
        rank=2,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "train.py": GLOO
            + """\
dist.barrier()
def fetch_shard():
    time.sleep(500)
if RANK == 2:
    fetch_shard()
dist.all_reduce(torch.ones(2))
"""
        },
        wanted=(
            *HUNG,
            "fetch_shard",
        ),
        helpful=("rank 2|fetch_shard",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="torchrun-child-leaves-early",
        way="a child has fewer steps and ends with 0",
        convention="torchrun",
        num_ranks=3,
        code="collective",
        rank=1,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": GLOO
            + """\
for step in range(3 if RANK == 1 else 5):
    dist.all_reduce(torch.ones(2))
print('rank', RANK, 'is done after', step + 1, 'steps', flush=True)
dist.destroy_process_group()
"""
        },
        wanted=(
            *LEFT,
            "Connection closed by peer",
            "is done after 3 steps",
        ),
        helpful=("rank 1|drop_last|uneven|join",),
        misleading=(r"memory|\bpip\b|interface",),
    ),
    Failure(
        name="torchrun-child-leaves-and-aborts",
        way=("a child has fewer steps, leaves without destroying its group, and aborts as it ends"),
        convention="torchrun",
        num_ranks=3,
        code="collective",
        also_codes=("signal",),
        rank=1,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": GLOO
            + """\
for step in range(3 if RANK == 1 else 5):
    dist.all_reduce(torch.ones(2))
print('rank', RANK, 'is done after', step + 1, 'steps', flush=True)
"""
        },
        wanted=(
            *LEFT,
            "terminate called without an active exception",
            "SIGABRT",
            "Connection closed by peer",
        ),
        helpful=("rank 1|drop_last|uneven|join|destroy_process_group",),
        misleading=(r"memory|\bpip\b|interface",),
    ),
    Failure(
        name="torchrun-unknown-option",
        way="torchrun rejects an option",
        convention="torchrun",
        num_ranks=2,
        code="exit_code",
        also_codes=("bad_input",),
        rank=None,
        command="torchrun --standalone --nproc-per-gpu=2 train.py",
        files={"train.py": "print(1)\n"},
        wanted=(
            "unrecognized arguments: --nproc-per-gpu=2",
            "--nproc-per-gpu=2",
        ),
        helpful=("nproc[-_]per[-_]node",),
        misleading=(r"memory|\bpip\b|network",),
    ),
    Failure(
        name="torchrun-gpu-count-without-gpu",
        way="--nproc-per-node=gpu on a node without any",
        convention="torchrun",
        num_ranks=1,
        code="exception",
        also_codes=("bad_input",),
        rank=None,
        also=(0,),
        command="torchrun --standalone --nproc-per-node=gpu train.py",
        files={"train.py": "print(1)\n"},
        wanted="Cuda is not available",
        helpful=("nproc[-_]per[-_]node|no GPU|--compute|cpu",),
        misleading=("out of memory|firewall",),
    ),
    Failure(
        name="torchrun-max-restarts",
        way="a child fails in both attempts",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=1,
        command="torchrun --standalone --max-restarts 1 --nproc-per-node 3 train.py",
        files={
            "train.py": """\
import os, time
r = os.environ['RANK']
print('attempt', os.environ['TORCHELASTIC_RESTART_COUNT'], 'rank', r, flush=True)
if r == '1':
    raise FloatingPointError('gradient overflow in layer 11')
time.sleep(60)
"""
        },
        wanted="FloatingPointError: gradient overflow in layer 11",
        helpful=(r"train\.py|overflow|layer 11|scale",),
        misleading=(r"network|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-second-node-never-comes",
        way="two nodes are announced, one launcher starts",
        convention="torchrun",
        num_ranks=4,
        code="rendezvous",
        rank=None,
        command=(
            "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint "
            "127.0.0.1:$MASTER_PORT --rdzv-id 7 --rdzv-conf "
            "join_timeout=4,last_call_timeout=1 train.py"
        ),
        files={"train.py": "print(1)\n"},
        wanted=(
            "RendezvousTimeoutError",
            "did not find each other",
            "timed out",
        ),
        helpful=("nnodes|second node|node",),
        misleading=(r"memory|\bpip\b|train\.py",),
    ),
    Failure(
        name="torchrun-limit-hung-child",
        way="the time limit passes; one child hangs",
        convention="torchrun",
        num_ranks=3,
        code="timeout",
        also_codes=("collective",),
        rank=1,
        limit_s=10.0,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
def drain():
    while True:
        time.sleep(0.2)
if RANK == 1:
    drain()
barrier('end', 300)
"""
        },
        wanted=(
            *HUNG,
            "drain",
        ),
        helpful=("rank 1|drain",),
        misleading=(r"memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="torchrun-tee-prefixes",
        way="--tee puts a prefix before each line",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        also_codes=("host_oom",),
        rank=2,
        command="torchrun --standalone --tee 3 --log-dir logs --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
for s in range(3):
    print('step', s, 'rank', RANK, flush=True)
if RANK == 2:
    raise MemoryError('prefetch of 12 batches does not fit the pinned pool (8 MiB)')
barrier('end', 30)
"""
        },
        wanted="MemoryError: prefetch of 12 batches does not fit the pinned pool (8 MiB)",
        helpful=(r"prefetch|pinned|train\.py",),
        misleading=(r"network|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-output-redirected",
        way="--redirects sends the children's output to files; only the report is left",
        convention="torchrun",
        num_ranks=3,
        code="exit_code",
        also_codes=("exception",),
        rank=1,
        command="torchrun --standalone --redirects 3 --log-dir logs --nproc-per-node 3 train.py",
        files={
            "train.py": WAIT
            + """\
if RANK == 1:
    raise TypeError('hidden in a file')
barrier('end', 30)
"""
        },
        wanted=(
            "exitcode",
            "exit code 1",
            "code 1",
        ),
        helpful=(r"logs?\b|--redirects|--tee|record",),
        misleading=(r"network|memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torchrun-no-python-missing-program",
        way="--no-python with a program that is not there",
        convention="torchrun",
        num_ranks=2,
        code="launcher_missing",
        also_codes=(
            "exception",
            "bad_input",
        ),
        also=(1,),
        command="torchrun --standalone --nproc-per-node 2 --no-python ./bin/trainer --steps 3",
        files={"train.py": "print(1)\n"},
        wanted="No such file or directory: './bin/trainer'",
        helpful=("bin/trainer|--no-python",),
        misleading=(r"network|memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torchrun-abort-in-cpp",
        way="a child aborts in C++ with a message",
        convention="torchrun",
        num_ranks=3,
        code="signal",
        rank=2,
        command=("g++ -shared -fPIC -o libtopk.so topk.cpp && torchrun --standalone --nproc-per-node 3 train.py"),
        files={
            "topk.cpp": """\
#include <stdexcept>
extern "C" int topk(int k) { if (k > 64) throw std::length_error("topk: k=128 exceeds 64"); return k; }
""",
            "train.py": WAIT
            + """\
import ctypes
lib = ctypes.CDLL('./libtopk.so')
lib.topk(128 if RANK == 2 else 8)
barrier('end', 30)
""",
        },
        wanted="topk: k=128 exceeds 64",
        helpful=("topk|k=128",),
        misleading=(r"network|memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torchrun-ddp-params-differ",
        way="one rank builds another model",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        also_codes=("collective",),
        rank=2,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": GLOO
            + """\
from torch import nn
model = nn.Linear(8, 5 if RANK == 2 else 4)
model = nn.parallel.DistributedDataParallel(model)
print('wrapped', flush=True)
"""
        },
        wanted=(
            "appears not to match sizes of the same param in process",
            "DDP expects same model across all ranks",
        ),
        helpful=(r"rank 2|model|Linear|train\.py",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torchrun-nccl-without-gpu",
        way="the NCCL backend on a node without GPUs",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        also_codes=(
            "environment",
            "bad_input",
        ),
        also=(
            1,
            2,
        ),
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": """\
import torch.distributed as dist
dist.init_process_group('nccl')
print('ready')
"""
        },
        wanted=(
            "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            "Distributed package doesn't have NCCL built in",
        ),
        helpful=("gloo|--compute|no GPU",),
        misleading=("out of memory|firewall|SOCKET_IFNAME",),
    ),
    Failure(
        name="accelerate-child-raises",
        way="accelerate launch, one child raises",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=1,
        venv="torch",
        command=(
            "ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes 3 "
            "--main_process_port $MASTER_PORT train.py"
        ),
        files={
            "train.py": """\
from accelerate import Accelerator
import torch
a = Accelerator(cpu=True)
a.print('processes', a.num_processes)
x = torch.ones(4, 3)
a.wait_for_everyone()
if a.process_index == 1:
    x = x @ torch.ones(4, 2)
a.wait_for_everyone()
"""
        },
        wanted="mat1 and mat2 shapes cannot be multiplied (4x3 and 4x2)",
        helpful=(r"train\.py|shape",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi4py-module-raises",
        way="python -m mpi4py: an exception aborts all",
        convention="mpirun",
        num_ranks=3,
        code="exception",
        rank=1,
        command="mpirun --oversubscribe -n 3 python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 1:
    raise ArithmeticError('temperature schedule returned -0.5')
comm.Barrier()
"""
        },
        wanted="ArithmeticError: temperature schedule returned -0.5",
        helpful=(r"train\.py|temperature",),
        misleading=(r"memory|firewall|\bpip\b|network",),
    ),
    Failure(
        name="mpi4py-raises-until-limit",
        way="without -m mpi4py the rank that raised waits in Finalize until the limit",
        convention="mpirun",
        num_ranks=4,
        code="exception",
        also_codes=("timeout",),
        rank=2,
        limit_s=5.0,
        command="mpirun --oversubscribe -n 4 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 2:
    names = ['a', 'b']
    names.index('c')
comm.Barrier()
"""
        },
        wanted="ValueError: 'c' is not in list",
        helpful=(r"-m mpi4py|train\.py|names",),
        misleading=(r"memory|firewall|pip install|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="mpi-abort-with-message",
        way="MPI_Abort with a printed reason",
        convention="mpirun",
        num_ranks=3,
        code="exit_code",
        rank=2,
        command="mpirun --oversubscribe -n 3 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 2:
    print('rank 2: energy drift 3.2e-1 exceeds the tolerance 1e-3', flush=True)
    comm.Abort(7)
comm.Barrier()
"""
        },
        wanted="rank 2: energy drift 3.2e-1 exceeds the tolerance 1e-3",
        helpful=(r"energy|tolerance|train\.py",),
        misleading=(r"memory|firewall|\bpip\b|network",),
    ),
    Failure(
        name="mpirun-segv-one-of-4",
        way="one rank crashes",
        convention="mpirun",
        num_ranks=4,
        code="signal",
        rank=3,
        command="mpirun --oversubscribe -n 4 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 3:
    import ctypes
    ctypes.string_at(8)
comm.Barrier()
"""
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "signal 11",
        ),
        helpful=("faulthandler|native|rank 3",),
        misleading=(r"memory limit|firewall|\bpip\b|network",),
    ),
    Failure(
        name="mpirun-killed-one-of-3",
        way="one rank gets SIGKILL",
        convention="mpirun",
        num_ranks=3,
        code="signal",
        command="mpirun --oversubscribe -n 3 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 0:
    os.kill(os.getpid(), 9)
comm.Barrier()
"""
        },
        wanted=(
            "SIGKILL",
            "Killed",
            "signal 9",
        ),
        helpful=("SIGKILL|kill|rank 0",),
        misleading=(r"firewall|\bpip\b|network",),
    ),
    Failure(
        name="mpirun-shell-exit-3",
        way="mpirun starts a shell script; one rank exits with 3",
        convention="mpirun",
        num_ranks=3,
        code="exit_code",
        rank=1,
        command="mpirun --oversubscribe -n 3 ./rank.sh",
        files={
            "rank.sh": """\
#!/bin/bash
if [ $OMPI_COMM_WORLD_RANK = 1 ]; then
  echo 'rank.sh: licence file /opt/lic/node1.lic has expired' >&2
  exit 3
fi
sleep 20
"""
        },
        wanted="rank.sh: licence file /opt/lic/node1.lic has expired",
        helpful=(r"licen[cs]e|node1\.lic|rank\.sh",),
        misleading=(r"memory|firewall|\bpip\b|network",),
    ),
    Failure(
        name="mpirun-not-enough-slots",
        way="more processes than slots",
        convention="mpirun",
        num_ranks=64,
        code="bad_input",
        also_codes=("exit_code",),
        rank=None,
        command="mpirun -n 64 python train.py",
        files={"train.py": "print(1)\n"},
        wanted="not enough slots available",
        helpful=("oversubscribe|slots|-n 64|fewer",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpirun-no-such-program",
        way="mpirun cannot find the program",
        convention="mpirun",
        num_ranks=2,
        code="launcher_missing",
        also_codes=(
            "exit_code",
            "bad_input",
        ),
        also=(1,),
        command="mpirun --oversubscribe -n 2 ./lammps -in in.melt",
        files={"in.melt": "units lj\n"},
        wanted=(
            "unable to find the specified executable file",
            "could not find",
            "./lammps",
        ),
        helpful=("lammps",),
        misleading=("memory|firewall|pip install",),
    ),
    Failure(
        name="mpirun-limit-hung-rank",
        way="one rank never comes to the barrier; the limit passes",
        convention="mpirun",
        num_ranks=4,
        code="timeout",
        also_codes=("collective",),
        rank=3,
        limit_s=5.0,
        command="mpirun --oversubscribe -n 4 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
def io_phase():
    time.sleep(900)
if RANK == 3:
    io_phase()
comm.Barrier()
"""
        },
        wanted=(
            *HUNG,
            "io_phase",
        ),
        helpful=("rank 3|io_phase",),
        misleading=(r"memory|firewall|\bpip\b|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="mpi-truncated-message",
        way="a receive buffer that is too small",
        convention="mpi",
        processes=3,
        code="exception",
        rank=1,
        command="python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
import numpy as np
comm.Barrier()
if RANK == 0:
    comm.Send(np.zeros(100), dest=1)
elif RANK == 1:
    buf = np.zeros(10)
    comm.Recv(buf, source=0)
comm.Barrier()
"""
        },
        wanted="MPI_ERR_TRUNCATE: message truncated",
        helpful=(r"train\.py|buf|Recv|truncat",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-c-invalid-rank",
        way="a C program sends to a rank that does not exist",
        convention="mpirun",
        num_ranks=3,
        code="exit_code",
        also_codes=(
            "exception",
            "collective",
            "bad_input",
        ),
        rank=2,
        command="mpicc -o ring ring.c && mpirun --oversubscribe -n 3 ./ring",
        files={
            "ring.c": """\
#include <mpi.h>
int main(int c, char **v) {
  int r, n, x = 1;
  MPI_Init(&c, &v);
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Barrier(MPI_COMM_WORLD);
  if (r == 2) MPI_Send(&x, 1, MPI_INT, r + 1, 0, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""
        },
        wanted="MPI_ERR_RANK: invalid rank",
        helpful=("MPI_Send|rank|ring",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-cpp-exception-rank-2",
        way="a C++ rank throws",
        convention="mpi",
        processes=4,
        code="signal",
        rank=2,
        command=("mpicxx -o solve$OMPI_COMM_WORLD_RANK solve.cpp && exec ./solve$OMPI_COMM_WORLD_RANK"),
        files={
            "solve.cpp": """\
#include <mpi.h>
#include <stdexcept>
int main(int c, char **v) { MPI_Init(&c, &v); int r; MPI_Comm_rank(MPI_COMM_WORLD, &r); \
MPI_Barrier(MPI_COMM_WORLD); if (r == 2) throw std::runtime_error("mesh: cell 17 has a negative volume"); \
MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); }
"""
        },
        wanted="mesh: cell 17 has a negative volume",
        helpful=("mesh|cell 17|volume",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-leaves-without-finalize",
        way="one rank leaves with code 0 and without MPI_Finalize",
        convention="mpirun",
        num_ranks=3,
        code="collective",
        also_codes=("exit_code",),
        rank=1,
        limit_s=8.0,
        command="mpirun --oversubscribe -n 3 python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 1:
    print('nothing left to do', flush=True)
    os._exit(0)
comm.Barrier()
"""
        },
        wanted=(
            *LEFT,
            "nothing left to do",
            "finalize",
        ),
        helpful=(r"rank 1|finali[sz]e|os\._exit",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-all-lack-module",
        way="every MPI rank lacks a module",
        convention="mpi",
        processes=3,
        code="environment",
        also=(
            1,
            2,
        ),
        command="python train.py",
        files={"train.py": "import petsc4py\n"},
        wanted="No module named 'petsc4py'",
        helpful=("petsc4py",),
        misleading=("memory|firewall|network",),
    ),
    Failure(
        name="mpi-one-rank-lacks-file",
        way="one MPI rank does not find its part",
        convention="mpi",
        processes=5,
        code="exception",
        also_codes=("data_unavailable",),
        rank=4,
        command="python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
data = open(f'part{RANK}.csv').read()
print(comm.allreduce(len(data)))
""",
            "part0.csv": "1,2\n",
            "part1.csv": "1,2\n",
            "part2.csv": "1,2\n",
            "part3.csv": "1,2\n",
        },
        wanted="No such file or directory: 'part4.csv'",
        helpful=(r"part4\.csv",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-numpy-shape-mismatch",
        way="buffers of different sizes in one all-reduce",
        convention="mpi",
        processes=3,
        code="exception",
        rank=1,
        command="python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
import numpy as np
grads = np.ones((4, 4))
if RANK == 1:
    grads = grads + np.ones((4, 5))
comm.Allreduce(MPI.IN_PLACE, grads)
"""
        },
        wanted="operands could not be broadcast together with shapes (4,4) (4,5)",
        helpful=(r"train\.py|shape|grads",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-disk-full-rank-1",
        way="one MPI rank finds no space",
        convention="mpi",
        processes=3,
        code="disk_full",
        rank=1,
        command="python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
with open('/dev/full' if RANK == 1 else 'restart.bin', 'wb') as f:
    f.write(bytes(1 << 16))
    f.flush()
comm.Barrier()
"""
        },
        wanted="No space left on device",
        helpful=("disk|space|/dev/full|muster rm",),
        misleading=(r"out of memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpi-hung-rank-of-6-limit",
        way="one of six MPI ranks spins in Python",
        convention="mpi",
        processes=6,
        code="timeout",
        also_codes=("collective",),
        rank=4,
        limit_s=7.0,
        command="python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
def settle():
    while True:
        time.sleep(0.05)
if RANK == 4:
    settle()
comm.allreduce(1)
"""
        },
        wanted=(
            *HUNG,
            "settle",
        ),
        helpful=("rank 4|settle",),
        misleading=(r"memory|firewall|\bpip\b|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="mpi-raises-until-limit-own-logs",
        way="an exception on one MPI rank that mpirun does not end",
        convention="mpi",
        processes=3,
        code="exception",
        also_codes=("timeout",),
        limit_s=5.0,
        command="python train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 0:
    scale = dict(fp16=1)
    scale['fp8']
print(comm.bcast(1), flush=True)
"""
        },
        wanted="KeyError: 'fp8'",
        helpful=(r"fp8|-m mpi4py|train\.py",),
        misleading=(r"memory|firewall|pip install|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="mpirun-mpmd-server-fails",
        way="two programs in one job; the second fails",
        convention="mpirun",
        num_ranks=3,
        code="exception",
        rank=2,
        command=("mpirun --oversubscribe -n 2 python -m mpi4py worker.py : -n 1 python -m mpi4py server.py"),
        files={
            "worker.py": MPI
            + """\
comm.send({'rank': RANK}, dest=2)
print(comm.recv(source=2))
""",
            "server.py": MPI
            + """\
jobs = [comm.recv() for _ in range(2)]
total = sum(j['weight'] for j in jobs)
""",
        },
        wanted="KeyError: 'weight'",
        helpful=(r"server\.py|weight",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="mpirun-tagged-output",
        way="mpirun --tag-output puts a prefix before each line",
        convention="mpirun",
        num_ranks=4,
        code="exception",
        rank=2,
        command="mpirun --oversubscribe --tag-output -n 4 python -m mpi4py train.py",
        files={
            "train.py": MPI
            + """\
comm.Barrier()
if RANK == 2:
    print(int('0x1F'))
comm.Barrier()
"""
        },
        wanted="ValueError: invalid literal for int() with base 10: '0x1F'",
        helpful=(r"train\.py|0x1F",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
]
