"""Gangs below torchrun and accelerate."""
# ruff: noqa: E501

from recorder import Failure

SETUP = """import datetime, os, sys, time
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"[{rank}/{world}] start", flush=True)
BODY

if __name__ == "__main__":
    main()
"""
WRONG_WAY = r"firewall|submit again|pip install|smaller batch"
HANG_WRONG = r"pip install|smaller batch|disk"


def run(name: str, body: str, ranks: int, **labels: object) -> Failure:
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").split("\n"))
    labels = {
        "command": f"torchrun --nproc_per_node {ranks} --master_port $MASTER_PORT train.py",
        "files": {"train.py": SETUP.replace("BODY\n", indented)},
        "misleading": (WRONG_WAY,),
        "num_ranks": ranks,
    } | labels
    return Failure(name=name, convention="torchrun", **labels)  # type: ignore[arg-type]


FAILURES = [
    run(
        "r-torchrun-index-on-one",
        """
labels = list(range(10))
for step in range(4):
    target = labels[step * (3 if rank != 1 else 5)]
    t = torch.tensor(target)
    dist.all_reduce(t)
""",
        3,
        code="exception",
        rank=1,
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py",),
    ),
    run(
        "r-torchrun-exit-3-with-text",
        """
dist.barrier()
if rank == 0:
    print("ERROR: tokenizer.model is newer than the dataset; run prepare.py again", file=sys.stderr, flush=True)
    sys.exit(3)
dist.barrier()
""",
        2,
        code="exit_code",
        rank=0,
        wanted="tokenizer.model is newer than the dataset",
        helpful=(r"prepare\.py|tokenizer\.model|train\.py",),
    ),
    run(
        "r-torchrun-rank2-segfault",
        """
import ctypes
dist.barrier()
if rank == 2:
    ctypes.memset(0, 1, 100)
dist.barrier()
""",
        3,
        code="signal",
        rank=2,
        wanted=("SIGSEGV", "Signal 11", "signal 11"),
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes|train\.py",),
    ),
    run(
        "r-torchrun-rank1-sigkill",
        """
import signal
for step in range(30):
    t = torch.ones(1)
    dist.all_reduce(t)
    if rank == 1 and step == 8:
        os.kill(os.getpid(), signal.SIGKILL)
""",
        2,
        code="signal",
        rank=1,
        wanted=("SIGKILL", "Signal 9", "signal 9"),
        helpful=(r"SIGKILL|outside|memory|dmesg",),
    ),
    run(
        "r-torchrun-module-missing-everywhere",
        """
import deepspeed_lite
deepspeed_lite.initialize()
""",
        2,
        code="environment",
        rank=0,
        also=(1,),
        wanted="ModuleNotFoundError: No module named 'deepspeed_lite'",
        helpful=(r"deepspeed_lite",),
        misleading=(r"firewall|submit again|smaller batch",),
    ),
    run(
        "r-torchrun-script-name-wrong",
        "pass",
        2,
        code="bad_input",
        rank=0,
        also=(1,),
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT trian.py",
        wanted="can't open file '/home/user/project/work/trian.py'",
        helpful=(r"trian\.py|train\.py",),
    ),
    run(
        "r-torchrun-unknown-option",
        "pass",
        2,
        code="bad_input",
        rank=None,
        also=(0, 1),
        command="torchrun --processes 2 train.py",
        wanted=(
            "unrecognized arguments",
            "the following arguments are required",
            "ambiguous option",
            "--processes",
            "No such file",
            "can't open file",
        ),
        helpful=(r"nproc|--processes|option|torchrun --help",),
    ),
    run(
        "r-torchrun-gpu-count-on-cpu-node",
        "pass",
        1,
        code="exception",
        also_codes=("bad_input", "environment"),
        rank=None,
        command="torchrun --nproc_per_node gpu train.py",
        wanted=("Cuda is not available", "CUDA is not available"),
        helpful=(r"gpu|nproc|--compute",),
        misleading=(r"firewall|smaller batch",),
    ),
    run(
        "r-torchrun-hang-in-input-pipe",
        """
if rank == 2:
    r, w = os.pipe()
    print("reading labels from the pipe", flush=True)
    os.read(r, 100)
t = torch.ones(1)
dist.all_reduce(t)
""",
        3,
        code="collective",
        rank=2,
        wanted=("did not", "os.read", "hung", "stuck", "reading labels from the pipe"),
        helpful=(r"train\.py|os\.read|pipe|rank 2",),
        misleading=(HANG_WRONG,),
    ),
    run(
        "r-torchrun-rank1-returns-early",
        """
files = ["a", "b", "c", "d"]
mine = files[rank::world]
if rank == 1:
    mine = []
if not mine:
    print(f"[{rank}] no files, returning", flush=True)
    dist.destroy_process_group()
    return
t = torch.ones(1)
dist.all_reduce(t)
""",
        3,
        code="collective",
        rank=1,
        wanted=("code 0", "had ended", "no files, returning", "left"),
        helpful=(r"train\.py|rank 1|every rank|all ranks",),
        misleading=(HANG_WRONG,),
    ),
    run(
        "r-torchrun-assert-on-gradients",
        """
net = torch.nn.Linear(3, 1)
x = torch.ones(2, 3)
if rank == 3:
    x[1, 2] = float("inf")
net(x).sum().backward()
norm = net.weight.grad.norm()
assert torch.isfinite(norm), f"gradient norm {norm:.1f} on rank {rank}"
dist.all_reduce(net.weight.grad)
""",
        4,
        code="exception",
        rank=3,
        wanted="AssertionError: gradient norm inf on rank 3",
        helpful=(r"train\.py|gradient|inf",),
    ),
    Failure(
        name="r-torchrun-program-not-executable",
        code="launcher_missing",
        convention="torchrun",
        num_ranks=2,
        rank=None,
        also=(0, 1),
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT --no-python ./start",
        files={"start": "#!/bin/bash\nexec python train.py\n", "train.py": "print(1)\n"},
        wanted="Permission denied: './start'",
        helpful=(r"chmod|executable|start",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-torchrun-program-not-there",
        code="launcher_missing",
        convention="torchrun",
        num_ranks=2,
        rank=None,
        also=(0, 1),
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT --no-python trainer-cli --fast",
        wanted="No such file or directory: 'trainer-cli'",
        helpful=(r"trainer-cli",),
        misleading=(r"firewall|smaller batch",),
    ),
    Failure(
        name="r-accelerate-wrong-batch",
        code="exception",
        convention="torchrun",
        num_ranks=1,
        command="accelerate launch --cpu --num_processes 1 train.py",
        files={
            "train.py": """import torch
from accelerate import Accelerator
acc = Accelerator(cpu=True)
model = acc.prepare(torch.nn.Linear(8, 2))
for step in range(4):
    x = torch.randn(4, 8 if step != 2 else 7)
    loss = model(x).sum()
    acc.backward(loss)
acc.print("done")
"""
        },
        wanted="mat1 and mat2 shapes cannot be multiplied (4x7 and 8x2)",
        helpful=(r"train\.py|shape",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-accelerate-option-unknown",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        rank=None,
        also=(0, 1),
        command="accelerate launch --cpu --num_processes two train.py",
        files={"train.py": "print(1)\n"},
        wanted="invalid int value: 'two'",
        helpful=(r"num_processes",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-accelerate-script-exits",
        code="exit_code",
        convention="torchrun",
        num_ranks=1,
        rank=0,
        command="accelerate launch --cpu --num_processes 2 --main_process_port $MASTER_PORT train.py",
        files={
            "train.py": """import sys, time
from accelerate import Accelerator
from accelerate.logging import get_logger
acc = Accelerator(cpu=True)
acc.wait_for_everyone()
if acc.is_main_process:
    sys.exit("run_name 'baseline' exists already: choose another or pass overwrite=true")
time.sleep(3)
acc.wait_for_everyone()
"""
        },
        wanted="run_name 'baseline' exists already",
        helpful=(r"run_name|overwrite|train\.py|baseline",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-torchrun-accelerator-batch",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        rank=1,
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT train.py",
        files={
            "train.py": """import torch
from accelerate import Accelerator
acc = Accelerator(cpu=True)
model = acc.prepare(torch.nn.Linear(8, 2))
for step in range(4):
    x = torch.randn(4, 8)
    target = torch.randn(4, 2 if not (acc.process_index == 1 and step == 2) else 3)
    loss = ((model(x) - target) ** 2).mean()
    acc.backward(loss)
acc.print("done")
"""
        },
        wanted="The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
        helpful=(r"train\.py|shape|size",),
        misleading=(WRONG_WAY,),
    ),
    run(
        "r-torchrun-two-nodes-last-fails",
        """
conf = {"lr": "1e-3", "warmup": "ten" if rank == 3 else "10"}
dist.barrier()
warmup = int(conf["warmup"])
t = torch.tensor(warmup)
dist.all_reduce(t)
""",
        4,
        processes=2,
        nodes=2,
        command="torchrun --nnodes 2 --node_rank $NODE_RANK --nproc_per_node 2 --master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py",
        code="exception",
        rank=3,
        wanted="ValueError: invalid literal for int() with base 10: 'ten'",
        helpful=(r"train\.py|warmup",),
    ),
    run(
        "r-torchrun-expects-three-nodes",
        "dist.barrier()",
        2,
        processes=2,
        nodes=2,
        command="torchrun --nnodes 3 --node_rank $NODE_RANK --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT --rdzv_id 7 --rdzv_conf join_timeout=7,timeout=7 train.py",
        code="rendezvous",
        rank=None,
        also=(0, 1),
        wanted=("RendezvousTimeoutError", "nnodes", "--nnodes 3"),
        helpful=(r"nnodes|nodes",),
        misleading=(r"pip install|smaller batch",),
    ),
    run(
        "r-torchrun-restarts-then-gives-up",
        """
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
dist.barrier()
if rank == 1:
    import csv
    rows = list(csv.DictReader(["a;b", "1;2"]))
    print(rows[0]["a"])
dist.barrier()
""",
        2,
        command="torchrun --max_restarts 1 --monitor_interval 0.5 --nproc_per_node 2 --master_port $MASTER_PORT train.py",
        code="exception",
        rank=1,
        wanted="KeyError: 'a'",
        helpful=(r"train\.py|delimiter|csv",),
    ),
    Failure(
        name="r-torchrun-recorded-error",
        code="exception",
        convention="torchrun",
        num_ranks=3,
        rank=2,
        command="python -m torch.distributed.run --nproc-per-node=3 --master-port=$MASTER_PORT src/main.py --epochs 2",
        files={
            "src/main.py": """import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

def encode(text, table):
    return [table[c] for c in text]

@record
def main():
    dist.init_process_group("gloo")
    table = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    text = ["hello world", "good day", "caf\\u00e9"][dist.get_rank()]
    t = torch.tensor(len(encode(text, table)))
    dist.all_reduce(t)

main()
"""
        },
        wanted="KeyError: 'é'",
        helpful=(r"main\.py|encode|table",),
        misleading=(WRONG_WAY,),
    ),
    run(
        "r-torchrun-rank1-allocates-too-much",
        """
import resource
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
dist.barrier()
if rank == 1:
    pairwise = torch.zeros(60000, 60000)
dist.barrier()
""",
        2,
        code="host_oom",
        rank=1,
        wanted=("can't allocate memory", "not enough memory"),
        helpful=(r"memory|train\.py|batch",),
        misleading=(r"firewall|submit again|pip install",),
    ),
    run(
        "r-torchrun-rank0-checkpoint-disk-full",
        """
dist.barrier()
if rank == 0:
    torch.save({"w": torch.zeros(2_000_000)}, "ckpt/step1.pt")
dist.barrier()
""",
        2,
        command="mkdir -p ckpt; unshare -m sh -c 'mount -t tmpfs -o size=3m none ckpt; exec torchrun --nproc_per_node 2 --master_port $MASTER_PORT train.py'",
        code="disk_full",
        also_codes=("exception",),
        rank=0,
        wanted=("No space left on device", "file write failed", "unexpected pos"),
        helpful=(r"disk|space|ckpt",),
    ),
    run(
        "r-torchrun-exception-group",
        """
import asyncio

async def fetch(n):
    await asyncio.sleep(0.1)
    if n == 2 and rank == 1:
        raise ValueError(f"part {n} has 11 columns, expected 12")

async def everything():
    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(fetch(n))

dist.barrier()
asyncio.run(everything())
dist.barrier()
""",
        2,
        code="exception",
        rank=1,
        wanted="ValueError: part 2 has 11 columns, expected 12",
        helpful=(r"train\.py|columns|part 2",),
    ),
    run(
        "r-torchrun-logs-error-exits-1",
        """
import logging
logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("trainer")
log.info("rank %d: %d steps per epoch", rank, 12)
dist.barrier()
if rank == 1:
    log.error("validation split is empty (0 of 4000 rows match split == 'val')")
    sys.exit(1)
dist.barrier()
log.info("finished")
""",
        2,
        code="exit_code",
        rank=1,
        wanted="validation split is empty",
        helpful=(r"split|val|train\.py",),
    ),
    run(
        "r-torchrun-port-taken",
        "dist.barrier()",
        2,
        command="python -m http.server 29871 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1; timeout 14 torchrun --nproc_per_node 2 --master_addr 127.0.0.1 --master_port 29871 train.py; code=$?; kill %1; exit $code",
        code="port_trouble",
        rank=None,
        also=(0, 1),
        wanted=("EADDRINUSE", "address already in use", "29871"),
        helpful=(r"29871|MASTER_PORT|master_port|port",),
        misleading=(r"pip install|smaller batch",),
    ),
    run(
        "r-torchrun-argparse-in-script",
        """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--batch-size", type=int)
args = p.parse_args()
""",
        2,
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT train.py --lr 0,01 --batch-size 16",
        code="bad_input",
        rank=0,
        also=(1,),
        wanted="argument --lr: invalid float value: '0,01'",
        helpful=(r"--lr|0,01",),
    ),
    run(
        "r-torchrun-chained-cause",
        """
def load(path):
    try:
        return eval(open(path).read())
    except SyntaxError as e:
        raise RuntimeError(f"bad config {path}") from e

if rank == 0:
    open("model.cfg", "w").write("{'depth': 12, 'width' 768}")
dist.barrier()
if rank == 0:
    load("model.cfg")
dist.barrier()
""",
        3,
        code="exception",
        rank=0,
        wanted=("SyntaxError: '{' was never closed", "SyntaxError: invalid syntax", "SyntaxError: ':' expected"),
        helpful=(r"model\.cfg|train\.py",),
    ),
    run(
        "r-torchrun-limit-rank1-input",
        "pass",
        2,
        limit_s=9,
        files={
            "train.py": """import socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("waiting for the teacher model to answer", flush=True)
    server = socket.create_server(("127.0.0.1", 0))
    server.accept()
dist.all_reduce(torch.ones(1))
"""
        },
        code="timeout",
        rank=1,
        wanted=("limit", "server.accept", "waiting for the teacher model"),
        helpful=(r"train\.py|accept|teacher|rank 1",),
        misleading=(HANG_WRONG,),
    ),
    run(
        "r-torchrun-cuda-asked-for",
        """
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(2, 2).to(device)
""",
        2,
        code="environment",
        also_codes=("exception",),
        rank=0,
        also=(1,),
        wanted="Torch not compiled with CUDA enabled",
        helpful=(r"cpu|GPU|--compute|CUDA",),
        misleading=(r"firewall|submit again|smaller batch",),
    ),
    run(
        "r-torchrun-flood-after-error",
        """
import threading
dist.barrier()
if rank == 1:
    import atexit
    atexit.register(lambda: [print(f"metric flush {i}: ok value={i * 0.25}") for i in range(1500)])
    optimizer = torch.optim.SGD([], lr=0.1)
dist.barrier()
""",
        2,
        code="exception",
        rank=1,
        wanted="ValueError: optimizer got an empty parameter list",
        helpful=(r"train\.py|parameter",),
    ),
    run(
        "r-torchrun-three-nodes-one-hangs",
        """
time.sleep(0.1)
if rank == 2:
    import threading
    lock = threading.Lock()
    lock.acquire()
    print("flushing metrics", flush=True)
    lock.acquire()
dist.barrier()
""",
        3,
        processes=3,
        nodes=3,
        command="torchrun --nnodes 3 --node_rank $NODE_RANK --nproc_per_node 1 --master_addr $MASTER_ADDR --master_port $MASTER_PORT train.py",
        code="collective",
        rank=2,
        wanted=("did not", "lock.acquire()", "hung", "stuck", "flushing metrics"),
        helpful=(r"train\.py|lock|rank 2",),
        misleading=(HANG_WRONG,),
    ),
]
