"""Jobs behind torchrun, on one node and on two."""

from recorder import Failure

ONE = "torchrun --standalone --nproc-per-node"
TWO = (
    "torchrun --nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node"
)

FAILURES = [
    Failure(
        name="s-tr-label-outside-classes",
        code="exception",
        convention="torchrun",
        num_ranks=3,
        command=f"{ONE} 3 classify.py --classes 10",
        files={
            "classify.py": r"""import argparse
import torch
import torch.distributed as dist
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--classes", type=int, default=10)
args = parser.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
head = torch.nn.Linear(16, args.classes)
ddp = torch.nn.parallel.DistributedDataParallel(head)
for step in range(6):
    x, y = torch.randn(8, 16), torch.randint(0, args.classes, (8,))
    if rank == 1 and step == 4:
        y[3] = args.classes
    loss = F.cross_entropy(ddp(x), y)
    loss.backward()
    print(f"[rank{rank}] step {step} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
""",
        },
        wanted="IndexError: Target 10 is out of bounds.",
        helpful=(r"classify\.py", r"class|target|label"),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-tr-second-node-without-data",
        code="exception",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=f"./stage.sh && {TWO} 2 train.py",
        files={
            "stage.sh": (
                "#!/bin/bash\n# copies the data set to the node's own disk\nmkdir -p local/$NODE_RANK\n"
                'if [ "$NODE_RANK" = 0 ]; then seq 1 500 > local/0/tokens.txt; fi\n'
            ),
            "train.py": r"""import os, time
import torch.distributed as dist

node = os.environ["GROUP_RANK"]
with open(f"local/{node}/tokens.txt") as f:
    tokens = [int(t) for t in f]
dist.init_process_group("gloo")
print("tokens", len(tokens), flush=True)
dist.barrier()
""",
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'local/1/tokens.txt'",
        helpful=(r"tokens\.txt|local/1|stage\.sh",),
        misleading=(r"network|firewall|memory",),
        rank=2,
        also=(3,),
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-tr-script-name-typo",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 trian.py --epochs 3",
        files={"train.py": "print('training')\n", "README.md": "run train.py\n"},
        wanted="can't open file",
        helpful=(r"trian\.py|train\.py",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
    Failure(
        name="s-tr-unknown-flag",
        code="bad_input",
        convention="torchrun",
        num_ranks=4,
        command=f"{ONE} 4 finetune.py --batch-size 32 --gradient-checkpoint",
        files={
            "finetune.py": r"""import argparse

p = argparse.ArgumentParser(description="Fine-tune a small model")
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--gradient-checkpointing", choices=["on", "off"], default="off")
p.add_argument("--lora-rank", type=int, default=8)
print(p.parse_args())
""",
        },
        wanted="argument --gradient-checkpointing: expected one argument",
        helpful=(r"gradient-checkpoint",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1, 2, 3),
    ),
    Failure(
        name="s-tr-tokenizer-check-exits-three",
        code="exit_code",
        convention="torchrun",
        num_ranks=4,
        command=f"{ONE} 4 pretrain.py",
        files={
            "pretrain.py": r"""import logging, os, sys, time
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
log = logging.getLogger("pretrain")
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
vocab = 32000 if rank != 3 else 32003
log.info("rank %d vocab %d", rank, vocab)
if vocab % 64:
    log.critical("vocab size %d is not a multiple of 64; pad the tokenizer", vocab)
    sys.stderr.flush()
    sys.exit(3)
dist.barrier()
dist.destroy_process_group()
""",
        },
        wanted="vocab size 32003 is not a multiple of 64; pad the tokenizer",
        helpful=(r"vocab|tokenizer|pretrain\.py",),
        misleading=(r"network|memory|firewall",),
        rank=3,
    ),
    Failure(
        name="s-tr-native-crash-in-decoder",
        code="signal",
        convention="torchrun",
        num_ranks=3,
        command=f"{ONE} 3 decode.py",
        files={
            "decode.c": (
                "#include <string.h>\n\nint decode(const char *in, int n)\n{\n    char *out = 0;\n"
                "    if (n > 100)\n        memcpy(out, in, n);\n    return n;\n}\n"
            ),
            "decode.py": r"""import ctypes, os, subprocess
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "decode.c", "-o", f"libdecode{rank}.so"], check=True)
lib = ctypes.CDLL(f"./libdecode{rank}.so")
dist.barrier()
for i in range(20):
    frame = b"x" * (10 * i if rank == 2 else 50)
    lib.decode(frame, len(frame))
    print(f"rank {rank} decoded frame {i} ({len(frame)} bytes)", flush=True)
dist.barrier()
""",
        },
        wanted=("Signal 11 (SIGSEGV)", "SIGSEGV", "exitcode: -11"),
        helpful=(r"FAULTHANDLER|native|decode|faulthandler|gdb",),
        misleading=(r"network|firewall",),
        rank=2,
    ),
    Failure(
        name="s-tr-watchdog-kills-fat-rank",
        code="signal",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 grow.py",
        files={
            "grow.py": r"""import os, signal, threading, time
import psutil
import torch
import torch.distributed as dist

LIMIT_MB = 900


def watch():
    me = psutil.Process()
    while True:
        rss = me.memory_info().rss >> 20
        if rss > LIMIT_MB:
            print(f"[watchdog] rank {dist.get_rank()}: rss {rss} MB is over {LIMIT_MB} MB, killing the process", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)


dist.init_process_group("gloo")
threading.Thread(target=watch, daemon=True).start()
cache = []
for step in range(2000):
    x = torch.randn(1_000_000)
    if dist.get_rank() == 0:
        cache.append(x)
    dist.all_reduce(x[:10].clone())
    time.sleep(0.01)
""",  # noqa: E501
        },
        wanted=("is over 900 MB, killing the process",),
        helpful=(r"memory|watchdog|900|grow\.py|cache",),
        misleading=(r"network|firewall",),
        rank=0,
        also_codes=("host_oom",),
    ),
    Failure(
        name="s-tr-restart-fails-otherwise",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 --max-restarts 1 run.py",
        files={
            "run.py": r"""import os
import torch.distributed as dist

rank = int(os.environ["RANK"])
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} attempt {attempt}", flush=True)
os.makedirs(f"out/rank{rank}", exist_ok=attempt != "0")
dist.init_process_group("gloo")
history = {"train": [2.1, 1.7], "valid": []}
dist.barrier()
if rank == 1:
    best = min(history["valid"])
dist.barrier()
""",
        },
        wanted=("ValueError: min() arg is an empty sequence", "ValueError: min() iterable argument is empty"),
        helpful=(r"run\.py", r"min\("),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-tr-rank-returns-before-barrier",
        code="collective",
        convention="torchrun",
        num_ranks=4,
        command=f"{ONE} 4 loop.py",
        files={
            "loop.py": r"""import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    samples = [0.3, 0.1, 0.0, 0.7][rank]
    for epoch in range(3):
        if epoch == 1 and samples == 0.0:
            print(f"rank {rank}: nothing left to do in epoch {epoch}, returning", flush=True)
            return
        t = torch.tensor([samples])
        dist.all_reduce(t)
        print(f"rank {rank}: epoch {epoch} total {t.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        },
        wanted=("nothing left to do in epoch 1, returning", "code 0", "exited"),
        helpful=(r"loop\.py", r"rank 2|return|every rank|exit"),
        misleading=(r"firewall|memory",),
        rank=2,
    ),
    Failure(
        name="s-tr-no-python-program-missing",
        code="launcher_missing",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 --no-python ./bin/trainer --steps 10",
        files={"bin/README": "put the trainer here\n"},
        wanted="No such file or directory: './bin/trainer'",
        helpful=(r"bin/trainer",),
        misleading=(r"network|memory",),
        rank=None,
    ),
    Failure(
        name="s-tr-module-of-own-package",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command=f"{ONE} 2 -m vision.train --depth 18",
        files={"vision/__init__.py": "", "vision/trainer.py": "print('hi')\n"},
        wanted="No module named vision.train",
        helpful=(r"vision\.train|vision/train",),
        misleading=(r"network|memory|pip install",),
        rank=0,
        also=(1,),
        also_codes=("environment",),
    ),
]
