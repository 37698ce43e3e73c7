"""Gangs of torch DDP whose ranks raise: data, models, guards, loader workers."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="u-label-out-of-range",
        way="a shard has a label that the head does not have",
        code="exception",
        rank=2,
        command="python -u train_cls.py --classes 10 --epochs 2",
        files={
            "train_cls.py": """import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(rank):
    g = torch.Generator().manual_seed(1234 + rank)
    x = torch.randn(256, 32, generator=g)
    y = torch.randint(0, 10, (256,), generator=g)
    if rank == 2:
        y[150] = 10  # 'unknown' written by the annotation tool
    return x, y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--classes", type=int, default=10)
    ap.add_argument("--epochs", type=int, default=1)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, args.classes)))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    x, y = shard(rank)
    for epoch in range(args.epochs):
        for i in range(0, len(x), 32):
            loss = nn.functional.cross_entropy(net(x[i : i + 32]), y[i : i + 32])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 0:
                print(f"epoch {epoch} it {i // 32} loss {loss.item():.4f}")
    dist.destroy_process_group()


main()
"""
        },
        wanted="Target 10 is out of bounds",
        helpful=(r"train_cls\.py", r"label|target|class"),
        misleading=(r"network|firewall|MASTER_ADDR|memory|--timeout",),
    ),
    Gang(
        name="u-loss-not-finite",
        way="a guard against NaN raises on one rank",
        code="exception",
        rank=1,
        processes=3,
        command="python train.py",
        files={
            "train.py": """import logging, math, os, sys
import torch, torch.distributed as dist

FORMAT = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=FORMAT)
log = logging.getLogger("trainer")


class LossGuard:
    def __init__(self, patience=3):
        self.bad, self.patience = 0, patience

    def check(self, step, value):
        if math.isfinite(value):
            self.bad = 0
            return
        self.bad += 1
        log.warning("non-finite loss at step %d (%d/%d)", step, self.bad, self.patience)
        if self.bad >= self.patience:
            why = f"loss was not finite for {self.patience} steps in a row"
            raise FloatingPointError(f"{why} (last step {step}, lr=0.3)")


dist.init_process_group("gloo")
rank = dist.get_rank()
guard = LossGuard()
w = torch.zeros(16)
for step in range(40):
    x = torch.randn(16)
    if rank == 1 and step > 8:
        x = x / 0.0
    loss = float((x * x).mean() - (x * x).mean()) + 0.7 if step < 9 or rank != 1 else float("nan")
    guard.check(step, loss)
    dist.all_reduce(w)
    if rank == 0 and step % 5 == 0:
        log.info("step %d loss %.3f", step, loss)
"""
        },
        wanted="loss was not finite for 3 steps in a row",
        helpful=(r"train\.py", r"learning rate|\blr\b|nan|finite|data"),
        misleading=(r"network|firewall|port|rendezvous",),
    ),
    Gang(
        name="u-missing-own-shard",
        way="the file of one rank was never written",
        code="exception",
        also_codes=("bad_input",),
        rank=3,
        command="python -u run_train.py",
        files={
            "make_shards.py": """import numpy as np, os, sys
os.makedirs("shards", exist_ok=True)
for i in range(3):
    np.save(f"shards/part-{i:05d}.npy", np.zeros((8, 8), dtype="float32"))
""",
            "run_train.py": """import os, time, runpy
import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group(backend="gloo")
r = dist.get_rank()
if r == 0:
    runpy.run_path("make_shards.py")
dist.barrier()
arr = np.load(f"shards/part-{r:05d}.npy")
print("rank", r, "got", arr.shape)
t = torch.from_numpy(arr).sum()
for step in range(20):
    dist.all_reduce(t)
    print("rank", r, "step", step, "mean", float(t) / dist.get_world_size())
    time.sleep(0.05)
""",
        },
        wanted="No such file or directory: 'shards/part-00003.npy'",
        helpful=(r"part-00003|shards|file", r"run_train\.py", r"path"),
        misleading=(r"network|firewall|memory|port\b",),
    ),
    Gang(
        name="u-truncated-checkpoint",
        way="rank 0 alone reads a torn checkpoint and broadcasts it",
        code="exception",
        rank=0,
        command="python resume.py --resume ckpt/last.pt",
        files={
            "resume.py": """import sys, os, torch, torch.distributed as dist
from torch import nn

def load_and_broadcast(model, path):
    if dist.get_rank() == 0:
        print(f"=> resuming from {path} ({os.path.getsize(path)} bytes)", flush=True)
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
    for p in model.parameters():
        dist.broadcast(p.data, src=0)

model = nn.Linear(256, 256)
dist.init_process_group("gloo")
path = sys.argv[sys.argv.index("--resume") + 1]
if dist.get_rank() == 0:
    os.makedirs("ckpt")
    torch.save({"model": model.state_dict(), "step": 12000}, path)
    with open(path, "r+b") as f:
        f.truncate(100_000)     # quota hit while saving last night
load_and_broadcast(model, path)
print("resumed")
""",
        },
        wanted=("PytorchStreamReader failed", "failed finding central directory"),
        helpful=(r"last\.pt|checkpoint|ckpt", r"resume\.py"),
        misleading=(r"network|firewall|port\b|weights_only",),
    ),
    Gang(
        name="u-head-size-changed",
        way="every rank loads a checkpoint of another head",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2),
        processes=3,
        command="python finetune.py",
        files={
            "finetune.py": """import os
import torch
import torch.distributed as dist
from torch import nn


def build(num_classes):
    return nn.ModuleDict({"backbone": nn.Linear(64, 128), "head": nn.Linear(128, num_classes)})


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    torch.save(build(1000).state_dict(), "pretrained.pth")
dist.barrier()
model = build(37)
missing = model.load_state_dict(torch.load("pretrained.pth"))
print("loaded", missing)
model = nn.parallel.DistributedDataParallel(model)
"""
        },
        wanted=("size mismatch for head.weight", "Error(s) in loading state_dict"),
        helpful=(r"finetune\.py", r"pretrained\.pth|checkpoint|head|strict|class"),
        misleading=(r"network|firewall|memory|port\b",),
    ),
    Gang(
        name="u-unused-parameters",
        way="a branch of the model is not used: every rank raises",
        code="exception",
        rank=0,
        also=(1,),
        processes=2,
        command="python main.py",
        files={
            "main.py": """import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.cls = nn.Linear(8, 2)
        self.box = nn.Linear(8, 4)

    def forward(self, x, with_boxes):
        h = self.body(x)
        return self.cls(h).sum() + (self.box(h).sum() if with_boxes else 0)

dist.init_process_group('gloo')
model = DistributedDataParallel(TwoHeads())
optim = torch.optim.AdamW(model.parameters())
for it in range(10):
    optim.zero_grad()
    loss = model(torch.randn(4, 8), with_boxes=(it != 3))
    loss.backward()
    optim.step()
    print('it', it, 'ok', flush=True)
"""
        },
        wanted="Expected to have finished reduction in the prior iteration",
        helpful=(r"find_unused_parameters", r"main\.py", r"unused|parameter"),
        misleading=(r"network|firewall|memory",),
    ),
    Gang(
        name="u-model-differs-by-node-file",
        way="one rank's configuration has another layer count",
        code="exception",
        also_codes=("bad_input", "collective"),
        rank=2,
        command="python train_lm.py",
        files={
            "configs/default.yaml": "d_model: 16\nn_layers: 2\n",
            "configs/rank2.yaml": "d_model: 16\nn_layers: 3\n",
            "train_lm.py": """import os, yaml, torch, torch.distributed as dist
from torch import nn
rank = int(os.environ["RANK"])
override = f"configs/rank{rank}.yaml"
path = override if os.path.exists(override) else "configs/default.yaml"
cfg = yaml.safe_load(open(path))
print(f"[rank {rank}] using {path}: {cfg}", flush=True)
dist.init_process_group("gloo")
model = nn.Sequential(*[nn.Linear(cfg["d_model"], cfg["d_model"]) for _ in range(cfg["n_layers"])])
model = nn.parallel.DistributedDataParallel(model)
print("wrapped")
model(torch.ones(1, 16)).sum().backward()
dist.destroy_process_group()
""",
        },
        wanted=("DDP expects same model across all ranks", "inconsistent"),
        helpful=(r"rank2\.yaml|config|n_layers", r"model|parameter"),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="u-worker-bad-csv-cell",
        way="a loader worker of one rank meets text in a number",
        code="exception",
        rank=3,
        command="python -u fit_tabular.py",
        files={
            "fit_tabular.py": """import os, csv, io
import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DataLoader


class Rows(Dataset):
    def __init__(self, rank):
        lines = [f"{i},{i * 0.5},{i % 2}" for i in range(200)]
        if rank == 3:
            lines[97] = "97,N/A,1"
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        a, b, y = next(csv.reader([self.lines[i]]))
        return torch.tensor([float(a), float(b)]), int(y)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for n, (x, y) in enumerate(DataLoader(Rows(rank), batch_size=16, num_workers=2)):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if n % 4 == 0:
            print(f"rank {rank}: batch {n}")
""",
        },
        wanted="could not convert string to float: 'N/A'",
        helpful=(r"fit_tabular\.py", r"N/A|csv|data|float"),
        misleading=(r"network|firewall|shared memory|shm|num_workers",),
    ),
    Gang(
        name="u-flood-after-exception",
        way="after one rank's exception a telemetry thread writes on",
        code="exception",
        rank=1,
        processes=3,
        command="python -u train.py",
        files={
            "telemetry.py": """import threading, time, itertools, sys

def start(rank):
    def run():
        for n in itertools.count():
            sys.stdout.write(f"telemetry rank={rank} seq={n} cpu=0.{n % 100:02d} queue={n % 7} dropped=0\\n")
            if n % 200 == 0:
                time.sleep(0.02)
            if n > 9000:
                return
    t = threading.Thread(target=run, name="telemetry")
    t.start()
    return t
""",
            "train.py": """import torch, torch.distributed as dist, telemetry, time

dist.init_process_group("gloo")
rank = dist.get_rank()
telemetry.start(rank)
vocab = {w: i for i, w in enumerate("the a of to and in".split())}
corpus = [["the", "a", "of"], ["to", "and", "in"]] * 10
if rank == 1:
    corpus[6] = ["the", "\\ufeffa", "of"]
for step, sentence in enumerate(corpus):
    ids = torch.tensor([vocab[w] for w in sentence])
    dist.all_reduce(ids)
    time.sleep(0.05)
""",
        },
        wanted=("KeyError: '\\ufeffa'", "KeyError: '\ufeffa'"),
        helpful=(r"train\.py", r"vocab|BOM|encoding|utf-8-sig|ufeff"),
        misleading=(r"network|firewall|memory",),
    ),
    Gang(
        name="u-logged-traceback-then-skip",
        way="a handled traceback on rank 0, a real one on rank 2",
        code="exception",
        rank=2,
        command="python train_audio.py",
        files={
            "train_audio.py": """import logging, os, time
import torch, torch.distributed as dist
logging.basicConfig(level="INFO", format="%(levelname).1s %(asctime)s %(filename)s:%(lineno)d] %(message)s")


def decode(clip):
    if clip["codec"] not in ("wav", "flac"):
        raise NotImplementedError("codec %r" % clip["codec"])
    return torch.full((clip["frames"],), 0.1)


def collate(clips):
    return torch.stack(clips)


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(12):
    clips = [{"codec": "wav", "frames": 160} for _ in range(4)]
    if rank == 0 and step == 2:
        clips[1]["codec"] = "opus"
    if rank == 2 and step == 7:
        clips[3]["frames"] = 158
    out = []
    for c in clips:
        try:
            out.append(decode(c))
        except NotImplementedError:
            logging.exception("skipping clip, could not decode")
    batch = collate(out)
    s = batch.sum()
    dist.all_reduce(s)
    if rank == 0:
        logging.info("step %d sum %.2f", step, s)
"""
        },
        wanted="stack expects each tensor to be equal size",
        helpful=(r"train_audio\.py", r"pad|collate|size|length"),
        misleading=(r"network|firewall|opus|codec",),
    ),
    Gang(
        name="u-assert-in-sampler",
        way="an assertion about divisibility on every rank",
        code="exception",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2),
        processes=3,
        command="python pretrain.py --global-batch-size 64 --micro-batch-size 8",
        files={
            "pretrain.py": """import argparse, os
import torch.distributed as dist


def check_batch(args, world):
    per_step = args.micro_batch_size * world
    assert args.global_batch_size % per_step == 0, (
        f"global batch size ({args.global_batch_size}) is not divisible by micro batch size ({args.micro_batch_size})"
        f" times data parallel size ({world})"
    )
    return args.global_batch_size // per_step


p = argparse.ArgumentParser()
p.add_argument("--global-batch-size", type=int)
p.add_argument("--micro-batch-size", type=int)
args = p.parse_args()
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print("using world size:", dist.get_world_size(), flush=True)
acc = check_batch(args, dist.get_world_size())
"""
        },
        wanted="global batch size (64) is not divisible by micro batch size (8)",
        helpful=(r"batch", r"pretrain\.py", r"ranks|world"),
        misleading=(r"network|firewall|memory",),
    ),
    Gang(
        name="u-gather-shapes",
        way="the last batch of one rank is shorter and is gathered",
        code="exception",
        also_codes=("collective",),
        rank=1,
        processes=2,
        command="python evaluate.py",
        limit_s=40,
        files={
            "evaluate.py": """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
n = 64 if rank == 0 else 60
preds = torch.rand(n, 5)
for start in range(0, n, 16):
    mine = preds[start:start + 16].contiguous()
    everyone = [torch.empty(16, 5) for _ in range(world)]
    dist.all_gather(everyone, mine)
    print(f"[{rank}] gathered batch {start // 16}", flush=True)
print("accuracy", torch.cat(everyone).mean())
"""
        },
        wanted="invalid tensor size at index 0",
        helpful=(r"evaluate\.py", r"pad|drop_last|shape|size|same"),
        misleading=(r"firewall|memory|port\b",),
    ),
]
