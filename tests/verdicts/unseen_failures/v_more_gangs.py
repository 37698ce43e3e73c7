"""More gangs with torch: the everyday errors of a project's first week, gangs of eight, gangs over two nodes."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=4)
Nodes = partial(Failure, convention="process", processes=4, nodes=2)
TR = partial(Failure, convention="torchrun", processes=1)

FAILURES = [
    Gang(
        name="v-more-module-prefix",
        way="a checkpoint saved without the prefix of DDP is loaded into the wrapped model",
        code="exception",
        rank=0,
        also=(1,),
        processes=2,
        command="python resume.py --ckpt last.pth",
        files={
            "resume.py": """import argparse, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
p = argparse.ArgumentParser(); p.add_argument("--ckpt"); a = p.parse_args()
dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
if dist.get_rank() == 0:
    torch.save(net.state_dict(), a.ckpt)
dist.barrier()
net = DDP(net)
net.load_state_dict(torch.load(a.ckpt))
print("resumed from", a.ckpt)
"""
        },
        wanted=('Missing key(s) in state_dict: "module.0.weight"',),
        helpful=(r"module\.|prefix|\.module|resume\.py|checkpoint|last\.pth",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-more-weights-only",
        way="torch.load refuses an old checkpoint with a pickled class, on all ranks",
        code="exception",
        rank=0,
        also=(1, 2, 3),
        command="python -u eval.py",
        files={
            "eval.py": """import argparse, os, time
import torch
import torch.distributed as dist

class Config:
    def __init__(self):
        self.width = 64

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    torch.save({"config": Config(), "w": torch.zeros(3)}, "model_2023.pt")
dist.barrier()
print("Loading checkpoint model_2023.pt")
ckpt = torch.load("model_2023.pt", map_location="cpu")
print("width", ckpt["config"].width)
"""
        },
        wanted=("Weights only load failed", "Unsupported global: GLOBAL __main__.Config"),
        helpful=(r"weights_only|safe_globals|eval\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-more-ddp-hides-method",
        way="a method of the model is called on its DDP wrapper in the validation of rank 0",
        code="exception",
        rank=0,
        processes=3,
        command="python -u contrastive.py",
        files={
            "contrastive.py": """import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(6, 3)
    def forward(self, x):
        return self.f(x)
    @torch.no_grad()
    def encode(self, x):
        return nn.functional.normalize(self(x))

dist.init_process_group("gloo")
model = DistributedDataParallel(Encoder())
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for _ in range(3):
        loss = model(torch.randn(5, 6)).pow(2).sum()
        opt.zero_grad(); loss.backward(); opt.step()
    if dist.get_rank() == 0:
        z = model.encode(torch.randn(5, 6))
        print(f"epoch {epoch} spread {z.std():.3f}")
    dist.barrier()
"""
        },
        wanted="'DistributedDataParallel' object has no attribute 'encode'",
        helpful=(r"\.module|contrastive\.py|encode",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-more-double-float",
        way="numpy's doubles meet the model's floats, in one rank's special shard",
        code="exception",
        rank=5,
        processes=6,
        command="python regress.py",
        files={
            "regress.py": """import os, numpy as np
import torch
import torch.distributed as dist
dist.init_process_group('gloo')
r = dist.get_rank()
lin = torch.nn.Linear(3, 1)
x = np.random.rand(10, 3).astype('float32')
if r == 5:
    x = np.vstack([x, [[0.5, 0.5, 0.5]]])     # the row that was appended by hand is double
pred = lin(torch.from_numpy(x))
s = pred.sum().detach()
dist.all_reduce(s)
print(r, s.item())
"""
        },
        wanted=("mat1 and mat2 must have the same dtype, but got Double and Float",),
        helpful=(r"dtype|float|double|regress\.py",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-more-pipeline-both-receive",
        way="both stages of a pipeline receive before they send; the limit passes",
        code="timeout",
        also_codes=("collective",),
        rank=None,
        also=(0, 1),
        processes=2,
        limit_s=75,
        command="python -u pipe.py",
        files={
            "pipe.py": """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
stage = dist.get_rank()
peer = 1 - stage
act = torch.zeros(4, 16)
for micro in range(3):
    print(f"stage {stage}: micro batch {micro}: waiting for activations of stage {peer}")
    dist.recv(act, src=peer)
    dist.send(act * 2, dst=peer)
print(f"stage {stage}: done")
"""
        },
        wanted=("waiting for activations of stage", "dist.recv(act, src=peer)", "recv"),
        helpful=(r"pipe\.py|recv|send|order|deadlock",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-more-pipeline-recv-shape",
        way="stage 1 of a pipeline expects activations of another width",
        code="exception",
        also_codes=("collective", "signal"),
        rank=1,
        also=(0,),
        processes=2,
        command="python stages.py",
        files={
            "stages.py": """import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
stage = dist.get_rank()
HIDDEN = {0: 64, 1: 32}
for micro in range(4):
    if stage == 0:
        act = torch.randn(8, HIDDEN[0])
        dist.send(act, dst=1)
        print("stage 0 sent micro batch", micro, tuple(act.shape), flush=True)
    else:
        act = torch.empty(8, HIDDEN[1])
        dist.recv(act, src=0)
        print("stage 1 received", micro, tuple(act.shape), flush=True)
dist.barrier()
"""
        },
        wanted=("op.preamble.length <= op.nbytes", "preamble.length"),
        helpful=(r"stages\.py|shape|size|HIDDEN|recv",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Nodes(
        name="v-more-nodes-no-dataset-on-second",
        way="the data set lies on the first node only; both ranks of the second miss it",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        rank=2,
        also=(3,),
        command="python train.py --data local_data_$NODE_RANK",
        files={
            "local_data_0/train.txt": "1\n2\n",
            "train.py": """import argparse, os
import torch.distributed as dist
ap = argparse.ArgumentParser(); ap.add_argument("--data"); a = ap.parse_args()
dist.init_process_group("gloo")
print(f"node {os.environ['NODE_RANK']} rank {dist.get_rank()}: {os.listdir(a.data)}", flush=True)
dist.barrier()
for e in range(100):
    dist.barrier()
    import time; time.sleep(0.1)
""",
        },
        wanted="No such file or directory: 'local_data_1'",
        helpful=(r"local_data_1|--data|node-1|second node|download|copy|mount",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Nodes(
        name="v-more-nodes-interface-name",
        way="GLOO_SOCKET_IFNAME names an interface of other machines",
        code="bad_input",
        also_codes=("rendezvous", "collective", "exception"),
        rank=0,
        also=(1, 2, 3),
        variables={"GLOO_SOCKET_IFNAME": "enp94s0f1"},
        command="python train.py",
        files={
            "train.py": """import datetime
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
dist.barrier()
"""
        },
        wanted=("enp94s0f1", "Unable to find address for"),
        helpful=(r"GLOO_SOCKET_IFNAME|interface|enp94s0f1",),
        misleading=(r"out of memory|checkpoint",),
    ),
    Nodes(
        name="v-more-nodes-version-check",
        way="a node has another version of the project's library, the script compares them",
        code="exception",
        also_codes=("environment",),
        rank=2,
        also=(3,),
        command="PYTHONPATH=$PYTHONPATH:lib_node$NODE_RANK python train.py",
        files={
            "lib_node0/fastops.py": "__version__ = '2.1.0'\ndef fused(x, eps):\n    return x + eps\n",
            "lib_node1/fastops.py": "__version__ = '1.9.3'\ndef fused(x):\n    return x\n",
            "train.py": """import torch, fastops
import torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "fastops", fastops.__version__, flush=True)
for i in range(50):
    t = fastops.fused(torch.ones(2), 1e-6)
    dist.all_reduce(t)
print("ok")
""",
        },
        wanted="fused() takes 1 positional argument but 2 were given",
        helpful=(r"fastops|version|train\.py|node-1",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Gang(
        name="v-more-sqlite-locked",
        way="eight trials share one SQLite file, one holds a transaction",
        code="exception",
        rank=0,
        also=(1, 2, 3, 5, 6, 7),
        processes=8,
        command="python trial.py",
        files={
            "trial.py": """import os, sqlite3, time

rank = int(os.environ["RANK"])
if rank != 4:
    time.sleep(2)
db = sqlite3.connect("study.db", timeout=2, isolation_level=None)
if rank == 4:
    db.execute("create table trials(id integer, value real)")
    db.execute("begin exclusive")
    print("trial 4: long transaction", flush=True)
    time.sleep(15)
    db.execute("commit")
db.execute("insert into trials values (?, ?)", (rank, rank / 10))
print("trial", rank, "stored", flush=True)
"""
        },
        wanted="sqlite3.OperationalError: database is locked",
        helpful=(r"sqlite|study\.db|lock|trial\.py|timeout|transaction",),
        misleading=(r"firewall|memory|interface",),
    ),
    Gang(
        name="v-more-open-files",
        way="one rank keeps every shard open and meets the limit of 64 files",
        code="exception",
        also_codes=("platform",),
        rank=1,
        processes=3,
        command="ulimit -n $([ $RANK = 1 ] && echo 64 || echo 1024); python index.py",
        files={
            "index.py": """import os, pathlib, time
rank = int(os.environ["RANK"])
root = pathlib.Path(f"shards{rank}")
root.mkdir()
handles = []
for i in range(200):
    handles.append(open(root / f"s{i}.bin", "wb"))
    if i % 50 == 0:
        print("rank", rank, "opened", i, flush=True)
time.sleep(4)
"""
        },
        wanted="OSError: [Errno 24] Too many open files",
        helpful=(r"ulimit|open files|close|index\.py|descriptor",),
        misleading=(r"firewall|out of memory|interface",),
    ),
    Gang(
        name="v-more-numpy-memory-error",
        way="one rank asks numpy for a matrix of 745 GiB by a wrong shape",
        code="exception",
        also_codes=("host_oom",),
        rank=2,
        processes=3,
        command="ulimit -v 8000000; python cov.py",
        files={
            "cov.py": """import os, time
import numpy as np
rank = int(os.environ["RANK"])
feats = 316 if rank != 2 else 316_227
print(f"[{time.strftime('%X')}] rank {rank}: covariance of {feats} features", flush=True)
cov = np.zeros((feats, feats))
print(f"[{time.strftime('%X')}] rank {rank}: trace {cov.trace()}", flush=True)
time.sleep(5)
"""
        },
        wanted="Unable to allocate 745. GiB",
        helpful=(r"cov\.py|shape|features|memory|316227|smaller",),
        misleading=(r"firewall|interface|port\b",),
    ),
    Gang(
        name="v-more-shadowed-module",
        way="a file of the project has the name of a standard module",
        code="exception",
        also_codes=("environment",),
        rank=0,
        also=(1,),
        processes=2,
        command="python train.py",
        files={
            "random.py": "def shuffle_rows(rows):\n    return rows[::-1]\n",
            "train.py": "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nprint('ok')\n",
        },
        wanted=("has no attribute", "cannot import name", "partially initialized module"),
        helpful=(r"random\.py|rename|shadow",),
        misleading=(r"firewall|out of memory|port\b|reinstall torch",),
    ),
    Gang(
        name="v-more-syntax-newer-python",
        way="an f-string of Python 3.12 on 3.11",
        code="exception",
        also_codes=("environment",),
        rank=0,
        also=(1, 2),
        processes=3,
        command="python main.py",
        files={
            "main.py": """import os
run = {"name": "abl-3"}
print(f"run {run["name"]} rank {os.environ["RANK"]}")
"""
        },
        wanted="SyntaxError: f-string",
        helpful=(r"main\.py|quote|f-string|3\.12|python version",),
        misleading=(r"firewall|memory|port\b",),
    ),
    TR(
        name="v-more-tr-eight-local-rank-env",
        way="eight children; the script maps its rank to a list of four devices",
        code="exception",
        rank=4,
        also=(5, 6, 7),
        num_ranks=8,
        command="torchrun --standalone --nproc-per-node 8 place.py",
        files={
            "place.py": """import os, time
local = int(os.environ["LOCAL_RANK"])
devices = os.environ.get("DEVICES", "0,1,2,3").split(",")
print(f"local rank {local} -> device {devices[local]}", flush=True)
time.sleep(5)
"""
        },
        wanted="IndexError: list index out of range",
        helpful=(r"place\.py|nproc|devices|DEVICES|4",),
        misleading=(r"firewall|memory|port\b",),
    ),
    TR(
        name="v-more-tr-backward-twice",
        way="a loss is kept across steps, only on the rank that logs",
        code="exception",
        rank=0,
        num_ranks=2,
        command="torchrun --standalone --nproc-per-node 2 accumulate.py",
        files={
            "accumulate.py": """import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
net = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), 0.1)
running = 0.0
for step in range(5):
    loss = net(torch.randn(3, 4)).mean()
    if dist.get_rank() == 0:
        running = running * 0.9 + loss
        loss = running
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(dist.get_rank(), step, float(loss), flush=True)
"""
        },
        wanted="Trying to backward through the graph a second time",
        helpful=(r"accumulate\.py|detach|item|retain_graph|running",),
        misleading=(r"firewall|memory|port\b",),
    ),
    TR(
        name="v-more-tr-loguru-then-broken-pipe",
        way="the root cause stands amid several hundred progress lines of all children",
        code="exception",
        rank=2,
        num_ranks=4,
        command="torchrun --standalone --nproc-per-node 4 noisy.py",
        files={
            "noisy.py": """import sys, time
import torch, torch.distributed as dist
from loguru import logger
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(120):
    t = torch.rand(1)
    dist.all_reduce(t)
    logger.info("step={} rank={} loss={:.4f} grad_norm={:.3f} lr=3.0e-04 error_rate=0.0", step, rank, t.item(), t.item() * 3)
    if rank == 2 and step == 70:
        try:
            {"val": 1}["test"]
        except KeyError as e:
            raise RuntimeError("evaluation split is not configured") from e
    if rank == 0 and step > 70:
        print("retrying connection ...", file=sys.stderr)
"""
        },
        wanted=("evaluation split is not configured", "KeyError: 'test'"),
        helpful=(r"noisy\.py|split|test",),
        misleading=(r"firewall|memory|port\b|connection",),
    ),
    Gang(
        name="v-more-async-op-order",
        way="one rank calls its collectives in another order; sizes differ and gloo complains",
        code="exception",
        also_codes=("collective", "signal"),
        rank=1,
        also=(0, 2),
        processes=3,
        command="python order.py",
        files={
            "order.py": """import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=7))
rank = dist.get_rank()
sync = {"bn_mean": torch.ones(256), "loss": torch.ones(1)}
# a set of names: its order differs from process to process, here made certain
names = ["loss", "bn_mean"] if rank == 1 else ["bn_mean", "loss"]
for name in names:
    print(f"{rank}: all_reduce {name} {sync[name].numel()}", flush=True)
    dist.all_reduce(sync[name])
print(rank, "done")
"""
        },
        wanted=("op.preamble.length <= op.nbytes", "preamble.length", "all_reduce loss 1"),
        helpful=(r"order\.py|order|same (size|shape)|size",),
        misleading=(r"firewall|out of memory|interface",),
    ),
]
