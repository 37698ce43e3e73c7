"""Gangs of torch processes, one for each rank, over gloo."""
# ruff: noqa: E501

from recorder import Failure

SETUP = """import datetime, os, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
print(f"rank {rank}/{world} ready", flush=True)
"""
WRONG_WAY = r"firewall|submit again|pip install|smaller batch"
HANG_WRONG = r"pip install|smaller batch|disk"


def gang(name: str, source: str, ranks: int, **labels: object) -> Failure:
    labels = {"command": "python train.py", "files": {"train.py": SETUP + source}, "misleading": (WRONG_WAY,)} | labels
    return Failure(name=name, convention="process", processes=ranks, **labels)  # type: ignore[arg-type]


FAILURES = [
    gang(
        "r-gang-loss-not-finite",
        """
def check(loss, step):
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at step {step}, stopping")

for step in range(30):
    loss = torch.rand(())
    if rank == 2 and step == 7:
        loss = torch.log(torch.tensor(-1.0))
    check(loss, step)
    dist.all_reduce(loss)
    if rank == 0:
        print(f"step {step} loss {loss.item() / world:.4f}", flush=True)
""",
        3,
        code="exception",
        rank=2,
        wanted="FloatingPointError: loss is nan at step 7, stopping",
        helpful=(r"train\.py", r"nan|learning rate|anomaly"),
    ),
    gang(
        "r-gang-shard-missing-on-one",
        """
from pathlib import Path
Path("shards").mkdir(exist_ok=True)
for n in (0, 2, 3):
    Path(f"shards/part-{n:05d}.txt").write_text("1 2 3")
dist.barrier()
with open(f"shards/part-{rank:05d}.txt") as f:
    values = [int(v) for v in f.read().split()]
t = torch.tensor(sum(values))
dist.all_reduce(t)
print(t.item())
""",
        4,
        code="exception",
        rank=1,
        wanted="No such file or directory: 'shards/part-00001.txt'",
        helpful=(r"part-00001", r"train\.py"),
    ),
    gang(
        "r-gang-rank0-leaves-after-eval",
        """
model = torch.nn.Linear(4, 1)
for epoch in range(3):
    t = torch.ones(1)
    dist.all_reduce(t)
    if rank == 0:
        print(f"epoch {epoch}: evaluation reached target accuracy, done", flush=True)
        sys.exit(0)
    time.sleep(0.2)
""",
        3,
        code="signal",
        also_codes=("collective",),
        rank=0,
        wanted=("SIGABRT", "signal 6", "terminate called without an active exception", "reached target accuracy, done"),
        helpful=(r"train\.py", r"same number|all ranks|sys\.exit|every rank|destroy_process_group|join"),
        misleading=(HANG_WRONG, r"firewall"),
    ),
    gang(
        "r-gang-uneven-batches",
        """
batches = [5, 5, 3][rank]
for step in range(batches):
    g = torch.randn(1000)
    dist.all_reduce(g)
    print(f"rank {rank} step {step}", flush=True)
print(f"rank {rank} finished its data", flush=True)
dist.destroy_process_group()
""",
        3,
        code="collective",
        rank=2,
        wanted=("code 0", "had ended", "left", "finished its data"),
        helpful=(r"train\.py", r"same number|drop_last|join|uneven|every rank"),
        misleading=(HANG_WRONG, r"firewall"),
    ),
    gang(
        "r-gang-hang-in-flock",
        """
import fcntl
with open("cache.lock", "w") as mine:
    if rank == 2:
        fcntl.flock(mine, fcntl.LOCK_EX)
        with open("cache.lock") as again:
            print("building the tokenised cache", flush=True)
            fcntl.flock(again, fcntl.LOCK_EX)
dist.barrier()
print("cache is there")
""",
        3,
        code="collective",
        rank=2,
        wanted=("flock", "did not", "hung", "stuck", "building the tokenised cache"),
        helpful=(r"flock|cache\.lock|lock", r"train\.py"),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-gang-hang-rank0-download-retries",
        """
def download(url):
    for attempt in range(1, 100):
        print(f"fetching {url}: attempt {attempt}: no answer, trying again", flush=True)
        time.sleep(1.5)

if rank == 0:
    download("https://models.example/bert-base.bin")
weights = torch.zeros(100)
dist.broadcast(weights, 0)
""",
        2,
        code="collective",
        rank=0,
        wanted=("did not", "hung", "time.sleep", "no answer, trying again", "stuck"),
        helpful=(r"train\.py", r"download|before the|timeout|attempt"),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-gang-monitored-barrier-queue",
        """
import queue
q = queue.Queue()
if rank == 1:
    print("waiting for the prefetcher", flush=True)
    q.get()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=4))
""",
        3,
        code="collective",
        rank=1,
        wanted=(
            "did not",
            "hung",
            "q.get()",
            "stuck",
            "waiting for the prefetcher",
            "Rank 1 failed to pass monitoredBarrier",
        ),
        helpful=(r"train\.py", r"queue|q\.get|prefetch"),
        misleading=(HANG_WRONG,),
    ),
    Failure(
        name="r-gang-late-to-rendezvous",
        code="rendezvous",
        convention="process",
        processes=3,
        rank=2,
        command="python train.py",
        files={
            "train.py": """import datetime, os, time
import torch.distributed as dist

def preprocess():
    for n in range(200):
        if n % 20 == 0:
            print(f"preprocessing chunk {n}/200", flush=True)
        time.sleep(0.1)

if os.environ["RANK"] == "2":
    preprocess()
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
dist.barrier()
"""
        },
        wanted=("did not", "preprocessing chunk", "not started", "2/3", "clients joined", "missing"),
        helpful=(r"train\.py", r"timeout=|preprocess|init_process_group|before"),
        misleading=(r"pip install|smaller batch|firewall",),
    ),
    Failure(
        name="r-gang-world-size-in-config",
        code="rendezvous",
        convention="process",
        processes=2,
        rank=None,
        command="python main.py",
        files={
            "conf.json": '{"world_size": 4, "backend": "gloo"}\n',
            "main.py": """import datetime, json, os
import torch.distributed as dist
conf = json.load(open("conf.json"))
dist.init_process_group(conf["backend"], rank=int(os.environ["RANK"]), world_size=conf["world_size"],
                        timeout=datetime.timedelta(seconds=5))
print("all here")
""",
        },
        wanted=("world_size", "world size", "2/4", "4 ranks", "clients joined"),
        helpful=(r"WORLD_SIZE|world_size|world size|main\.py|conf\.json|--procs",),
        misleading=(r"pip install|firewall|smaller batch",),
    ),
    Failure(
        name="r-gang-every-rank-says-zero",
        code="port_trouble",
        also_codes=("rendezvous", "exception"),
        convention="process",
        processes=2,
        rank=None,
        also=(0, 1),
        command="python main.py",
        files={
            "main.py": """import datetime, os
import torch.distributed as dist
rank = int(os.environ.get("SLURM_PROCID", 0))
dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=6))
dist.barrier()
"""
        },
        wanted=("EADDRINUSE", "address already in use", "1/2 clients joined"),
        helpful=(r"\bRANK\b|rank=", r"main\.py"),
        misleading=(r"pip install|firewall|smaller batch",),
    ),
    gang(
        "r-gang-ddp-unused-parameters",
        """
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x)

net = DDP(Net())
for step in range(3):
    net(torch.randn(2, 4)).sum().backward()
""",
        2,
        code="exception",
        rank=0,
        also=(1,),
        wanted="Expected to have finished reduction in the prior iteration before starting a new one",
        helpful=(r"find_unused_parameters", r"train\.py"),
    ),
    gang(
        "r-gang-ddp-one-rank-wider",
        """
from torch.nn.parallel import DistributedDataParallel as DDP
hidden = 64 if rank == 1 else 32
print(f"rank {rank} hidden={hidden}", flush=True)
net = DDP(torch.nn.Sequential(torch.nn.Linear(8, hidden), torch.nn.Linear(hidden, 2)))
net(torch.randn(2, 8)).sum().backward()
""",
        3,
        code="exception",
        also_codes=("collective",),
        rank=1,
        wanted="appears not to match sizes of the same param in process 0",
        helpful=(r"train\.py", r"same (model|shape|size)|hidden|rank 1"),
    ),
    gang(
        "r-gang-allreduce-sizes-differ",
        """
labels = torch.ones(12 if rank == 2 else 8)
print(f"rank {rank}: labels {tuple(labels.shape)}", flush=True)
dist.all_reduce(labels)
print(labels)
""",
        3,
        code="collective",
        also_codes=("exception",),
        rank=2,
        wanted=("(12,)", "Connection closed by peer", "shape"),
        helpful=(r"shape|size", r"train\.py"),
    ),
    gang(
        "r-gang-rank1-memory-limit",
        """
import resource
if rank == 1:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
cache = []
for n in range(8):
    cache.append(torch.zeros(64 if rank != 1 else 200_000_000 * n))
    dist.barrier()
""",
        2,
        code="host_oom",
        rank=1,
        wanted=("can't allocate memory", "not enough memory"),
        helpful=(r"memory|batch|train\.py",),
        misleading=(r"firewall|submit again|pip install",),
    ),
    gang(
        "r-gang-cgroup-kills-rank2",
        """
if rank == 2:
    group = f"/sys/fs/cgroup/memory/muster-case-{os.getpid()}"
    os.mkdir(group)
    open(group + "/memory.limit_in_bytes", "w").write(str(300 << 20))
    open(group + "/cgroup.procs", "w").write(str(os.getpid()))
features = []
for step in range(40):
    if rank == 2:
        features.append(torch.ones(5_000_000))
    t = torch.ones(1)
    dist.all_reduce(t)
    if rank == 0:
        print("step", step, flush=True)
""",
        3,
        code="host_oom",
        also_codes=("signal",),
        rank=2,
        wanted=("memory", "SIGKILL", "Killed"),
        helpful=(r"memory|batch|workers",),
        misleading=(r"firewall|pip install",),
    ),
    gang(
        "r-gang-rank3-killed-by-watchdog",
        """
import subprocess
if rank == 3:
    subprocess.Popen(["sh", "-c", f"sleep 0.7; kill -9 {os.getpid()}"])
for step in range(100):
    t = torch.ones(1)
    dist.all_reduce(t)
    time.sleep(0.05)
""",
        4,
        code="signal",
        rank=3,
        wanted=("SIGKILL", "signal 9"),
        helpful=(r"SIGKILL|outside|sent|kill|dmesg",),
    ),
    gang(
        "r-gang-rank0-segfault",
        """
import ctypes
x = torch.arange(10, dtype=torch.float64)
dist.all_reduce(x)
if rank == 0:
    libc = ctypes.CDLL("libc.so.6")
    libc.strlen(ctypes.c_void_p(16))
dist.barrier()
""",
        3,
        code="signal",
        rank=0,
        wanted=("SIGSEGV", "signal 11", "Segmentation fault"),
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes|train\.py",),
    ),
    gang(
        "r-gang-rank1-abort",
        """
t = torch.ones(2)
dist.all_reduce(t)
if rank == 1:
    print("fatal: corrupted work queue, aborting", flush=True)
    os.abort()
dist.barrier()
""",
        2,
        code="signal",
        rank=1,
        wanted=("SIGABRT", "signal 6", "fatal: corrupted work queue, aborting"),
        helpful=(r"PYTHONFAULTHANDLER|native|abort|train\.py",),
    ),
    gang(
        "r-gang-rank1-os-exit-7",
        """
dist.barrier()
if rank == 1:
    print("license server refused the seat for this host", flush=True)
    os._exit(7)
t = torch.ones(1)
dist.all_reduce(t)
""",
        3,
        code="exit_code",
        rank=1,
        wanted="license server refused the seat for this host",
        helpful=(r"licen[sc]e|train\.py|os\._exit",),
    ),
    gang(
        "r-gang-rank2-exit-with-text",
        """
import hashlib
vocab = ["a", "b", "c"] if rank != 2 else ["a", "b"]
digest = hashlib.md5(" ".join(vocab).encode()).hexdigest()[:8]
all_ = [None] * world
dist.all_gather_object(all_, digest)
if digest != all_[0]:
    sys.exit(f"vocabulary {digest} differs from the one of rank 0 ({all_[0]}): rebuild vocab.txt")
t = torch.ones(1)
dist.all_reduce(t)
""",
        3,
        code="exit_code",
        rank=2,
        wanted="rebuild vocab.txt",
        helpful=(r"vocab|train\.py",),
    ),
    gang(
        "r-gang-error-flag-shared",
        """
import logging
logging.basicConfig(level=logging.INFO, format=f"[%(levelname)s r{rank}] %(message)s")
ok = torch.ones(1)
try:
    record = {"image": "a.png"}
    if rank == 1:
        record["label"]
except Exception:
    logging.exception("could not read a sample")
    ok.zero_()
dist.all_reduce(ok, op=dist.ReduceOp.MIN)
if not ok.item():
    raise RuntimeError("at least one rank failed while reading data, see its log")
""",
        3,
        code="exception",
        rank=1,
        wanted="KeyError: 'label'",
        helpful=(r"train\.py", r"label"),
    ),
    gang(
        "r-gang-guilty-cleans-up-slowly",
        """
import traceback
try:
    for step in range(10):
        t = torch.ones(1)
        dist.all_reduce(t)
        if rank == 0 and step == 3:
            schedule = [0.1, 0.01, 0.001]
            print("lr", schedule[step])
except IndexError:
    traceback.print_exc()
    dist.destroy_process_group()
    print("uploading what there is ...", flush=True)
    time.sleep(5)
    sys.exit(1)
""",
        3,
        code="exception",
        rank=0,
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py", r"schedule"),
    ),
    gang(
        "r-gang-two-bad-shards",
        """
import json
text = '{"x": 1}' if rank % 2 == 0 else '{"x": 1'
dist.barrier()
row = json.loads(text)
t = torch.tensor(row["x"])
dist.all_reduce(t)
""",
        4,
        code="exception",
        rank=1,
        also=(3,),
        wanted="json.decoder.JSONDecodeError: Expecting ',' delimiter",
        helpful=(r"train\.py|json",),
    ),
    Failure(
        name="r-gang-own-server-takes-fixed-port",
        code="port_trouble",
        also_codes=("rendezvous",),
        convention="process",
        processes=2,
        rank=0,
        also=(1,),
        command="python train.py",
        files={
            "train.py": """import datetime, os, socket
import torch.distributed as dist
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29817"
if os.environ["RANK"] == "0":
    metrics = socket.create_server(("0.0.0.0", 29817))
    print("metrics on :29817", flush=True)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
"""
        },
        wanted=("29817", "EADDRINUSE", "address already in use"),
        helpful=(r"29817|MASTER_PORT|train\.py",),
        misleading=(r"pip install|firewall|smaller batch",),
    ),
    gang(
        "r-gang-old-checkpoint",
        """
if rank == 0:
    torch.save(torch.nn.Sequential(torch.nn.Linear(16, 10)).state_dict(), "last.pt")
dist.barrier()
net = torch.nn.Sequential(torch.nn.Linear(16, 100))
net.load_state_dict(torch.load("last.pt"))
dist.barrier()
""",
        2,
        code="exception",
        rank=0,
        also=(1,),
        wanted=("size mismatch for 0.weight", "Error(s) in loading state_dict for Sequential"),
        helpful=(r"train\.py|last\.pt|checkpoint|strict|num_classes|model",),
    ),
    gang(
        "r-gang-rank0-readonly-output",
        """
import pathlib
pathlib.Path("out/x").parent.mkdir(exist_ok=True)
t = torch.ones(4)
dist.all_reduce(t)
if rank == 0:
    torch.save(t, "out/model.pt")
dist.barrier()
""",
        2,
        code="exception",
        also_codes=("data_unavailable",),
        rank=0,
        command="""unshare -m sh -c 'mkdir -p out; [ "$RANK" != 0 ] || mount -t tmpfs -o ro none out; exec python train.py'""",
        wanted=("Read-only file system", "File out/model.pt cannot be opened"),
        helpful=(r"read-only|out/model\.pt|\bout\b|train\.py|writ",),
        misleading=(r"pip install|firewall|muster rm",),
    ),
    gang(
        "r-gang-rank1-scratch-full",
        """
import numpy as np
t = torch.ones(1)
for n in range(6):
    np.save(f"scratch/{rank}-{n}.npy", np.zeros(100_000 * (1 + 4 * rank)))
    dist.all_reduce(t)
print("done")
""",
        2,
        code="disk_full",
        also_codes=("exception",),
        rank=1,
        command="mkdir -p scratch; unshare -m sh -c 'mount -t tmpfs -o size=6m none scratch; exec python train.py'",
        wanted=("500000 requested and", "No space left on device"),
        helpful=(r"disk|space|scratch",),
    ),
    gang(
        "r-gang-loader-worker-raises",
        """
from torch.utils.data import DataLoader, Dataset

class Boxes(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        if rank == 2 and i == 9:
            raise ValueError(f"box of item {i} has negative width: [10, 4, 3, 9]")
        return torch.tensor(float(i))

for batch in DataLoader(Boxes(), batch_size=4, num_workers=1):
    dist.all_reduce(batch)
""",
        3,
        code="exception",
        rank=2,
        wanted="ValueError: box of item 9 has negative width",
        helpful=(r"train\.py|item 9|box",),
    ),
    gang(
        "r-gang-loader-worker-killed",
        """
import signal
from torch.utils.data import DataLoader, Dataset

class Clips(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        if rank == 1 and i == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(float(i))

for batch in DataLoader(Clips(), batch_size=4, num_workers=1):
    dist.all_reduce(batch)
""",
        2,
        code="exception",
        also_codes=("signal", "host_oom"),
        rank=1,
        wanted=("is killed by signal: Killed", "exited unexpectedly"),
        helpful=(r"num_workers|worker|memory|train\.py",),
        misleading=(r"firewall|pip install",),
    ),
    gang(
        "r-gang-both-receive",
        """
other = 1 - rank
t = torch.zeros(4)
dist.recv(t, src=other)
dist.send(torch.ones(4), dst=other)
""",
        2,
        code="collective",
        rank=None,
        wanted=("Timed out waiting 6000ms for recv operation", "dist.recv"),
        helpful=(r"recv|send|train\.py",),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-gang-calls-in-another-order",
        """
x, y = torch.ones(64), torch.ones(64)
dist.all_reduce(x)
if rank == 1:
    dist.barrier()
    dist.broadcast(y, 1)
else:
    for _ in range(2):
        dist.broadcast(y, 0)
dist.all_reduce(x)
""",
        3,
        code="collective",
        also_codes=("exception",),
        rank=1,
        wanted=("Timed out waiting 6000ms", "dist.barrier"),
        helpful=(r"train\.py|order|barrier|broadcast",),
        misleading=(HANG_WRONG,),
    ),
    Failure(
        name="r-gang-limit-one-rank-spins",
        code="timeout",
        convention="process",
        processes=3,
        rank=2,
        limit_s=9,
        command="python train.py",
        files={
            "train.py": """import os
import torch, torch.distributed as dist

def find_split(n):
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        low = middle
    return low

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    find_split(9)
t = torch.ones(1)
dist.all_reduce(t)
"""
        },
        wanted=("find_split", "time limit", "limit"),
        helpful=(r"train\.py|find_split|while",),
        misleading=(r"pip install|firewall|smaller batch",),
    ),
    Failure(
        name="r-gang-limit-all-at-work",
        code="timeout",
        convention="process",
        processes=2,
        rank=None,
        also=(0, 1),
        limit_s=8,
        command="python train.py",
        files={
            "train.py": """import time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1000):
    t = torch.ones(1)
    time.sleep(0.3)
    dist.all_reduce(t)
    print(f"[rank {dist.get_rank()}] step {step}/1000", flush=True)
"""
        },
        wanted=("time limit", "limit", "8 s"),
        helpful=(r"limits\.timeout|--timeout|checkpoint|limit",),
        misleading=(r"pip install|firewall|deadlock",),
    ),
    Failure(
        name="r-gang-data-root-not-set",
        code="exception",
        convention="process",
        processes=2,
        rank=0,
        also=(1,),
        command="python train.py",
        files={
            "train.py": """import os
import torch.distributed as dist
dist.init_process_group("gloo")
root = os.environ["IMAGENET_ROOT"]
print(os.listdir(root))
"""
        },
        wanted="KeyError: 'IMAGENET_ROOT'",
        helpful=(r"IMAGENET_ROOT",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-gang-second-node-lacks-library",
        code="environment",
        convention="process",
        processes=4,
        nodes=2,
        rank=2,
        also=(3,),
        command="PYTHONPATH=$PWD/libs/node$NODE_RANK python train.py",
        files={
            "libs/node0/fastops.py": "def mean(t):\n    return t / 4\n",
            "libs/node1/readme.txt": "nothing here\n",
            "train.py": """import torch, torch.distributed as dist
dist.init_process_group("gloo")
import fastops
t = torch.ones(1)
dist.all_reduce(t)
print(fastops.mean(t))
""",
        },
        wanted="ModuleNotFoundError: No module named 'fastops'",
        helpful=(r"fastops",),
        misleading=(r"firewall|smaller batch",),
    ),
    Failure(
        name="r-gang-nccl-without-gpus",
        code="exception",
        also_codes=("environment",),
        convention="process",
        processes=2,
        rank=0,
        also=(1,),
        command="python train.py",
        files={
            "train.py": """import torch, torch.distributed as dist
dist.init_process_group(backend="nccl")
dist.barrier()
"""
        },
        wanted="Distributed package doesn't have NCCL built in",
        helpful=(r"gloo|--compute|GPU",),
        misleading=(r"firewall|smaller batch",),
    ),
    gang(
        "r-gang-lock-in-object",
        """
import threading
state = {"step": 3, "meter": threading.Lock() if rank == 1 else None}
out = [None] * world
dist.all_gather_object(out, state)
""",
        3,
        code="exception",
        rank=1,
        wanted="cannot pickle '_thread.lock' object",
        helpful=(r"train\.py|pickle|lock|meter",),
    ),
    gang(
        "r-gang-all-assert-one-differs",
        """
steps = torch.tensor([10 if rank != 2 else 9])
every = [torch.zeros_like(steps) for _ in range(world)]
dist.all_gather(every, steps)
counts = [int(t) for t in every]
for r, n in enumerate(counts):
    assert n == 10, f"rank {r} made {n} steps, the plan says 10: {counts}"
""",
        3,
        code="exception",
        rank=2,
        wanted="AssertionError: rank 2 made 9 steps, the plan says 10",
        helpful=(r"train\.py|rank 2|steps",),
    ),
    gang(
        "r-gang-store-key-never-set",
        """
import subprocess
store = dist.distributed_c10d._get_default_store()
store.set_timeout(datetime.timedelta(seconds=4))
if rank == 1:
    subprocess.run(["sleep", "40"])
    store.set("index-ready", "1")
else:
    print("waiting for the index of rank 1", flush=True)
    store.wait(["index-ready"])
""",
        3,
        code="collective",
        also_codes=("rendezvous",),
        rank=1,
        wanted=("did not", "sleep", "hung", "subprocess.run", "stuck", "index-ready"),
        helpful=(r"train\.py|subprocess|index-ready|sleep",),
        misleading=(HANG_WRONG,),
    ),
    Failure(
        name="r-gang-interface-not-there",
        code="bad_input",
        also_codes=("exception", "rendezvous"),
        convention="process",
        processes=2,
        rank=None,
        also=(0, 1),
        variables={"GLOO_SOCKET_IFNAME": "ib0"},
        command="python train.py",
        files={
            "train.py": "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\nprint('up')\n"
        },
        wanted=("ib0",),
        helpful=(r"GLOO_SOCKET_IFNAME|interface|ib0",),
        misleading=(r"pip install|smaller batch",),
    ),
    gang(
        "r-gang-latin1-shard",
        """
from pathlib import Path
text = "Zürich;12\\nGenève;9\\n"
Path(f"cities-{rank}.csv").write_bytes(text.encode("latin-1" if rank == 1 else "utf-8"))
rows = Path(f"cities-{rank}.csv").read_text(encoding="utf-8").splitlines()
t = torch.tensor(len(rows))
dist.all_reduce(t)
""",
        2,
        code="exception",
        rank=1,
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xfc in position 1",
        helpful=(r"encoding|latin|utf-8|cities-1|train\.py",),
    ),
    Failure(
        name="r-gang-master-name-unknown",
        code="rendezvous",
        convention="process",
        processes=2,
        rank=None,
        also=(0, 1),
        variables={"MASTER_ADDR": "trainer-0.train.invalid"},
        command="python train.py",
        files={
            "train.py": """import datetime
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
"""
        },
        wanted=("trainer-0.train.invalid",),
        helpful=(r"MASTER_ADDR|trainer-0|name|DNS|resolve",),
        misleading=(r"pip install|smaller batch",),
    ),
    gang(
        "r-gang-rank2-sigterm-from-script",
        """
import signal
t = torch.ones(1)
for step in range(50):
    dist.all_reduce(t)
    if rank == 2 and step == 5:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)
""",
        3,
        code="signal",
        rank=2,
        wanted=("SIGTERM", "signal 15"),
        helpful=(r"SIGTERM|outside|sent|signal",),
    ),
    gang(
        "r-gang-caught-errors-then-real",
        """
import logging
for n in range(3):
    try:
        int("n/a" if rank != 1 else "--")
    except ValueError:
        logging.exception("row %d skipped", n)
dist.barrier()
if rank == 1:
    weights = torch.randn(3, 4) @ torch.randn(5, 2)
dist.barrier()
""",
        3,
        code="exception",
        rank=1,
        wanted="mat1 and mat2 shapes cannot be multiplied (3x4 and 5x2)",
        helpful=(r"train\.py|shape",),
    ),
    gang(
        "r-gang-rank1-thread-dies-then-hangs",
        """
import queue, threading
q = queue.Queue(maxsize=2)

def produce():
    for i in range(10):
        if rank == 1 and i == 4:
            raise OSError(f"record {i} of train.rec has a wrong checksum")
        q.put(i)

threading.Thread(target=produce, daemon=True).start()
for _ in range(10):
    t = torch.tensor(q.get())
    dist.all_reduce(t)
print("epoch done")
""",
        3,
        code="exception",
        also_codes=("collective",),
        rank=1,
        wanted="OSError: record 4 of train.rec has a wrong checksum",
        helpful=(r"train\.py|train\.rec|checksum|record 4",),
    ),
    gang(
        "r-gang-batch-too-small-for-last-rank",
        """
data = torch.arange(10).float()
chunks = data.split(4)
mine = chunks[rank]
bn = torch.nn.BatchNorm1d(1)
x = mine.view(-1, 1)[: 1 if rank == 2 else None]
y = bn(x)
dist.all_reduce(y.sum())
""",
        3,
        code="exception",
        rank=2,
        wanted="Expected more than 1 value per channel when training",
        helpful=(r"train\.py|drop_last|batch",),
        misleading=(r"firewall|submit again|pip install|smaller batch",),
    ),
]
