"""Ranks that Muster starts, with torch and gloo: data, losses, checkpoints."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)

FAILURES = [
    Gang(
        name="v-ddp-unused-head",
        way="an auxiliary head takes no part in the loss, and DDP was not told to look for it",
        code="exception",
        rank=0,
        also=(1, 2),
        processes=3,
        command="python train.py --epochs 2",
        files={
            "train.py": """import argparse, logging, os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(format="%(asctime)s %(levelname)-8s %(message)s", level=logging.INFO)
log = logging.getLogger("train")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 8)
        self.main = nn.Linear(8, 4)
        self.aux = nn.Linear(8, 2)

    def forward(self, x, with_aux=False):
        h = torch.relu(self.body(x))
        return (self.main(h), self.aux(h)) if with_aux else self.main(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(args.epochs):
        for step in range(5):
            loss = model(torch.randn(4, 12)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
        },
        wanted="Expected to have finished reduction in the prior iteration before starting a new one",
        helpful=(r"find_unused_parameters", r"unused|not used|train\.py"),
        misleading=(r"firewall|network|memory|MASTER_PORT",),
    ),
    Gang(
        name="v-ddp-nan-loss-one-shard",
        way="one shard has a division by zero in its features, and the script asserts finite losses",
        code="exception",
        rank=2,
        command="python -u main.py",
        files={
            "main.py": """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ['RANK'])
dist.init_process_group('gloo')
torch.manual_seed(rank)
features = torch.rand(64, 6)
if rank == 2:
    features[40, 3] = float('inf')
features = (features - features.mean(0)) / features.std(0)
net = DDP(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for it, x in enumerate(features.split(8)):
    loss = net(x).pow(2).mean()
    assert torch.isfinite(loss), f'loss is {loss.item()} at iteration {it} on rank {rank}'
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        print(f'it {it:3d}  loss {loss.item():.5f}')
print('finished')
"""
        },
        wanted="on rank 2",
        helpful=(r"main\.py", r"nan|inf|loss|data"),
        misleading=(r"firewall|network|memory|port\b",),
    ),
    Gang(
        name="v-ddp-vocab-differs",
        way="each rank builds its vocabulary from its own shard",
        code="exception",
        also_codes=("collective",),
        rank=1,
        also=(0,),
        processes=2,
        command="python -u lm/train.py",
        files={
            "lm/train.py": """import os
import torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

SHARDS = {0: "the cat sat on the mat", 1: "a dog ate my homework and then slept all day long"}


def build_vocab(text):
    return {w: i for i, w in enumerate(sorted(set(text.split())))}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    vocab = build_vocab(SHARDS[rank])
    print(f"INFO | rank={rank} | vocab size {len(vocab)}")
    model = DDP(nn.Sequential(nn.Embedding(len(vocab), 16), nn.Linear(16, len(vocab))))
    print(f"INFO | rank={rank} | model is ready")
"""
        },
        wanted=("appears not to match", "vocab size"),
        helpful=(r"vocab|same (model|sizes|shape)|shape|size", r"train\.py"),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-ddp-checkpoint-other-width",
        way="the checkpoint belongs to a narrower model",
        code="exception",
        rank=0,
        also=(1, 2, 3),
        command="python finetune.py --init pretrained.pt --hidden 48",
        files={
            "finetune.py": """import argparse, os, torch, torch.distributed as dist

def network(hidden):
    return torch.nn.Sequential(torch.nn.Linear(10, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, 3))

ap = argparse.ArgumentParser()
ap.add_argument("--init")
ap.add_argument("--hidden", type=int, default=32)
a = ap.parse_args()
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    torch.save({"model": network(32).state_dict(), "step": 9000}, a.init)   # what the previous job had left
dist.barrier()
state = torch.load(a.init, map_location="cpu")
print("loaded", a.init, "of step", state["step"], flush=True)
net = network(a.hidden)
net.load_state_dict(state["model"])
dist.barrier()
"""
        },
        wanted="size mismatch for 0.weight",
        helpful=(r"--hidden|hidden", r"checkpoint|pretrained\.pt|finetune\.py"),
        misleading=(r"firewall|memory|port\b|network",),
    ),
    Gang(
        name="v-ddp-truncated-optimizer-shard",
        way="one rank's optimizer file was cut off when the previous job was killed",
        code="exception",
        also_codes=("data_unavailable",),
        rank=3,
        command="python resume.py",
        files={
            "resume.py": """import os, pathlib
import torch
import torch.distributed as dist

RUN = pathlib.Path("runs/exp17/step_4000")

def prepare(rank):
    RUN.mkdir(parents=True, exist_ok=True)
    file = RUN / f"optim_rank{rank}.pt"
    torch.save({"exp_avg": torch.zeros(2000), "step": 4000}, file)
    if rank == 3:
        with open(file, "r+b") as f:
            f.truncate(3000)

dist.init_process_group("gloo")
rank = dist.get_rank()
prepare(rank)
dist.barrier()
print(f"=> resuming from {RUN} (rank {rank})", flush=True)
optim = torch.load(RUN / f"optim_rank{rank}.pt")
print(f"=> rank {rank} resumed at step {optim['step']}", flush=True)
t = torch.ones(4)
dist.all_reduce(t)
"""
        },
        wanted=("PytorchStreamReader failed", "failed finding central directory"),
        helpful=(r"optim_rank3|checkpoint|file|truncated|corrupt", r"resume\.py"),
        misleading=(r"firewall|out of memory|network",),
    ),
    Gang(
        name="v-ddp-loader-worker-segfault",
        way="a DataLoader worker of one rank crashes in a native decoder",
        code="exception",
        also_codes=("signal",),
        rank=2,
        processes=3,
        command="python train.py",
        files={
            "train.py": """import ctypes, os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 40

    def __getitem__(self, i):
        if self.rank == 2 and i == 21:
            ctypes.string_at(8)              # the broken clip makes the decoder read nonsense
        return torch.full((4,), float(i))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for n, batch in enumerate(DataLoader(Clips(rank), batch_size=4, num_workers=2)):
        s = batch.sum()
        dist.all_reduce(s)
        if rank == 0:
            print("batch", n, "sum", s.item(), flush=True)
"""
        },
        wanted=("killed by signal: Segmentation fault", "exited unexpectedly"),
        helpful=(r"num_workers|worker|decoder|native|train\.py",),
        misleading=(r"firewall|MASTER_PORT|interface",),
    ),
    Gang(
        name="v-ddp-token-out-of-range",
        way="one shard was tokenized with a larger vocabulary",
        code="exception",
        rank=3,
        command="python -u train_gpt.py",
        files={
            "train_gpt.py": """import torch, os
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

V = 128
dist.init_process_group("gloo")
r, w = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1337 + r)
model = DDP(torch.nn.Sequential(torch.nn.Embedding(V, 8), torch.nn.Linear(8, V)))
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
data = torch.randint(0, V, (6, 33))
if r == 3:
    data[4, 7] = 5021
for step, row in enumerate(data):
    logits = model(row[:-1])
    loss = F.cross_entropy(logits, row[1:])
    loss.backward()
    opt.step(); opt.zero_grad(set_to_none=True)
    if r == 0: print(f"step {step} | loss {loss.item():.4f}")
"""
        },
        wanted=("index out of range in self", "Target 5021 is out of bounds"),
        helpful=(r"train_gpt\.py|token|vocab|embedding|index",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-ddp-broken-json-line",
        way="a line of one shard was cut off",
        code="exception",
        rank=1,
        command="python sft.py data/",
        files={
            **{
                f"data/part-{n}.jsonl": "".join(f'{{"prompt": "q{i}", "answer": "a{i}"}}\n' for i in range(30))
                for n in (0, 2, 3)
            },
            "data/part-1.jsonl": "".join(f'{{"prompt": "q{i}", "answer": "a{i}"}}\n' for i in range(17))
            + '{"prompt": "q17", "answ\n',
            "sft.py": """import json
import sys
import torch
import torch.distributed as dist

def read(folder, rank):
    with open(f"{folder}/part-{rank}.jsonl", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)

dist.init_process_group("gloo")
rank = dist.get_rank()
count = torch.zeros(1)
for number, row in enumerate(read(sys.argv[1].rstrip("/"), rank)):
    count += len(row["answer"])
    if number % 10 == 9:
        dist.all_reduce(count)
        print(f"{rank}: {number + 1} rows", flush=True)
dist.all_reduce(count)
print("rows read", count.item())
""",
        },
        wanted="JSONDecodeError: Invalid control character",
        helpful=(r"part-1|sft\.py|json|line",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-ddp-collate-sizes",
        way="one rank's batch has images of different sizes",
        code="exception",
        rank=0,
        processes=3,
        command="python classify.py",
        files={
            "classify.py": """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Pictures(Dataset):
    def __len__(self): return 36
    def __getitem__(self, i):
        side = 24 if i == 27 else 32
        return torch.rand(3, side, side), i % 10

dist.init_process_group("gloo")
data = Pictures()
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for step, (x, y) in enumerate(loader):
    m = x.mean()
    dist.all_reduce(m)
    print(f"rank{dist.get_rank()} step{step} mean {m / 3:.3f}", flush=True)
"""
        },
        wanted="stack expects each tensor to be equal size",
        helpful=(r"classify\.py|resize|size|collate",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-ddp-broadcast-lambda",
        way="rank 0 broadcasts a config that holds a lambda",
        code="exception",
        rank=0,
        command="python search.py",
        files={
            "search.py": """import torch.distributed as dist

def sample_config():
    return {"lr": 3e-4, "schedule": lambda step: min(1.0, step / 100)}

def main():
    dist.init_process_group("gloo")
    box = [sample_config() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    print("trial config", box[0])

if __name__ == "__main__":
    main()
"""
        },
        wanted=("Can't pickle", "PicklingError", "Can't get local object", "pickle"),
        helpful=(r"search\.py|lambda|pickle",),
        misleading=(r"firewall|memory|port\b",),
    ),
]
