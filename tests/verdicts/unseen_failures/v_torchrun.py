"""Gangs below torchrun and torch.distributed.launch."""

from functools import partial

from recorder import Failure

One = partial(Failure, convention="torchrun", processes=1, num_ranks=4)
RUN = "torchrun --standalone --nproc-per-node 4 "
TWO = (
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT "
)
Two = partial(Failure, convention="torchrun", processes=2, nodes=2, num_ranks=4)

FAILURES = [
    One(
        name="v-tr-bad-label-one-rank",
        way="a label outside the classes on one rank",
        code="exception",
        rank=3,
        command=RUN + "train_classifier.py --classes 10",
        files={
            "train_classifier.py": """import argparse, torch, torch.distributed as dist
import torch.nn.functional as F
parser = argparse.ArgumentParser()
parser.add_argument('--classes', type=int)
args = parser.parse_args()
dist.init_process_group('gloo')
rank = dist.get_rank()
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, args.classes))
opt = torch.optim.SGD(net.parameters(), 0.1)
for it in range(10):
    y = torch.randint(0, args.classes, (8,))
    if rank == 3 and it == 4:
        y[5] = 255                      # "ignore" of another dataset
    loss = F.cross_entropy(net(torch.randn(8, 20)), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if rank == 0: print('iter', it, 'loss', round(loss.item(), 4), flush=True)
"""
        },
        wanted="Target 255 is out of bounds",
        helpful=(r"train_classifier\.py|label|class|ignore_index",),
        misleading=(r"firewall|memory|port\b",),
    ),
    One(
        name="v-tr-old-local-rank-option",
        way="torch.distributed.launch passes --local-rank, the script knows --local_rank",
        code="bad_input",
        rank=0,
        also=(1,),
        num_ranks=2,
        command="python -m torch.distributed.launch --nproc_per_node 2 --master_port $MASTER_PORT train.py --cfg a.yaml",
        files={
            "a.yaml": "lr: 1\n",
            "train.py": """import argparse
parser = argparse.ArgumentParser("segmentation")
parser.add_argument("--cfg")
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
print(args)
""",
        },
        wanted=("unrecognized arguments: --local-rank=",),
        helpful=(r"local.rank|torchrun|--use.env|LOCAL_RANK",),
        misleading=(r"firewall|memory",),
    ),
    One(
        name="v-tr-script-misnamed",
        way="the script lies in another folder",
        code="bad_input",
        also_codes=("exception", "launcher_missing"),
        rank=0,
        also=(1, 2, 3),
        command=RUN + "train.py",
        files={"scripts/train.py": "print('hello')\n"},
        wanted=("can't open file", "train.py': [Errno 2]"),
        helpful=(r"scripts/train\.py|train\.py|path|folder",),
        misleading=(r"firewall|memory",),
    ),
    One(
        name="v-tr-import-of-own-package",
        way="the project's package is not installed",
        code="environment",
        also_codes=("exception",),
        rank=0,
        also=(1, 2, 3),
        command=RUN + "tools/train.py",
        files={
            "segkit/__init__.py": "",
            "segkit/models.py": "class Net: pass\n",
            "tools/train.py": "import os\nfrom segkit.models import Net\nprint(Net)\n",
        },
        wanted="No module named 'segkit'",
        helpful=(r"segkit|PYTHONPATH|pip install|install",),
        misleading=(r"firewall|out of memory",),
    ),
    One(
        name="v-tr-record-value-error",
        way="@record and an exception on rank 1 of a sampler with the wrong rank",
        code="exception",
        rank=0,
        also=(1, 2, 3),
        command=RUN + "main.py",
        files={
            "main.py": """import os
import torch
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DistributedSampler, TensorDataset


@record
def main():
    rank = int(os.environ["RANK"])
    sampler = DistributedSampler(TensorDataset(torch.arange(10)), num_replicas=2, rank=rank + 2)
    print(list(sampler))


if __name__ == "__main__":
    main()
"""
        },
        wanted="Invalid rank",
        helpful=(r"num_replicas|rank|main\.py|sampler",),
        misleading=(r"firewall|memory|port\b",),
    ),
    One(
        name="v-tr-killed-by-oom-killer",
        way="one child exceeds a memory limit of its own cgroup",
        code="host_oom",
        also_codes=("signal",),
        rank=2,
        command=RUN + "--no-python ./in_cgroup.sh python train.py",
        files={
            "in_cgroup.sh": """#!/bin/bash
if [ "$LOCAL_RANK" = 2 ]; then
  g=/sys/fs/cgroup/memory/v_tr_oom_$$
  mkdir -p $g && echo 400M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs
fi
exec "$@"
""",
            "train.py": """import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
keep = []
for i in range(40):
    if rank == 2:
        keep.append(torch.randn(4_000_000))
    dist.barrier()
    print("rank", rank, "iteration", i, flush=True)
""",
        },
        wanted=("SIGKILL", "Signal 9", "killed", "out of memory"),
        helpful=(r"memory|batch|ranks",),
        misleading=(r"firewall|port\b|rendezvous",),
    ),
    One(
        name="v-tr-abort-in-allocator",
        way="double free in a C extension on one rank",
        code="signal",
        rank=1,
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 aug.py",
        files={
            "aug.py": """import ctypes, os, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
print(f"rank {rank} augmenting with native kernels", flush=True)
time.sleep(0.5)
if rank == 1:
    p = libc.malloc(5000)
    q = libc.malloc(64)
    libc.free(p)
    libc.free(p)
dist.barrier()
time.sleep(30)
"""
        },
        wanted=("SIGABRT", "Signal 6", "double free", "free(): "),
        helpful=(r"aug\.py|native|free|extension|core|faulthandler|debug",),
        misleading=(r"firewall|port\b|rendezvous",),
    ),
    One(
        name="v-tr-limit-one-rank-sleeping",
        way="one rank sleeps in a retry loop for a licence, the others are in all_reduce, until the limit",
        code="timeout",
        rank=0,
        limit_s=40,
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 job.py",
        files={
            "job.py": """import os, sys, time
import torch
import torch.distributed as dist

def acquire_license(rank):
    if rank:
        return
    n = 0
    while True:
        n += 1
        print(f"[license] server lic01:27000 busy, retry {n} in 5 s", flush=True)
        time.sleep(5)

dist.init_process_group("gloo")
r = dist.get_rank()
acquire_license(r)
x = torch.ones(1)
dist.all_reduce(x)
print(x)
"""
        },
        wanted=("server lic01:27000 busy", "acquire_license", "time.sleep(5)"),
        helpful=(r"licen|lic01|job\.py",),
        misleading=(r"firewall between|interface|memory",),
    ),
    One(
        name="v-tr-max-restarts-used-up",
        way="restarts do not help against a missing vocabulary file",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        rank=0,
        also=(1,),
        num_ranks=2,
        command="torchrun --standalone --nproc-per-node 2 --max-restarts 2 run_mlm.py --vocab vocab.txt",
        files={
            "vocab/vocab.txt": "[PAD]\n",
            "run_mlm.py": """import argparse, os
p = argparse.ArgumentParser()
p.add_argument("--vocab")
a = p.parse_args()
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "rank", os.environ["RANK"], flush=True)
words = open(a.vocab).read().split()
""",
        },
        wanted="No such file or directory: 'vocab.txt'",
        helpful=(r"vocab\.txt|--vocab|run_mlm\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Two(
        name="v-tr-two-nodes-nproc-differs",
        way="both nodes were told of three nodes; the third never comes",
        code="rendezvous",
        rank=None,
        limit_s=35,
        also_codes=("timeout",),
        command="torchrun --nnodes 3 --nproc-per-node 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR "
        "--master-port $MASTER_PORT train.py",
        files={
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('up', flush=True)\n"
        },
        wanted=("--nnodes", "nnodes", "time limit", "rendezvous", "did not find", "waiting for"),
        helpful=(r"nnodes|number of nodes|world size|nodes",),
        misleading=(r"memory|dataset",),
    ),
    Two(
        name="v-tr-two-nodes-exception-second",
        way="an exception of rank 3 on the second node; the first node's ranks lose their connection",
        code="exception",
        rank=3,
        command=TWO + "train.py",
        files={
            "train.py": """import datetime
import torch
import torch.distributed as dist
from loguru import logger

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
logger.info("rank {} is up", rank)
table = {"lr": "0.001", "wd": "0,01" if rank == 3 else "0.01"}
for step in range(4):
    t = torch.tensor([float(table["lr"])])
    dist.all_reduce(t)
    if step == 2:
        t += float(table["wd"])
    logger.debug("rank {} step {} value {:.4f}", rank, step, t.item())
dist.barrier()
"""
        },
        wanted="could not convert string to float: '0,01'",
        helpful=(r"train\.py|0,01|float|comma|decimal|wd",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Two(
        name="v-tr-two-nodes-endpoint-wrong-port",
        way="node 1 was given the port of another job",
        code="rendezvous",
        rank=None,
        also=(2, 3),
        command="[ $NODE_RANK = 1 ] && MASTER_PORT=$((MASTER_PORT + 1)); torchrun --nnodes 2 --nproc-per-node 2 "
        "--rdzv-backend c10d --rdzv-id 77 --rdzv-endpoint 127.0.0.1:$MASTER_PORT --rdzv-conf join_timeout=12,timeout=12,read_timeout=12,is_host=$((1-NODE_RANK)) train.py",
        files={
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\nprint('up', flush=True)\n"
        },
        wanted=(
            "RendezvousConnectionError",
            "connection to the C10d store has failed",
            "RendezvousTimeoutError",
            "timed out",
        ),
        helpful=(r"rdzv.endpoint|port|endpoint|MASTER_PORT",),
        misleading=(r"memory|dataset",),
    ),
    One(
        name="v-tr-port-in-use",
        way="--master-port of the README of some project is taken",
        code="port_trouble",
        rank=None,
        also=(0, 1),
        num_ranks=2,
        command="python hold.py & sleep 1; torchrun --nproc-per-node 2 --master-port 29777 train.py; code=$?; kill %1; exit $code",
        files={
            "hold.py": "import socket, time\ns = socket.create_server(('0.0.0.0', 29777))\ntime.sleep(120)\n",
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\n",
        },
        wanted=("EADDRINUSE", "address already in use", "Address already in use"),
        helpful=(r"29777|port|--standalone",),
        misleading=(r"memory|dataset",),
    ),
    One(
        name="v-tr-launcher-typo",
        way="an option of torchrun is misspelt",
        code="bad_input",
        rank=None,
        command="torchrun --standalone --nproc_per_nodes 4 train.py",
        files={"train.py": "print(1)\n"},
        wanted="unrecognized arguments: --nproc_per_nodes",
        helpful=(r"nproc|option|torchrun",),
        misleading=(r"memory|firewall",),
    ),
    One(
        name="v-tr-nproc-gpu-on-cpu",
        way="--nproc-per-node gpu without a GPU",
        code="bad_input",
        also_codes=("exception", "environment"),
        rank=None,
        num_ranks=2,
        command="torchrun --standalone --nproc-per-node gpu train.py",
        files={"train.py": "print(1)\n"},
        wanted=("Cuda is not available", "CUDA is not available"),
        helpful=(r"nproc|cpu|gpu|cuda",),
        misleading=(r"memory|firewall",),
    ),
    One(
        name="v-tr-gather-object-hang-timeouts",
        way="one rank skips a gather because it has no predictions, the others time out",
        code="collective",
        rank=2,
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 predict.py",
        files={
            "predict.py": """import datetime, os
import torch.distributed as dist

def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
    rank, world = dist.get_rank(), dist.get_world_size()
    predictions = {} if rank == 2 else {f"doc{rank}": 0.7}
    print(f"Rank {rank}: {len(predictions)} predictions", flush=True)
    if predictions:
        everything = [None] * world
        dist.all_gather_object(everything, predictions)
        if rank == 0:
            print(everything)
    else:
        print(f"Rank {rank}: nothing to gather, waiting for the report", flush=True)
        import time
        while not os.path.exists("report.json"):
            time.sleep(0.5)

main()
"""
        },
        wanted=("nothing to gather, waiting for the report", "time.sleep(0.5)", "while not os.path.exists"),
        helpful=(r"predict\.py|gather|every rank|all ranks|rank 2|report",),
        misleading=(r"firewall|memory|interface",),
    ),
    One(
        name="v-tr-keyboard-interrupt-like",
        way="a watchdog inside the script sends SIGINT to its own process after bad throughput",
        code="exit_code",
        also_codes=("signal", "exception"),
        rank=1,
        num_ranks=2,
        command="torchrun --standalone --nproc-per-node 2 bench.py",
        files={
            "bench.py": """import os, signal, threading, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()

def watchdog():
    time.sleep(1)
    rate = 812.0 if rank == 0 else 3.2
    if rate < 100:
        print(f"WATCHDOG rank {rank}: {rate} samples/s is below the floor of 100, interrupting", flush=True)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=watchdog, daemon=True).start()
for i in range(300):
    dist.barrier()
    time.sleep(0.1)
"""
        },
        wanted=("3.2 samples/s is below the floor of 100", "KeyboardInterrupt"),
        helpful=(r"samples/s|throughput|floor|watchdog|bench\.py|slow",),
        misleading=(r"firewall|out of memory",),
    ),
    One(
        name="v-tr-sys-exit-string",
        way="one rank finds too few images and leaves with sys.exit(text)",
        code="exit_code",
        rank=1,
        command=RUN + "train.py",
        files={
            "images/rank0/a.jpg": "x",
            "images/rank0/b.jpg": "x",
            "images/rank1/.keep": "",
            "images/rank2/a.jpg": "x",
            "images/rank3/a.jpg": "x",
            "train.py": """import glob, os, sys
import torch.distributed as dist
rank = int(os.environ["RANK"])
files = glob.glob(f"images/rank{rank}/*.jpg")
print(f"found {len(files)} images", flush=True)
if not files:
    sys.exit(f"rank {rank}: no images below images/rank{rank}, check the --data option")
dist.init_process_group("gloo")
dist.barrier()
""",
        },
        wanted="no images below images/rank1",
        helpful=(r"images/rank1|images|--data",),
        misleading=(r"firewall|out of memory|port\b",),
    ),
]
