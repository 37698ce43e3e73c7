"""Last gangs: progress bars, coloured logs, questions to nobody, helpers that hang, small shared memory."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=3)

FAILURES = [
    Gang(
        name="u-progress-bars-everywhere",
        way="every rank draws a progress bar, one raises between two of its states",
        code="exception",
        rank=2,
        command="python fit.py",
        files={
            "fit.py": """import time
import torch
import torch.distributed as dist
from tqdm.auto import tqdm


class WarmupCosine:
    def __init__(self, total, warmup):
        self.total, self.warmup = total, warmup

    def factor(self, step):
        if step < self.warmup:
            return step / self.warmup
        if step > self.total:
            raise ValueError(f"step {step} is past the end of the schedule ({self.total})")
        return 1 - (step - self.warmup) / (self.total - self.warmup)


dist.init_process_group("gloo")
rank = dist.get_rank()
schedule = WarmupCosine(total=90 if rank != 2 else 60, warmup=10)
loss = torch.ones(1)
with tqdm(total=90, desc=f"rank {rank}", position=rank, mininterval=0) as bar:
    for step in range(90):
        lr = schedule.factor(step)
        dist.all_reduce(loss)
        loss.fill_(lr)
        bar.set_postfix(lr=f"{lr:.3f}")
        bar.update()
        time.sleep(0.01)
"""
        },
        wanted="step 61 is past the end of the schedule (60)",
        helpful=(r"fit\.py", r"schedule|total|step"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-coloured-critical-line",
        way="coloured logs; one rank logs a critical line and leaves with 1",
        code="exit_code",
        also_codes=("exception",),
        rank=1,
        command="python -u run.py",
        files={
            "log.py": """import datetime, sys
COLOURS = {"INFO": 37, "SUCCESS": 32, "WARNING": 33, "ERROR": 31, "CRITICAL": 41}


def log(level, message, where):
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    c = COLOURS[level]
    sys.stderr.write(f"\\033[32m{now}\\033[0m | \\033[1;{c}m{level: <8}\\033[0m | \\033[36m{where}\\033[0m - "
                     f"\\033[1;{c}m{message}\\033[0m\\n")
""",
            "run.py": """import functools, sys
import torch
import torch.distributed as dist
from log import log

dist.init_process_group("gloo")
rank = dist.get_rank()
info = functools.partial(log, "INFO", where="__main__:train:14")
index = {"train": 1281167, "val": 50000} if rank != 1 else {"train": 1281167}
info(f"rank {rank} sees splits {sorted(index)}")
if "val" not in index:
    advice = "rebuild it with tools/make_index.py"
    log("CRITICAL", f"index of rank {rank} has no split 'val', {advice}", "__main__:check:18")
    sys.exit(1)
t = torch.zeros(1)
dist.all_reduce(t)
log("SUCCESS", "finished", "__main__:<module>:21")
""",
        },
        wanted="index of rank 1 has no split 'val'",
        helpful=(r"make_index|index|split|val\b",),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-question-to-nobody",
        way="rank 0 asks whether it may overwrite, nobody can answer",
        code="exception",
        rank=0,
        processes=2,
        command="mkdir -p runs/exp1; exec python -u train.py --out runs/exp1",
        files={
            "train.py": """import argparse
import os
import shutil

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
args = parser.parse_args()

dist.init_process_group("gloo")
if dist.get_rank() == 0 and os.path.isdir(args.out) and not args.yes:
    answer = input(f"{args.out} exists already, overwrite? [y/N] ")
    if answer.lower() != "y":
        raise SystemExit("not overwritten")
    shutil.rmtree(args.out)
dist.barrier()
"""
        },
        wanted="EOF when reading a line",
        helpful=(r"--yes|-y\b|input|overwrite|stdin", r"train\.py"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-helper-program-hangs",
        way="one rank waits for a copying program that never ends",
        code="timeout",
        rank=2,
        limit_s=35,
        command="python stage_and_train.py",
        files={
            "bin/objcp": '#!/bin/sh\necho "objcp: connecting to $1"\nexec sleep 3600\n',
            "stage_and_train.py": """import os, subprocess
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])


def fetch(shard):
    target = f"/data/shard-{shard}"
    if shard != 2:
        return target
    subprocess.run(["sh", "bin/objcp", f"store://corpus/shard-{shard}", target], check=True)
    return target


path = fetch(rank)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("training on", path)
""",
        },
        wanted=("objcp: connecting to", "subprocess.run", "fetch", "did not"),
        helpful=(r"objcp|copy|store|fetch", r"stage_and_train\.py"),
        misleading=(r"firewall blocks MASTER|out of memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-small-dev-shm-on-one-rank",
        way="one rank's container has a tiny /dev/shm, its loader workers die",
        code="shm_too_small",
        rank=1,
        processes=2,
        command="bash container.sh",
        files={
            "container.sh": """#!/bin/bash
if [ "$RANK" = 1 ]; then
  exec unshare -m bash -c 'mount -t tmpfs -o size=1m shm /dev/shm && exec python train_video.py'
fi
exec python train_video.py
""",
            "train_video.py": """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, n):
        return torch.full((3, 16, 112, 112), float(n))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    seen = torch.zeros(1)
    for clip in DataLoader(Clips(), batch_size=4, num_workers=2):
        seen += clip.shape[0]
        dist.all_reduce(seen)
    print("seen", seen.item())
""",
        },
        wanted=("unable to allocate shared memory(shm)", "No space left on device"),
        helpful=(r"shm|shared memory", r"num_workers|workers"),
        misleading=(r"firewall|MASTER_ADDR|disk is full",),
    ),
    Gang(
        name="u-accumulated-imbalance",
        way="gradient accumulation differs: one rank gathers while the other still reduces",
        code="timeout",
        also_codes=("collective",),
        rank=0,
        also=(1,),
        processes=2,
        limit_s=40,
        command="ACCUM=$([ $RANK = 0 ] && echo 4 || echo 2) python accum.py",
        files={
            "accum.py": """import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
every = int(os.environ["ACCUM"])
print(f"rank {rank} reduces every {every} micro batches", flush=True)
pending = 0
for micro in range(1, 17):
    grad = torch.ones(64)
    if micro % every == 0:
        dist.all_reduce(grad)
        pending += 1
counts = [torch.zeros(1, dtype=torch.long) for _ in range(2)]
dist.all_gather(counts, torch.tensor([pending]))
got = [c.item() for c in counts]
if len(set(got)) > 1:
    raise RuntimeError(f"ranks reduced a different number of times: {got}")
""",
        },
        wanted=("reduces every", "dist.all_gather(counts", "dist.all_reduce(grad)"),
        helpful=(r"ACCUM", r"accum\.py"),
        misleading=(r"firewall|out of memory|MASTER_ADDR",),
    ),
]
