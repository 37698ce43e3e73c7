"""Gangs below torchrun and accelerate."""

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
        name="u-tr-sample-weight-mismatch",
        way="one rank's weights have another length",
        code="exception",
        rank=3,
        command=RUN + "train.py",
        files={
            "train.py": """import os
import torch, torch.distributed as dist
from torch.utils.data import WeightedRandomSampler

def weights_for(rank):
    w = torch.ones(100)
    if rank == 3:
        w[10:20] = float("nan")
    return w

def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    t = torch.zeros(1)
    for epoch in range(5):
        w = weights_for(rank) if epoch == 2 else torch.ones(100)
        sampler = WeightedRandomSampler(w, 32)
        for i in sampler:
            t += i / 1e4
        dist.all_reduce(t)
        print(f"[rank {rank}] epoch {epoch} checksum {t.item():.3f}", flush=True)

if __name__ == "__main__":
    main()
"""
        },
        wanted=("probability tensor contains either", "invalid multinomial distribution", "inf, nan or element < 0"),
        helpful=(r"train\.py", r"weight|nan|sampler"),
        misleading=(r"network|firewall|memory|port\b",),
    ),
    One(
        name="u-tr-silent-exit-code",
        way="a rank leaves by os._exit after a sanity check that wrote a line",
        code="exit_code",
        rank=1,
        command=RUN + "guarded.py",
        files={
            "guarded.py": """import os, sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
disk = {0: 91, 1: 3, 2: 88, 3: 90}[rank]
print(f"rank {rank}: scratch has {disk} GB free", flush=True)
if disk < 10:
    sys.stderr.write(f"rank {rank}: refusing to start, need at least 10 GB of scratch\\n")
    sys.stderr.flush()
    os._exit(23)
dist.barrier()
time.sleep(20)
"""
        },
        wanted="refusing to start, need at least 10 GB of scratch",
        helpful=(r"scratch|disk|space", r"guarded\.py"),
        misleading=(r"firewall|port\b|rendezvous",),
    ),
    One(
        name="u-tr-segfault-in-extension",
        way="ctypes call into a library with a null pointer on one rank",
        code="signal",
        rank=2,
        command=RUN + "--max-restarts 0 infer.py",
        files={
            "infer.py": """import ctypes, os, time
import torch
import torch.distributed as dist

libc = ctypes.CDLL("libc.so.6")
dist.init_process_group("gloo")
rank = dist.get_rank()
names = [b"alpha", b"beta", None if rank == 2 else b"gamma"]
libc.strlen.restype = ctypes.c_size_t
libc.strlen.argtypes = [ctypes.c_void_p]
for n, name in enumerate(names):
    size = libc.strlen(ctypes.cast(name, ctypes.c_void_p) if name else None)
    print(f"[{rank}] name {n} has {size} bytes", flush=True)
    time.sleep(0.3)
dist.barrier()
"""
        },
        wanted=("SIGSEGV", "Signal 11", "Segmentation fault"),
        helpful=(r"infer\.py", r"native|ctypes|faulthandler|core|extension|library"),
        misleading=(r"firewall|port\b|rendezvous",),
    ),
    One(
        name="u-tr-arguments-unknown",
        way="argparse does not know an option, on every rank",
        code="bad_input",
        rank=0,
        also=(1, 2, 3),
        command=RUN + "train.py --learning-rate 3e-4 --warmup_steps 100",
        files={
            "train.py": """import argparse

def parse():
    parser = argparse.ArgumentParser(description="SFT trainer")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--warmup_steps", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    return parser.parse_args()

args = parse()
import torch.distributed as dist
dist.init_process_group("gloo")
"""
        },
        wanted="unrecognized arguments: --learning-rate 3e-4",
        helpful=(r"--lr\b|--learning-rate", r"argument|option"),
        misleading=(r"firewall|network|memory",),
    ),
    One(
        name="u-tr-module-missing",
        way="a package is not installed",
        code="environment",
        rank=0,
        also=(1, 2, 3),
        command=RUN + "finetune_lora.py",
        files={
            "finetune_lora.py": """import os
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model

dist.init_process_group("gloo")
config = LoraConfig(r=8)
"""
        },
        wanted="No module named 'peft'",
        helpful=(r"peft", r"install"),
        misleading=(r"firewall|network|memory|nvidia",),
    ),
    One(
        name="u-tr-restarts-same-error",
        way="one restart, it ends in the same error of rank 0",
        code="exception",
        rank=0,
        command=RUN + "--max-restarts 1 elastic_train.py",
        files={
            "elastic_train.py": """import os, json
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
print(f"start (restart {os.environ['TORCHELASTIC_RESTART_COUNT']}) rank {rank}", flush=True)
dist.barrier()
state = '{"epoch": 4, "step": 1290, }'
epoch = torch.zeros(1)
if rank == 0:
    epoch[0] = json.loads(state)["epoch"]
dist.broadcast(epoch, 0)
"""
        },
        wanted=("Expecting property name enclosed in double quotes", "Illegal trailing comma"),
        helpful=(r"elastic_train\.py", r"json|comma|state"),
        misleading=(r"firewall|network|memory",),
    ),
    One(
        name="u-tr-one-rank-hang-limit",
        way="rank 3 waits on a lock file until the time limit",
        code="timeout",
        rank=3,
        limit_s=45,
        command=RUN + "train_with_cache.py",
        files={
            "train_with_cache.py": """import os, pathlib, time
import torch
import torch.distributed as dist

LOCK = pathlib.Path("cache.lock")


class FileLock:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        while True:
            try:
                self.fd = os.open(self.path, os.O_CREAT | os.O_EXCL)
                return self
            except FileExistsError:
                time.sleep(0.5)

    def __exit__(self, *exc):
        os.close(self.fd)
        self.path.unlink()


def build_cache(rank):
    if rank == 3:
        LOCK.touch()  # stale: its owner was killed yesterday
        with FileLock(LOCK):
            print("building cache")


dist.init_process_group("gloo")
build_cache(dist.get_rank())
dist.all_reduce(torch.ones(1))
print("cache ready on all ranks", flush=True)
"""
        },
        wanted=("FileLock", "cache.lock", "build_cache", "did not", "time.sleep(0.5)"),
        helpful=(r"cache\.lock|lock", r"train_with_cache\.py"),
        misleading=(r"firewall|network|memory",),
    ),
    One(
        name="u-tr-system-exit-word",
        way="one rank ends with sys.exit('words')",
        code="exit_code",
        also_codes=("bad_input",),
        rank=2,
        command=RUN + "-m pkg.cli --shards 3",
        files={
            "pkg/__init__.py": "",
            "pkg/cli.py": """import os, sys, click
import torch.distributed as dist


@click.command()
@click.option("--shards", type=int, default=4, show_default=True)
def cli(shards):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    plan = {0: "0", 1: "1", 2: None, 3: "2"}
    click.echo(f"rank {rank} takes shard {plan[rank]}")
    if plan[rank] is None:
        sys.exit(f"rank {rank}: no shard left for me, {shards} shards for {dist.get_world_size()} ranks")
    dist.barrier()


if __name__ == "__main__":
    cli()
""",
        },
        wanted="no shard left for me, 3 shards for 4 ranks",
        helpful=(r"shard", r"cli\.py"),
        misleading=(r"firewall|network|memory",),
    ),
    One(
        name="u-tr-record-wrapped-error",
        way="@record writes the error file of the failing rank",
        code="exception",
        rank=1,
        command=RUN + "train_rl.py",
        files={
            "train_rl.py": """import random, time
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


class ReplayBuffer:
    def __init__(self, capacity):
        self.data, self.capacity = [], capacity

    def sample(self, n):
        return random.sample(self.data, n)


@record
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffer = ReplayBuffer(1000)
    for it in range(10):
        fresh = 8 if rank != 1 else 2
        buffer.data += [torch.rand(3) for _ in range(fresh)]
        batch = torch.stack(buffer.sample(8))
        dist.all_reduce(batch)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
"""
        },
        wanted="Sample larger than population or is negative",
        helpful=(r"train_rl\.py", r"sample|buffer"),
        misleading=(r"firewall|network|memory",),
    ),
    Two(
        name="u-tr2-node-lacks-tokenizer",
        way="the second node has no tokenizer file",
        code="exception",
        also_codes=("bad_input",),
        rank=2,
        also=(3,),
        command="mkdir -p disk$NODE_RANK; [ $NODE_RANK = 0 ] && echo '{}' > disk0/tokenizer.json; cd disk$NODE_RANK; "
        + TWO
        + "../train_lm.py",
        files={
            "train_lm.py": """import json, os, pathlib
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
path = pathlib.Path.cwd() / "tokenizer.json"
print(f"rank {rank} reads {path}", flush=True)
vocab = json.loads(path.read_text())
dist.barrier()
t = torch.ones(4)
for _ in range(100):
    dist.all_reduce(t)
"""
        },
        wanted=("No such file or directory", "tokenizer.json"),
        helpful=(r"tokenizer\.json", r"node|copy|path"),
        misleading=(r"firewall|memory|port\b",),
    ),
    Two(
        name="u-tr2-one-rank-assert",
        way="an assertion on the far node, the near node sees the connection close",
        code="exception",
        rank=3,
        command=TWO + "dist_train.py",
        files={
            "dist_train.py": """import os, time
import torch
import torch.distributed as dist


def check_batch(batch, rank, step):
    lo, hi = batch.min().item(), batch.max().item()
    assert 0 <= lo and hi <= 255, f"pixel range [{lo}, {hi}] outside of 0..255 at step {step} on rank {rank}"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.zeros(1000)
    for step in range(60):
        batch = torch.randint(0, 256, (4, 8))
        if rank == 3 and step == 14:
            batch[2, 2] = -1
        check_batch(batch, rank, step)
        dist.all_reduce(g)
        if step % 5 == 0 and rank == 0:
            print("step", step, flush=True)
        time.sleep(0.02)


main()
"""
        },
        wanted="pixel range [-1,",
        helpful=(r"dist_train\.py", r"pixel|range|data"),
        misleading=(r"firewall|memory|port\b",),
    ),
    Two(
        name="u-tr2-nnodes-disagree",
        way="one launcher is told 3 nodes: nobody completes the meeting",
        code="rendezvous",
        also_codes=("timeout", "bad_input"),
        rank=None,
        limit_s=60,
        command="torchrun --nnodes 3 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id job7 --rdzv-conf join_timeout=12 "
        "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT train.py",
        files={
            "train.py": """import torch.distributed as dist
dist.init_process_group("gloo")
print("world", dist.get_world_size())
"""
        },
        wanted=("RendezvousTimeoutError", "timed out"),
        helpful=(r"nnodes|nodes", r"--nnodes"),
        misleading=(r"memory|disk",),
    ),
    Failure(
        name="u-accelerate-config-typo",
        way="accelerate's config file has an unknown key",
        code="bad_input",
        also_codes=("exception", "exit_code"),
        convention="torchrun",
        processes=1,
        num_ranks=2,
        rank=None,
        command="accelerate launch --config_file acc.yaml train.py",
        files={
            "acc.yaml": """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
num_process: 2
num_machines: 1
machine_rank: 0
mixed_precision: 'no'
use_cpu: true
""",
            "train.py": "from accelerate import Accelerator\nprint(Accelerator().state)\n",
        },
        wanted=("unknown keys", "num_process"),
        helpful=(r"acc\.yaml|num_process", r"config"),
        misleading=(r"firewall|network|memory",),
    ),
    Failure(
        name="u-accelerate-output-has-no-loss",
        way="the loss is taken from a model output that has none, below accelerate",
        code="exception",
        convention="torchrun",
        processes=1,
        num_ranks=1,
        command="accelerate launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no "
        "train_glue.py",
        files={
            "train_glue.py": """import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
opt = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader([{"x": torch.ones(4), "labels": 1} for _ in range(16)], batch_size=4)
model, opt, data = accelerator.prepare(model, opt, data)
for batch in data:
    outputs = model(batch["x"])
    accelerator.backward(outputs.loss)
    opt.step()
"""
        },
        wanted="object has no attribute 'loss'",
        helpful=(r"train_glue\.py", r"loss"),
        misleading=(r"firewall|network|memory",),
    ),
]
