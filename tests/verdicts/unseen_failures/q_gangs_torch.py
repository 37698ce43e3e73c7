"""Ranks that Muster starts itself, with torch.distributed over gloo."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|submit again|pip install"
INIT = """import os, sys, time, datetime
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=SECONDS))
"""


def script(body: str, seconds: float = 6) -> dict[str, str]:
    return {"train.py": INIT.replace("SECONDS", f"{seconds:g}") + body}


FAILURES = [
    Failure(
        name="q-gang-one-rank-shape",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files=script("""
net = torch.nn.Linear(8, 4)
for step in range(5):
    x = torch.randn(4, 8 if not (rank == 2 and step == 3) else 7)
    loss = net(x).sum()
    dist.all_reduce(loss.detach())
    print(f"rank {rank} step {step}", flush=True)
"""),
        wanted="RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x4)",
        helpful=(r"train\.py", r"4x7|8x4"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-gang-all-ranks-same-typo",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command="python train.py",
        rank=0,
        also=(1, 2, 3),
        files=script("""
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), learning_rate=0.1)
"""),
        wanted="SGD.__init__() got an unexpected keyword argument 'learning_rate'",
        helpful=(r"train\.py", r"\blr\b", r"learning_rate"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-gang-rank-segv",
        code="signal",
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        files=script("""
import ctypes
t = torch.ones(4)
for step in range(10):
    dist.all_reduce(t)
    if rank == 1 and step == 4:
        ctypes.string_at(0)
"""),
        wanted=("SIGSEGV", "Segmentation fault"),
        helpful=(r"PYTHONFAULTHANDLER", r"native|extension|ctypes"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-gang-early-exit-zero",
        code="collective",
        convention="process",
        processes=4,
        command="python train.py",
        rank=3,
        files=script(
            """
t = torch.ones(2)
for step in range(20):
    if rank == 3 and step == 5:
        print("nothing left to do, leaving")
        sys.exit(0)
    dist.all_reduce(t)
    time.sleep(0.02)
""",
            8,
        ),
        wanted=(
            "nothing left to do, leaving",
            "code 0",
            "had exited",
            "had ended",
            "had finished",
            "ended early",
            "exited early",
        ),
        helpful=(r"rank 3", r"same number", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-uneven-batches",
        code="collective",
        convention="process",
        processes=2,
        command="python train.py",
        rank=1,
        files=script("""
from torch.nn.parallel import DistributedDataParallel as DDP
data = list(range(10 if rank == 0 else 7))
model = DDP(torch.nn.Linear(1, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for i, d in enumerate(data):
    loss = model(torch.tensor([[float(d)]])).sum()
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(f"[{rank}] batch {i + 1}/{len(data)}", flush=True)
print(f"[{rank}] done", flush=True)
"""),
        wanted=("[1] done", "code 0", "had exited", "had ended", "had finished", "ended early", "exited early"),
        helpful=(r"same number|DistributedSampler|drop_last|[Jj]oin", r"rank 1"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-uneven-batches-others-wait",
        code="collective",
        convention="process",
        processes=3,
        command="python train.py",
        rank=0,
        files=script(
            """
n = {0: 3, 1: 5, 2: 5}[rank]
t = torch.ones(1)
for i in range(n):
    dist.all_reduce(t)
print("rank", rank, "finished", n, "iterations", flush=True)
if rank == 0:
    time.sleep(60)   # writes the report
dist.barrier()
""",
            3,
        ),
        wanted=("did not", "hung", "time.sleep", "stuck", "was in"),
        helpful=(r"rank 0", r"train\.py", r"time\.sleep"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-hang-in-lock-six",
        code="collective",
        convention="process",
        processes=6,
        nodes=2,
        command="python train.py",
        rank=4,
        files=script(
            """
import threading
lock = threading.Lock()

def save():
    with lock:
        with lock:
            print("never")

t = torch.zeros(1)
dist.all_reduce(t)
if rank == 4:
    save()
dist.all_reduce(t)
""",
            4,
        ),
        wanted=("did not", "hung", "stuck", "with lock", "was in"),
        helpful=(r"rank 4", r"train\.py", r"lock"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-monitored-barrier-late",
        code="collective",
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        files=script(
            """
if rank == 1:
    deadline = time.time() + 30
    while time.time() < deadline:
        sum(range(1000))
dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
""",
            20,
        ),
        wanted=("Rank 1 failed to pass monitoredBarrier", "did not", "hung", "was in"),
        helpful=(r"rank 1", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-rendezvous-one-late",
        code="rendezvous",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files={
            "train.py": """import os, time, datetime
import torch.distributed as dist
rank = int(os.environ["RANK"])
if rank == 2:
    print("unpacking the archive", flush=True)
    time.sleep(60)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
print("ready")
"""
        },
        wanted=("did not", "late", "time.sleep", "was not", "clients joined"),
        helpful=(r"rank 2", r"timeout", r"train\.py"),
        misleading=(r"firewall|smaller batch|out of memory|submit again",),
    ),
    Failure(
        name="q-gang-world-size-fixed-in-script",
        code="rendezvous",
        convention="process",
        processes=2,
        command="python train.py",
        rank=None,
        also=(),
        files={
            "train.py": """import os, datetime
import torch.distributed as dist
dist.init_process_group(
    "gloo", init_method="env://", world_size=4, rank=int(os.environ["RANK"]),
    timeout=datetime.timedelta(seconds=3),
)
print("ready")
"""
        },
        wanted=("2/4 clients joined", "world_size", "world size"),
        helpful=(r"world_size|WORLD_SIZE|world size", r"train\.py"),
        misleading=(r"firewall|smaller batch|out of memory|submit again",),
    ),
    Failure(
        name="q-gang-master-addr-wrong",
        code="rendezvous",
        convention="process",
        processes=2,
        command="python train.py",
        rank=None,
        also=(0, 1),
        variables={"MASTER_ADDR": "trainer-head.invalid"},
        files={
            "train.py": """import datetime
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
"""
        },
        wanted=("trainer-head.invalid",),
        helpful=(r"MASTER_ADDR", r"trainer-head"),
        misleading=(r"smaller batch|out of memory|pip install|raise .{0,20}timeout",),
    ),
    Failure(
        name="q-gang-fixed-port-taken",
        code="port_trouble",
        convention="process",
        processes=2,
        command="if [ $RANK = 0 ]; then python blocker.py & sleep 0.6; fi; python train.py",
        rank=0,
        files={
            "blocker.py": """import socket, time
s = socket.socket()
s.bind(("0.0.0.0", 23457))
s.listen()
time.sleep(9)
""",
            "train.py": """import os, datetime
import torch.distributed as dist
os.environ["MASTER_PORT"] = "23457"
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
""",
        },
        wanted=("EADDRINUSE", "address already in use", "23457"),
        helpful=(r"23457", r"MASTER_PORT"),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-gang-duplicate-rank",
        code="rendezvous",
        also_codes=("port_trouble", "exception"),
        convention="process",
        processes=3,
        command="python train.py",
        rank=0,
        also=(2,),
        files={
            "train.py": """import os, datetime
import torch, torch.distributed as dist
rank = int(os.environ["RANK"]) % 2
dist.init_process_group("gloo", rank=rank, world_size=3, timeout=datetime.timedelta(seconds=4))
dist.barrier()
"""
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"train\.py", r"RANK|rank"),
        misleading=(r"firewall|smaller batch|out of memory|pip install|submit again",),
    ),
    Failure(
        name="q-gang-nccl-no-gpu",
        code="exception",
        convention="process",
        processes=2,
        command="python train.py",
        rank=0,
        also=(1,),
        files={
            "train.py": """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group(backend="nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = DDP(torch.nn.Linear(10, 10).cuda(local), device_ids=[local])
"""
        },
        wanted="Distributed package doesn't have NCCL built in",
        helpful=(r"gloo", r"GPU"),
        misleading=(r"firewall|smaller batch|out of memory|submit again|NCCL_DEBUG",),
    ),
    Failure(
        name="q-gang-mismatched-sizes",
        code="collective",
        also_codes=("exception", "signal"),
        convention="process",
        processes=2,
        command="python train.py",
        rank=0,
        also=(1,),
        files=script(
            """
import numpy as np
vocab = 100 + rank
emb = torch.zeros(vocab, 16)
dist.all_reduce(emb)
print("synced", emb.shape)
""",
            5,
        ),
        wanted=("op.preamble.length <= op.nbytes",),
        helpful=(r"shape|size", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-gather-object-bad-pickle",
        code="exception",
        convention="process",
        processes=2,
        command="python train.py",
        rank=1,
        files=script("""
stats = {"n": 1}
if rank == 1:
    stats["hook"] = lambda x: x
out = [None] * world
dist.all_gather_object(out, stats)
print(out)
"""),
        wanted=("Can't pickle", "Can't get local object", "PicklingError"),
        helpful=(r"train\.py", r"lambda"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-ddp-unused-parameters",
        code="exception",
        convention="process",
        processes=2,
        command="python train.py",
        rank=0,
        also=(1,),
        files=script("""
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.aux = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x)
m = DDP(Net())
for i in range(3):
    m(torch.randn(2, 4)).sum().backward()
    print("iteration", i, flush=True)
"""),
        wanted="Expected to have finished reduction in the prior iteration before starting a new one",
        helpful=(r"find_unused_parameters", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-rank0-only-save-fails",
        code="exception",
        convention="process",
        processes=4,
        command="python train.py",
        rank=0,
        files=script("""
model = torch.nn.Linear(2, 2)
if rank == 0:
    torch.save(model.state_dict(), "checkpoints/epoch_0001/model.pt")
dist.barrier()
print("saved", flush=True)
"""),
        wanted=("Parent directory checkpoints/epoch_0001 does not exist",),
        helpful=(r"makedirs|mkdir|checkpoints", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-error-flag-all-raise",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        files=script("""
flag = torch.zeros(1)
err = None
try:
    if rank == 1:
        rows = open("part-1.csv").read().split()
except Exception as e:
    import traceback
    traceback.print_exc()
    flag[0] = 1
dist.all_reduce(flag)
if flag.item() > 0:
    raise RuntimeError("a rank reported a failure while loading; stopping everywhere")
"""),
        also_codes=("data_unavailable",),
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'part-1.csv'",
        helpful=(r"part-1\.csv", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-rank-sigkill",
        code="signal",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files=script("""
import signal
t = torch.ones(1)
for i in range(8):
    dist.all_reduce(t)
    if rank == 2 and i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""),
        wanted=("SIGKILL", "signal 9", "Killed"),
        helpful=(r"dmesg|kill", r"memory"),
        misleading=(r"firewall|interface|pip install",),
    ),
    Failure(
        name="q-gang-memory-one-rank",
        code="host_oom",
        also_codes=("exception",),
        convention="process",
        processes=2,
        command='if [ "$RANK" = 1 ]; then ulimit -v 6000000; fi; python train.py',
        rank=1,
        files=script("""
buf = []
t = torch.ones(1)
for i in range(40):
    dist.all_reduce(t)
    if rank == 1:
        buf.append(torch.empty(256 * 1024 * 1024, dtype=torch.uint8))
"""),
        wanted=("DefaultCPUAllocator: can't allocate memory", "not enough memory: you tried to allocate"),
        helpful=(r"smaller|fewer|memory", r"train\.py"),
        misleading=(r"firewall|interface|pip install",),
    ),
    Failure(
        name="q-gang-timeout-rank-stuck",
        code="timeout",
        also_codes=("collective",),
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        limit_s=12,
        files=script(
            """
import socket
t = torch.ones(1)
dist.all_reduce(t)
if rank == 2:
    s = socket.create_server(("127.0.0.1", 0))
    conn, _ = s.accept()
dist.all_reduce(t)
""",
            300,
        ),
        wanted=("accept", "did not", "waited", "stuck", "was in"),
        helpful=(r"rank 2", r"train\.py", r"accept"),
        misleading=(r"^raise limits|smaller batch|pip install",),
    ),
    Failure(
        name="q-gang-timeout-all-working",
        code="timeout",
        convention="process",
        processes=2,
        command="python train.py",
        rank=None,
        also=(),
        limit_s=10,
        files=script(
            """
t = torch.ones(1000)
step = 0
while True:
    dist.all_reduce(t)
    t /= world
    step += 1
    if rank == 0 and step % 100 == 0:
        print(f"step {step} of 1000000", flush=True)
    time.sleep(0.01)
""",
            60,
        ),
        wanted=("10 s", "time limit", "limits.timeout", "timeout"),
        helpful=(r"limits\.timeout|--timeout|longer|raise",),
        misleading=(r"firewall|interface|pip install|hung|stuck",),
    ),
    Failure(
        name="q-gang-caught-peer-error-exit",
        code="exception",
        convention="process",
        processes=4,
        command="python train.py",
        rank=3,
        files=script("""
import logging
logging.basicConfig(format=f"%(asctime)s rank{rank} %(levelname)s %(message)s", level="INFO")
labels = torch.tensor([0, 1, 2, 9 if rank == 3 else 1])
try:
    for i in range(3):
        loss = torch.nn.functional.cross_entropy(torch.randn(4, 5), labels)
        dist.all_reduce(loss)
except RuntimeError as e:
    logging.error("lost the group: %s", e)
    sys.exit(17)
"""),
        wanted="IndexError: Target 9 is out of bounds",
        helpful=(r"train\.py", r"label|class|Target"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-gang-collectives-in-other-order",
        code="collective",
        convention="process",
        processes=3,
        command="python train.py",
        rank=None,
        also=(1, 2, 0),
        files=script(
            """
t = torch.zeros(3)
if rank == 0:
    dist.broadcast(t, src=0)
    dist.barrier()
else:
    dist.barrier()
    dist.broadcast(t, src=0)
dist.barrier()
dist.all_reduce(t)
if rank == 0:
    dist.reduce(t, dst=0)
dist.barrier()
print("end")
""",
            3,
        ),
        wanted=("Timed out waiting 3000ms", "Connection closed by peer"),
        helpful=(r"same (order|collectives|calls)", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
]
