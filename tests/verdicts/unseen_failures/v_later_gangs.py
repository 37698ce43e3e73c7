"""Later gangs with torch: slow rank 0, late starts, stale files, batch normalization, crashes, distributed checkpoints."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)
TR = partial(Failure, convention="torchrun", processes=1)

FAILURES = [
    Gang(
        name="v-later-rank-zero-evaluates-too-long",
        way="rank 0 evaluates alone for longer than the others' timeout",
        code="collective",
        rank=0,
        processes=3,
        command="python -u finetune.py",
        files={
            "finetune.py": """import datetime, logging, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
logger = logging.getLogger("finetune")


def evaluate(model):
    logger.info("***** Running evaluation *****")
    logger.info("  Num examples = 48000")
    for i in range(480):
        time.sleep(0.5)
        if i % 4 == 0:
            logger.info("  evaluated %d examples", i * 100)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    model = DDP(torch.nn.Linear(4, 4))
    logger.info("***** Running training *****")
    for epoch in range(2):
        model(torch.randn(2, 4)).sum().backward()
        if dist.get_rank() == 0:
            evaluate(model.module)
        dist.barrier()


if __name__ == "__main__":
    main()
"""
        },
        wanted=("evaluated", "Running evaluation", "in evaluate", "time.sleep(0.5)", "evaluate(model.module)"),
        helpful=(r"finetune\.py|evaluat|timeout",),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-later-slow-checkpoint-write",
        way="rank 0 writes a checkpoint to slow storage, the others wait in a barrier and give up",
        code="collective",
        rank=0,
        command="python pretrain.py --save-every 2",
        files={
            "pretrain.py": """import argparse, datetime, time
import torch, torch.distributed as dist

class SlowFile:
    '''An object store that takes 100 kB/s.'''
    def __init__(self, path): self.f = open(path, 'wb')
    def write(self, data):
        time.sleep(len(data) / 1e5)
        return self.f.write(data)
    def flush(self): self.f.flush()

def save_checkpoint(model, step):
    print(f'rank 0: saving checkpoint-{step}', flush=True)
    torch.save(model.state_dict(), SlowFile(f'checkpoint-{step}.pt'))
    print(f'rank 0: saved checkpoint-{step}', flush=True)

ap = argparse.ArgumentParser(); ap.add_argument('--save-every', type=int); cfg = ap.parse_args()
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
rank = dist.get_rank()
model = torch.nn.Linear(1500, 1500)
for step in range(1, 9):
    loss = torch.rand(1)
    dist.all_reduce(loss)
    if step % cfg.save_every == 0:
        if rank == 0:
            save_checkpoint(model, step)
        dist.barrier()
"""
        },
        wanted=("saving checkpoint-2", "save_checkpoint", "time.sleep(len(data) / 1e5)"),
        helpful=(r"pretrain\.py|checkpoint|save|storage|timeout",),
        misleading=(r"firewall|interface|out of memory",),
    ),
    Gang(
        name="v-later-pip-install-first",
        way="one rank installs packages before it starts, the others' rendezvous times out",
        code="rendezvous",
        also_codes=("collective",),
        rank=1,
        processes=3,
        command="./setup_and_run.sh",
        files={
            "setup_and_run.sh": """#!/bin/bash
marker=/tmp/.deps_${RANK}_ok
if [ "$RANK" = 1 ]; then
  echo "Collecting flash-attn==2.5.8"
  echo "  Building wheel for flash-attn (setup.py): started"
  for i in $(seq 60); do sleep 1; echo "  Building wheel for flash-attn (setup.py): still running..."; done
fi
exec python train.py
""",
            "train.py": """import datetime
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
print("start")
""",
        },
        wanted=("still running", "Building wheel for flash-attn", "2/3 clients joined", "rank 1"),
        helpful=(r"flash-attn|setup_and_run\.sh|install|environment|timeout",),
        misleading=(r"firewall|memory",),
    ),
    Gang(
        name="v-later-init-file-apart",
        way="a file:// rendezvous with a file of its own for each rank",
        code="rendezvous",
        also_codes=("collective",),
        rank=None,
        also=(0, 1),
        processes=2,
        command="python train.py",
        files={
            "train.py": """import datetime, os
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
url = f"file://{os.getcwd()}/shared_init_{rank}"      # should be one file for all
print("init", url, flush=True)
dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=8))
print("ok", flush=True)
""",
        },
        wanted=("wait timeout", "Timed out", "shared_init", "timeout"),
        helpful=(r"shared_init|init_method|file://|train\.py|same file",),
        misleading=(r"firewall|memory",),
    ),
    Gang(
        name="v-later-unreachable-address",
        way="init_method has an address of another network",
        code="rendezvous",
        rank=None,
        also=(0, 1, 2),
        processes=3,
        command="python train.py --dist-url tcp://192.0.2.14:23456",
        files={
            "train.py": """import argparse, datetime, os
import torch.distributed as dist
p = argparse.ArgumentParser(); p.add_argument("--dist-url"); a = p.parse_args()
rank = int(os.environ["RANK"]) + 1      # rank 0 was meant to run on the login node
dist.init_process_group("gloo", init_method=a.dist_url, rank=rank, world_size=4, timeout=datetime.timedelta(seconds=5))
"""
        },
        wanted=("192.0.2.14",),
        helpful=(r"192\.0\.2\.14|dist.url|MASTER_ADDR|address|rank 0",),
        misleading=(r"memory|checkpoint",),
    ),
    Gang(
        name="v-later-import-fails-on-one",
        way="one node's environment lacks a package",
        code="environment",
        rank=3,
        command='[ "$RANK" = 3 ] && export OLD_ENV=1; python -u train.py',
        files={
            "train.py": """import os, sys
if os.environ.get("OLD_ENV"):                 # this node's environment was built last month
    sys.modules["scipy"] = None
import torch
import torch.distributed as dist
from scipy.optimize import linear_sum_assignment

dist.init_process_group("gloo")
print("matcher", linear_sum_assignment([[1, 2], [2, 1]]))
dist.barrier()
"""
        },
        wanted=("import of scipy halted", "ModuleNotFoundError", "No module named 'scipy"),
        helpful=(r"scipy|install|environment",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-later-batchnorm-of-one",
        way="the last batch of one rank has a single row",
        code="exception",
        rank=2,
        processes=3,
        command="python -u bn.py",
        files={
            "bn.py": """import torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [24, 24, 25][rank]
loader = DataLoader(TensorDataset(torch.randn(rows, 8)), batch_size=8)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()), broadcast_buffers=False)
opt = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(3):
    for i, (x,) in enumerate(loader):
        loss = net(x).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        print(f"E{epoch} B{i} R{rank} {loss.item():.4f}")
"""
        },
        wanted="Expected more than 1 value per channel when training",
        helpful=(r"bn\.py|drop_last|batch",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-later-anomaly-nan",
        way="anomaly detection stops one rank at the log of a negative number",
        code="exception",
        rank=1,
        processes=2,
        command="python likelihood.py 2>&1",
        files={
            "likelihood.py": """import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.autograd.set_detect_anomaly(True)
theta = torch.nn.Parameter(torch.tensor([0.5]))
obs = torch.tensor([0.2, 0.9]) if rank == 0 else torch.tensor([0.2, -0.9])
for step in range(6):
    nll = -torch.sqrt(theta * obs).log().sum()
    theta.grad = None
    nll.backward()
    dist.all_reduce(theta.grad)
    print("rank", rank, "step", step, "nll", nll.item(), flush=True)
"""
        },
        wanted=("returned nan values in its 0th output",),
        helpful=(r"likelihood\.py|nan|log|sqrt|negative",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-later-lfs-pointer",
        way="the weights are a pointer of git lfs",
        code="exception",
        also_codes=("data_unavailable",),
        rank=0,
        also=(1,),
        processes=2,
        command="python -u generate.py",
        files={
            "weights/model.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 438064459\n",
            "generate.py": """import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
print("loading weights/model.bin", os.path.getsize("weights/model.bin"), "bytes")
state = torch.load("weights/model.bin", map_location="cpu", weights_only=False)
print(len(state))
""",
        },
        wanted=("invalid load key, 'v'",),
        helpful=(r"lfs|model\.bin|pointer|download",),
        misleading=(r"firewall|out of memory|port\b",),
    ),
    Gang(
        name="v-later-busy-loop",
        way="one rank searches a hyperparameter for ever in pure Python, the others are in all_reduce until the limit",
        code="timeout",
        rank=2,
        processes=3,
        limit_s=75,
        command="python -u anneal.py",
        files={
            "anneal.py": """import torch, torch.distributed as dist

def bisect(f, lo, hi):
    while hi - lo > 1e-18:
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if f(mid) < 0 else (lo, mid)
    return lo

dist.init_process_group("gloo")
r = dist.get_rank()
temperature = 0.0 if r == 0 else bisect(lambda t: t - 0.7 * r, 0.0, 1.0 if r == 1 else 3.0) if r == 2 else 0.35
print(f"{r}: temperature {temperature}")
t = torch.tensor([temperature])
dist.all_reduce(t)
print(f"{r}: sum {t.item()}")
"""
        },
        wanted=("in bisect", "mid = (lo + hi) / 2", "bisect(", "while hi - lo"),
        helpful=(r"anneal\.py|bisect|loop",),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-later-bus-error",
        way="a memory-mapped file is cut while it is read",
        code="signal",
        rank=2,
        processes=3,
        command="python tokens.py",
        files={
            "tokens.py": """import os, time
import numpy as np
rank = int(os.environ["RANK"])
name = f"tokens_{rank}.bin"
np.zeros(4_000_000, dtype=np.uint16).tofile(name)
data = np.memmap(name, dtype=np.uint16, mode="r")
print("rank", rank, "mapped", len(data), "tokens", flush=True)
if rank == 2:
    os.truncate(name, 4096)            # another job prepares the same file anew
for i in range(50):
    print("rank", rank, "sum", int(data[-1000:].sum()), flush=True)
    time.sleep(0.1)
"""
        },
        wanted=("SIGBUS", "signal 7", "Bus error"),
        helpful=(r"tokens|mapped|truncat|file|memmap|shm|native|faulthandler|PYTHONFAULTHANDLER",),
        misleading=(r"firewall|interface|port\b",),
    ),
    Gang(
        name="v-later-loader-timeout",
        way="a DataLoader's worker hangs on one rank, the loader's own timeout tells it",
        code="exception",
        rank=1,
        processes=2,
        command="python -u load.py",
        files={
            "load.py": """import time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Remote(Dataset):
    def __init__(self, rank): self.rank = rank
    def __len__(self): return 64
    def __getitem__(self, i):
        if self.rank == 1 and i == 20:
            time.sleep(600)           # the NFS server does not answer
        return torch.tensor(float(i))

if __name__ == "__main__":
    dist.init_process_group("gloo")
    r = dist.get_rank()
    for step, x in enumerate(DataLoader(Remote(r), batch_size=4, num_workers=2, timeout=5)):
        s = x.sum(); dist.all_reduce(s)
        print(f"[{r}] step {step} {s.item():.0f}")
"""
        },
        wanted="DataLoader timed out after 5 seconds",
        helpful=(r"load\.py|timeout|worker|storage|NFS|__getitem__",),
        misleading=(r"firewall|interface|out of memory",),
    ),
    Gang(
        name="v-later-loader-worker-oom",
        way="the DataLoader's worker of one rank is killed in a small cgroup",
        code="host_oom",
        also_codes=("exception",),
        rank=0,
        processes=2,
        command="./small.sh",
        files={
            "small.sh": """#!/bin/bash
if [ "$RANK" = 0 ]; then
  g=/sys/fs/cgroup/memory/v_loader_oom_$$
  mkdir -p $g && echo 480M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs
fi
exec python train.py
""",
            "train.py": """import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Volumes(Dataset):
    def __init__(self, rank): self.rank, self.cache = rank, {}
    def __len__(self): return 200
    def __getitem__(self, i):
        if self.rank == 0:
            self.cache[i] = torch.ones(5_000_000)
        return torch.zeros(2)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    for n, x in enumerate(DataLoader(Volumes(dist.get_rank()), batch_size=2, num_workers=1)):
        dist.all_reduce(x)
        print("batch", n, flush=True)
""",
        },
        wanted=("is killed by signal: Killed", "SIGKILL", "out of memory", "memory"),
        helpful=(r"memory|num_workers|cache|workers",),
        misleading=(r"firewall|interface|port\b",),
    ),
    TR(
        name="v-later-dcp-missing-key",
        way="a distributed checkpoint lacks the new head of the model",
        code="exception",
        rank=0,
        also=(1,),
        num_ranks=2,
        command="torchrun --standalone --nproc-per-node 2 resume_dcp.py",
        files={
            "resume_dcp.py": """import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
body = torch.nn.Linear(4, 4)
dcp.save({"body": body.state_dict()}, checkpoint_id="ckpt/step_10")
dist.barrier()
state = {"body": body.state_dict(), "head": torch.nn.Linear(4, 2).state_dict()}
dcp.load(state, checkpoint_id="ckpt/step_10")
print("resumed")
"""
        },
        wanted=("Missing key in checkpoint state_dict: head",),
        helpful=(r"head|resume_dcp\.py|checkpoint|key|strict|allow_partial",),
        misleading=(r"firewall|memory|port\b",),
    ),
    TR(
        name="v-later-tr-batch-not-divisible",
        way="an assertion on every rank about the batch and the world size",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2),
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 train.py --batch-size 64",
        files={
            "train.py": """import argparse, os
p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int)
a = p.parse_args()
world = int(os.environ["WORLD_SIZE"])
assert a.batch_size % world == 0, f"batch size {a.batch_size} must be divisible by the number of processes ({world})"
import torch
"""
        },
        wanted="batch size 64 must be divisible by the number of processes (3)",
        helpful=(r"batch|nproc|processes|divisible",),
        misleading=(r"firewall|out of memory|port\b",),
    ),
    TR(
        name="v-later-tr-sigterm-from-outside",
        way="a clean-up script of the node sends SIGTERM to one child",
        code="signal",
        rank=1,
        num_ranks=3,
        command="torchrun --standalone --nproc-per-node 3 loop.py",
        files={
            "loop.py": """import os, signal, time
import torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
for i in range(100):
    dist.barrier()
    if r == 0: print("iteration", i, flush=True)
    if r == 1 and i == 8:
        os.kill(os.getpid(), signal.SIGTERM)      # stands for the clean-up script
    time.sleep(0.05)
"""
        },
        wanted=("SIGTERM", "Signal 15", "signal 15"),
        helpful=(r"SIGTERM|sent|outside|kill|scheduler|loop\.py",),
        misleading=(r"firewall|interface|port\b",),
    ),
    TR(
        name="v-later-tr-unicode-print",
        way="rank 0 prints an arrow while the output is ASCII",
        code="exception",
        also_codes=("environment",),
        rank=0,
        num_ranks=2,
        variables={"PYTHONIOENCODING": "ascii", "LANG": "C"},
        command="torchrun --standalone --nproc-per-node 2 report.py",
        files={
            "report.py": """import os, time
rank = int(os.environ["RANK"])
if rank == 0:
    print("accuracy 71.2 \\u2192 73.9 %")
time.sleep(5)
"""
        },
        wanted="'ascii' codec can't encode character '\\u2192'",
        helpful=(r"PYTHONIOENCODING|encoding|utf-?8|LANG|report\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
    TR(
        name="v-later-tr-empty-variable",
        way="an environment variable is set but empty",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2, 3),
        num_ranks=4,
        variables={"NUM_EPOCHS": ""},
        command="torchrun --standalone --nproc-per-node 4 entry.py",
        files={
            "entry.py": """import os

def settings():
    return {"epochs": int(os.environ.get("NUM_EPOCHS", "3")), "rank": int(os.environ["RANK"])}

print(settings())
"""
        },
        wanted="invalid literal for int() with base 10: ''",
        helpful=(r"NUM_EPOCHS|entry\.py|environment",),
        misleading=(r"firewall|memory|port\b",),
    ),
]
