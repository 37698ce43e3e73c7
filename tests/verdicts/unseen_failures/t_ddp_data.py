"""DDP over gloo, one process a rank: data, models and checkpoints that fail on one rank."""

from functools import partial

from recorder import Failure

RUNTIME = r"""import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("train")


def start(seconds=20):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    torch.manual_seed(17)


def wrapped(model=None):
    return nn.parallel.DistributedDataParallel(model or nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
"""

ddp = partial(Failure, convention="process", command="python train.py")


def files(train: str, **more: str) -> dict[str, str]:
    return {"runtime.py": RUNTIME, "train.py": train, **{k.replace("__", "."): v for k, v in more.items()}}


FAILURES = [
    ddp(
        name="t-ddp-label-outside-classes",
        code="exception",
        way="one shard holds a class that the model does not have",
        processes=4,
        files=files(r"""from runtime import *

start()
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in range(6):
    x = torch.randn(8, 16)
    y = torch.randint(0, 2, (8,))
    if rank == 2 and batch == 3:
        y[5] = 2  # the background class, exported by mistake
    log.info("batch %d loss %.3f", batch, step(model, optimizer, x, y))
"""),
        wanted="IndexError: Target 2 is out of bounds",
        helpful=(r"train\.py", r"class|label|target"),
        misleading=(r"network|memory|retry|\bport\b",),
        rank=2,
    ),
    ddp(
        name="t-ddp-broken-json-line",
        code="exception",
        way="a line of one rank's shard is cut",
        processes=3,
        files=files(
            r"""import json
from runtime import *

start()
model = wrapped()
optimizer = torch.optim.AdamW(model.parameters())
with open("make.py") as f:
    exec(f.read())
with open(f"shard-{rank:05d}.jsonl") as lines:
    for number, line in enumerate(lines):
        record = json.loads(line)
        x = torch.tensor([record["x"]])
        loss = step(model, optimizer, x, torch.tensor([record["y"]]))
        if number % 5 == 0:
            log.info("record=%d loss=%.4f", number, loss)
""",
            make__py=r"""import json, random
with open(f"shard-{rank:05d}.jsonl", "w") as out:
    for i in range(30):
        line = json.dumps({"x": [random.random() for _ in range(16)], "y": i % 2})
        out.write(line[:140] + "\n" if rank == 1 and i == 12 else line + "\n")
""",
        ),
        wanted=("json.decoder.JSONDecodeError: Expecting", "JSONDecodeError"),
        helpful=(r"train\.py", r"shard|json"),
        misleading=(r"network|memory|firewall",),
        rank=1,
    ),
    ddp(
        name="t-ddp-own-nan-check",
        code="exception",
        way="a check of the loss raises on one rank",
        processes=5,
        files=files(r"""import math
from runtime import *


def guarded(loss, where):
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss became {loss} in {where}; lower the learning rate or look at the batch")
    return loss


start()
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in range(8):
    x = torch.randn(4, 16)
    if rank == 4 and batch == 5:
        x[0, 3] = float("inf")
    if rank == 4 and batch >= 5:
        loss = nn.functional.cross_entropy(model.module(x), torch.zeros(4, dtype=torch.long)).item()
        guarded(loss, f"batch {batch}")
    step(model, optimizer, x, torch.zeros(4, dtype=torch.long))
log.info("done")
"""),
        wanted="FloatingPointError: loss became nan in batch 5",
        helpful=(r"train\.py", r"learning rate|\blr\b|batch|guarded"),
        misleading=(r"network|memory|\bport\b",),
        rank=4,
    ),
    ddp(
        name="t-ddp-truncated-checkpoint-on-one-node",
        code="exception",
        way="the copy of a checkpoint on the second node is cut",
        processes=4,
        nodes=2,
        files=files(r"""from pathlib import Path
from runtime import *

local = Path(f"node{os.environ['NODE_RANK']}-rank{rank}")
local.mkdir()
torch.save(wrapped.__globals__["nn"].Linear(16, 2).state_dict(), local / "last.pt")
if rank == 3:
    data = (local / "last.pt").read_bytes()
    (local / "last.pt").write_bytes(data[: len(data) // 2])
start()
log.info("resuming from %s", local / "last.pt")
state = torch.load(local / "last.pt")
model = nn.Linear(16, 2)
model.load_state_dict(state)
model = wrapped(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    step(model, optimizer, torch.randn(4, 16), torch.zeros(4, dtype=torch.long))
"""),
        wanted=("PytorchStreamReader failed reading zip archive", "failed finding central directory"),
        helpful=(r"last\.pt", r"checkpoint", r"train\.py"),
        misleading=(r"network|memory|\bport\b",),
        rank=3,
    ),
    ddp(
        name="t-ddp-state-dict-keys",
        code="exception",
        way="a checkpoint saved from the wrapped model is loaded into the bare one, everywhere",
        processes=2,
        files=files(r"""from runtime import *

start()
model = wrapped()
path = f"ckpt-{rank}.pt"
torch.save({"model": model.state_dict(), "epoch": 3}, path)
fresh = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
fresh.load_state_dict(torch.load(path)["model"])
log.info("resumed at epoch 3")
"""),
        wanted=(
            'Missing key(s) in state_dict: "0.weight"',
            'Unexpected key(s) in state_dict: "module.0.weight"',
            "Error(s) in loading state_dict for Sequential",
        ),
        helpful=(r"train\.py", r"module\.", r"state_dict"),
        misleading=(r"network|memory|\bport\b",),
        rank=0,
        also=(1,),
    ),
    ddp(
        name="t-ddp-record-too-short",
        code="exception",
        way="a worker of one rank's loader fails on a record",
        processes=3,
        files=files(r"""import struct
from torch.utils.data import DataLoader, Dataset
from runtime import *


class Records(Dataset):
    def __init__(self, path):
        self.data = open(path, "rb").read()

    def __len__(self):
        return 24

    def __getitem__(self, i):
        raw = self.data[i * 68 : (i + 1) * 68]
        *values, label = struct.unpack("<16fi", raw)
        return torch.tensor(values), label


with open(f"part{rank}.bin", "wb") as out:
    for i in range(24 if rank else 19):
        out.write(struct.pack("<16fi", *[0.1 * i] * 16, i % 2))
start()
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Records(f"part{rank}.bin"), batch_size=4, num_workers=2):
    log.info("loss %.3f", step(model, optimizer, x, y))
"""),
        wanted="struct.error: unpack requires a buffer of 68 bytes",
        helpful=(r"train\.py", r"part0|record"),
        misleading=(r"network|memory|num_workers|shm",),
        rank=0,
    ),
    ddp(
        name="t-ddp-loader-worker-killed",
        code="exception",
        also_codes=("signal", "host_oom"),
        way="a loader's worker is killed from outside",
        processes=3,
        files=files(r"""import signal
from torch.utils.data import DataLoader, Dataset, get_worker_info
from runtime import *


class Heavy(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        info = get_worker_info()
        if rank == 1 and info.id == 1 and i > 20:
            os.kill(os.getpid(), signal.SIGKILL)  # what the node's memory guard does
        return torch.randn(16), i % 2


start()
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Heavy(), batch_size=4, num_workers=2):
    step(model, optimizer, x, y)
"""),
        wanted=("is killed by signal: Killed", "exited unexpectedly"),
        helpful=(r"worker|memory",),
        misleading=(r"network|firewall|\bport\b",),
        rank=1,
    ),
    ddp(
        name="t-ddp-vocabulary-differs",
        code="exception",
        also_codes=("collective",),
        way="one rank builds its vocabulary from its own shard",
        processes=4,
        files=files(r"""from runtime import *

texts = ["the cat sat on the mat", "a dog ate my homework", "the mat ate a dog", "on my homework sat the cat quietly"]
start(15)
words = sorted({w for t in (texts if rank == 3 else texts[:3]) for w in t.split()})
log.info("vocabulary of %d words", len(words))
model = wrapped(nn.Sequential(nn.Embedding(len(words), 16), nn.Flatten(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    step(model, optimizer, torch.tensor([[0], [1]]), torch.tensor([0, 1]))
"""),
        wanted=("in this process with sizes", "appears not to match sizes of the same param", "vocabulary of 11 words"),
        helpful=(r"vocab|same model|train\.py|rank 3",),
        misleading=(r"firewall|memory|\bport\b",),
        rank=3,
    ),
    ddp(
        name="t-ddp-unused-branch",
        code="exception",
        way="a part of the model gets no gradient, everywhere",
        processes=3,
        files=files(r"""from runtime import *


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.main, self.aux = nn.Linear(16, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.main(self.trunk(x))


start()
model = wrapped(Two())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    log.info("step %d %.3f", i, step(model, optimizer, torch.randn(4, 16), torch.zeros(4, dtype=torch.long)))
"""),
        wanted="Expected to have finished reduction in the prior iteration before starting a new one",
        helpful=(r"find_unused_parameters", r"train\.py"),
        misleading=(r"network|memory|\bport\b",),
        rank=0,
        also=(1, 2),
    ),
    ddp(
        name="t-ddp-syncbn-on-cpu",
        code="exception",
        way="SyncBatchNorm without a GPU, everywhere",
        processes=2,
        files=files(r"""from runtime import *

start()
net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
model = wrapped(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    step(model, optimizer, torch.randn(4, 16), torch.zeros(4, dtype=torch.long))
"""),
        wanted="SyncBatchNorm layers only work with GPU modules",
        helpful=(r"SyncBatchNorm|GPU", r"train\.py"),
        misleading=(r"network|memory|\bport\b",),
        rank=0,
        also=(1,),
    ),
    ddp(
        name="t-ddp-nccl-asked-on-cpu-nodes",
        code="exception",
        also_codes=("environment",),
        way="the backend needs GPUs that are not there",
        processes=4,
        nodes=2,
        files={
            "train.py": r"""import os
import torch.distributed as dist

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
dist.init_process_group(backend="nccl")
print("never")
"""
        },
        wanted=("ProcessGroupNCCL is only supported with GPUs", "Distributed package doesn't have NCCL built in"),
        helpful=(r"gloo", r"GPU"),
        misleading=(r"firewall|memory|\bport\b",),
        rank=0,
        also=(1, 2, 3),
    ),
    ddp(
        name="t-ddp-set-device-without-cuda",
        code="environment",
        also_codes=("exception",),
        way="the build of torch has no CUDA",
        processes=3,
        files=files(r"""from runtime import *

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
start()
log.info("device set")
"""),
        wanted=("Torch not compiled with CUDA enabled", "has no attribute '_cuda_setDevice'"),
        helpful=(r"CUDA|GPU|cpu", r"train\.py"),
        misleading=(r"firewall|memory|\bport\b",),
        rank=0,
        also=(1, 2),
    ),
    ddp(
        name="t-ddp-sampler-asks-too-much",
        code="exception",
        way="an option is missing in the configuration of one node",
        processes=4,
        nodes=2,
        files=files(
            r"""import yaml
from runtime import *

start()
with open(f"node{os.environ['NODE_RANK']}.yaml") as f:
    config = yaml.safe_load(f)
log.info("configuration %s", config)
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=config["optimizer"]["lr"])
for i in range(config["steps"]):
    step(model, optimizer, torch.randn(4, 16), torch.zeros(4, dtype=torch.long))
""",
            node0__yaml="steps: 8\noptimizer:\n  lr: 0.1\n",
            node1__yaml="steps: 8\noptimizer:\n  learning_rate: 0.1\n",
        ),
        wanted="KeyError: 'lr'",
        helpful=(r"train\.py", r"yaml|lr"),
        misleading=(r"network|memory|\bport\b",),
        rank=2,
        also=(3,),
    ),
    ddp(
        name="t-ddp-missing-file-on-second-node",
        code="exception",
        way="data were staged on one node alone",
        processes=4,
        nodes=2,
        files=files(
            r"""import csv
from runtime import *

start()
folder = f"scratch{os.environ['NODE_RANK']}"
log.info("reading %s", folder)
with open(f"{folder}/train.csv", newline="") as f:
    rows = list(csv.reader(f))
model = wrapped()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for row in rows:
    step(model, optimizer, torch.full((1, 16), float(row[0])), torch.tensor([int(row[1])]))
dist.barrier()
""",
        )
        | {"scratch0/train.csv": "0.5,1\n0.25,0\n0.75,1\n"},
        wanted="No such file or directory: 'scratch1/train.csv'",
        helpful=(r"scratch1|train\.csv", r"node"),
        misleading=(r"network|memory|\bport\b",),
        rank=2,
        also=(3,),
    ),
]
