"""Ranks that Muster starts, with torch and gloo: ranks that are late, leave or wait for something else."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="v-ddp-slow-decode",
        way="one rank decodes a huge file while the others wait in the first step and give up",
        code="collective",
        rank=1,
        command="python train_vit.py",
        files={
            "train_vit.py": """import datetime, os, time
import torch
import torch.distributed as dist

def decode(path):
    # the tar of this shard is 40 times as large as the others
    time.sleep(60 if "00001" in path else 0.2)
    return torch.randn(8, 3)

def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
    rank = dist.get_rank()
    shard = f"imagenet-train-{rank:05d}.tar"
    print(f"{time.strftime('%H:%M:%S')} r{rank} decoding {shard}", flush=True)
    batch = decode(shard)
    print(f"{time.strftime('%H:%M:%S')} r{rank} decoded {len(batch)} images", flush=True)
    grad = batch.mean(0)
    dist.all_reduce(grad)
    print(f"r{rank} step 0 done", flush=True)

main()
"""
        },
        wanted=("decoding imagenet-train-00001.tar", "time.sleep(60", "in decode", "did not", "not respond"),
        helpful=(r"train_vit\.py|decode", r"timeout|rank 1"),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-ddp-short-shard",
        way="one rank has fewer batches, finishes and leaves with code 0",
        code="collective",
        rank=3,
        command="python train.py",
        files={
            "train.py": """import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

def shard(rank):
    rows = 96 if rank != 3 else 41
    return TensorDataset(torch.randn(rows, 5), torch.randn(rows, 1))

def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    data = DataLoader(shard(rank), batch_size=8)
    model = DDP(torch.nn.Linear(5, 1))
    optim = torch.optim.SGD(model.parameters(), lr=1e-2)
    for i, (x, y) in enumerate(data, 1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optim.zero_grad(); loss.backward(); optim.step()
        print("[%d] %d/%d loss=%.4f" % (rank, i, len(data), loss.item()), flush=True)
    print("[%d] epoch finished after %d batches, bye" % (rank, i), flush=True)
    os._exit(0)

main()
"""
        },
        wanted=("epoch finished after 6 batches", "ended", "exited", "exit code 0", "finished"),
        helpful=(r"batch|uneven|join|drop_last|sampler|same number", r"train\.py|rank 3"),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-ddp-overwrite-question",
        way="rank 0 asks whether to overwrite the folder of an earlier run",
        code="exception",
        rank=0,
        processes=4,
        command="python run.py --name baseline",
        files={
            "outputs/baseline/args.json": "{}\n",
            "run.py": """import argparse
import os
import sys
import torch.distributed as dist


def confirm(folder):
    answer = input(f"{folder} exists already. Overwrite? [y/N] ")
    if answer.strip().lower() != "y":
        sys.exit("aborted by user")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--name", required=True)
    opts = cli.parse_args()
    dist.init_process_group("gloo")
    folder = os.path.join("outputs", opts.name)
    if dist.get_rank() == 0 and os.path.isdir(folder):
        confirm(folder)
    dist.barrier()


main()
""",
        },
        wanted="EOFError: EOF when reading a line",
        helpful=(r"input|stdin|keyboard|interactive|answer", r"run\.py"),
        misleading=(r"firewall|memory|network",),
    ),
    Gang(
        name="v-ddp-stale-lock",
        way="one rank waits for a lock file that a killed job has left",
        code="collective",
        rank=2,
        processes=3,
        command="python prepare_and_train.py",
        files={
            "cache/shard2.lock": "pid 99211 host gpu04\n",
            "prepare_and_train.py": """import os, time, datetime
import torch
import torch.distributed as dist


class FileLock:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        while True:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
                return self
            except FileExistsError:
                time.sleep(0.5)

    def __exit__(self, *_):
        os.unlink(self.path)


def tokenize(rank):
    with FileLock(f"cache/shard{rank}.lock"):
        return torch.arange(100) + rank


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank = dist.get_rank()
print(f"({rank}) tokenizing", flush=True)
tokens = tokenize(rank)
print(f"({rank}) {len(tokens)} tokens", flush=True)
total = torch.tensor(len(tokens))
dist.all_reduce(total)
print(f"({rank}) {total} tokens in all", flush=True)
""",
        },
        wanted=("tokenizing", "__enter__", "time.sleep(0.5)", "did not", "FileLock"),
        helpful=(r"lock|prepare_and_train\.py|cache",),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-ddp-monitored-barrier",
        way="monitored_barrier names the rank that unpacks its archive",
        code="collective",
        rank=2,
        command="python go.py",
        files={
            "go.py": """import datetime, os, time
import torch.distributed as dist

dist.init_process_group("gloo")
me = dist.get_rank()
print("worker", me, "unpacking /data/part-%d.zip" % me, flush=True)
if me == 2:
    for percent in range(0, 100, 2):
        time.sleep(1)
        print("worker 2 unpacked %d%%" % percent, flush=True)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=5), wait_all_ranks=True)
print("worker", me, "starts training", flush=True)
"""
        },
        wanted=(
            "Rank 2 failed to pass monitoredBarrier",
            "Ranks 2 failed to pass",
            "worker 2 unpacked",
            "rank 2",
            "time.sleep(1)",
        ),
        helpful=(r"go\.py|timeout|unpack|rank 2",),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-ddp-evaluate-on-rank-zero-only",
        way="evaluation with a collective inside runs on rank 0 alone until the time limit",
        code="timeout",
        also_codes=("collective",),
        rank=0,
        limit_s=12,
        command="python -u trainer.py",
        files={
            "trainer.py": """import torch
import torch.distributed as dist


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()

    def is_main(self):
        return self.rank == 0

    def evaluate(self):
        correct = torch.tensor([17.0])
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, correct)
        return sum(p.item() for p in parts)

    def fit(self):
        for epoch in range(3):
            dist.barrier()
            print(f"rank {self.rank}: epoch {epoch} trained")
            if self.is_main():
                print("accuracy", self.evaluate())
            dist.barrier(group=None)
            w = torch.zeros(7)
            dist.broadcast(w, 0)


Trainer().fit()
"""
        },
        wanted=("evaluate", "dist.all_gather(parts, correct)", "all_gather"),
        helpful=(r"trainer\.py|evaluate|all_gather|every rank|all ranks",),
        misleading=(r"firewall|interface|memory|increase the (time )?limit",),
    ),
    Gang(
        name="v-ddp-error-swallowed-then-zero",
        way="main() logs whatever goes wrong and the process ends with code 0",
        code="collective",
        also_codes=("exception",),
        rank=1,
        command="python app.py",
        files={
            "app.py": """import logging
import os
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(name)s | %(levelname)s | %(message)s")
log = logging.getLogger(f"app.rank{os.environ['RANK']}")


def augment(batch, rank):
    scale = {"r0": 1.0, "r2": 1.0, "r3": 2.0}
    return batch * scale[f"r{rank}"]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log.info("start")
    batch = augment(torch.ones(3), rank)
    for step in range(100):
        dist.all_reduce(batch)
    log.info("end")


try:
    main()
except Exception:
    log.exception("Unexpected error, shutting down")
    os._exit(0) if os.environ["RANK"] == "1" else os._exit(1)
"""
        },
        wanted="KeyError: 'r1'",
        helpful=(r"app\.py|augment|scale",),
        misleading=(r"firewall|interface|memory",),
    ),
    Gang(
        name="v-ddp-early-stop-alone",
        way="one rank stops early by its own validation loss and waits at the last barrier",
        code="collective",
        rank=2,
        processes=3,
        command="python fit.py",
        files={
            "fit.py": """from datetime import timedelta
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
net = DDP(torch.nn.Linear(30, 30))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
val = {0: [3, 2, 1, .9, .8, .7], 1: [3, 2, 1.5, 1, .9, .8], 2: [3, 2, 2.4, 2.6, 2.9, 3.0]}[rank]
best, bad = 1e9, 0
for epoch, v in enumerate(val):
    opt.zero_grad()
    net(torch.randn(4, 30)).sum().backward()
    opt.step()
    best, bad = (v, 0) if v < best else (best, bad + 1)
    print(f"<{rank}> epoch {epoch} val {v}", flush=True)
    if bad >= 2:
        print(f"<{rank}> early stopping at epoch {epoch}", flush=True)
        break
if rank == 0:
    torch.save(net.module.state_dict(), "best.pt")
dist.monitored_barrier()
dist.destroy_process_group()
"""
        },
        wanted=("early stopping at epoch 3", "monitored_barrier"),
        helpful=(r"fit\.py|early|stop|all ranks|every rank",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-ddp-simply-not-done",
        way="a training that works is longer than its time limit",
        code="timeout",
        rank=None,
        processes=2,
        limit_s=9,
        command="python long.py",
        files={
            "long.py": """import time
import torch
import torch.distributed as dist
from tqdm import tqdm

dist.init_process_group("gloo")
weights = torch.zeros(10)
bar = tqdm(range(100000), disable=dist.get_rank() != 0, desc="train")
for step in bar:
    dist.all_reduce(weights)
    time.sleep(0.05)
    bar.set_postfix(loss=1 / (step + 1))
"""
        },
        wanted=("time limit", "limit of"),
        helpful=(r"limit|timeout|checkpoint|longer",),
        misleading=(r"firewall|interface|deadlock",),
    ),
    Gang(
        name="v-ddp-stuck-download",
        way="one rank waits for ever for an answer of a storage server",
        code="timeout",
        also_codes=("collective",),
        rank=1,
        limit_s=12,
        processes=3,
        command="python train.py",
        files={
            "train.py": """import os, socket, threading, time, urllib.request
import torch
import torch.distributed as dist

server = socket.create_server(("127.0.0.1", 0))       # accepts and never answers

def fetch(rank):
    if rank != 1:
        time.sleep(0.1)
        return b"x" * 10
    url = f"http://127.0.0.1:{server.getsockname()[1]}/bucket/weights/shard-1.bin"
    print("downloading", url, flush=True)
    return urllib.request.urlopen(url).read()

dist.init_process_group("gloo")
rank = dist.get_rank()
blob = fetch(rank)
print("rank", rank, "has", len(blob), "bytes", flush=True)
dist.barrier()
print("all ranks have their weights", flush=True)
"""
        },
        wanted=("downloading", "fetch(", "urlopen", "in fetch"),
        helpful=(r"train\.py|urlopen|download|timeout=|server|storage",),
        misleading=(r"firewall between|interface|memory",),
    ),
]
