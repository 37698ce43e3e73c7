"""PyTorch in one process."""

from recorder import Failure

WRONG_WAY = r"network|firewall|submit again|MASTER_PORT|raise .{0,20}timeout"

FAILURES = [
    Failure(
        name="q-torch-state-dict-mismatch",
        code="exception",
        command="python finetune.py",
        files={
            "finetune.py": """import torch
old = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 10))
new = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))
print("loading pretrained weights")
new.load_state_dict(old.state_dict())
"""
        },
        wanted=("size mismatch for 1.weight", "Error(s) in loading state_dict for Sequential"),
        helpful=(r"finetune\.py", r"strict|classes|head"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-state-dict-module-prefix",
        code="exception",
        command="python test.py",
        files={
            "test.py": """import torch
m = torch.nn.Linear(2, 2)
sd = {"module." + k: v for k, v in m.state_dict().items()}
torch.save(sd, "ddp.pt")
m.load_state_dict(torch.load("ddp.pt"))
"""
        },
        wanted=("Missing key(s) in state_dict", "Error(s) in loading state_dict for Linear"),
        helpful=(r"module\.", r"test\.py"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-to-cuda-no-gpu",
        code="exception",
        command="python infer.py",
        files={
            "infer.py": """import torch
device = torch.device("cuda:0")
x = torch.randn(3, 3)
print("moving model to", device, flush=True)
x = x.to(device)
"""
        },
        wanted=("Torch not compiled with CUDA enabled",),
        helpful=(r"GPU|CUDA|cpu", r"infer\.py"),
        misleading=(WRONG_WAY, r"out of memory|smaller batch"),
    ),
    Failure(
        name="q-torch-dtype-float-double",
        code="exception",
        command="python regress.py",
        files={
            "regress.py": """import numpy as np, torch
X = torch.from_numpy(np.random.rand(16, 4))
net = torch.nn.Sequential(torch.nn.Linear(4, 1))
for epoch in range(2):
    loss = net(X).mean()
"""
        },
        wanted="mat1 and mat2 must have the same dtype, but got Double and Float",
        helpful=(r"regress\.py", r"float|dtype"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-inplace-autograd",
        code="exception",
        command="python gan.py",
        files={
            "gan.py": """import torch
w = torch.ones(3, requires_grad=True)
y = w.exp()
y += 1
y.sum().backward()
"""
        },
        wanted="one of the variables needed for gradient computation has been modified by an inplace operation",
        helpful=(r"gan\.py", r"anomaly"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-backward-twice",
        code="exception",
        command="python loop.py",
        files={
            "loop.py": """import torch
h = torch.zeros(4, requires_grad=True)
w = torch.randn(4, requires_grad=True)
state = (h * w).sum()
for t in range(3):
    print("t =", t)
    (state * state).backward()
"""
        },
        wanted="Trying to backward through the graph a second time",
        helpful=(r"loop\.py", r"retain_graph|detach"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-loader-worker-killed",
        code="exception",
        also_codes=("signal",),
        command="python train.py",
        files={
            "train.py": """import os, signal, time, torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        if i == 5:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(2)
for i, b in enumerate(DataLoader(D(), batch_size=2, num_workers=1)):
    print("batch", i, flush=True)
"""
        },
        wanted=("is killed by signal: Killed",),
        helpful=(r"worker", r"memory|num_workers"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-torch-loader-shm-small",
        code="shm_too_small",
        convention="shell",
        command="unshare -m bash -c 'mount -t tmpfs -o size=1m none /dev/shm && python train.py'",
        files={
            "train.py": """import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.randn(3, 512, 512)
for b in DataLoader(D(), batch_size=4, num_workers=1):
    print(b.shape, flush=True)
"""
        },
        wanted=("shared memory", "Bus error", "No space left on device"),
        helpful=(r"shm", r"num_workers|fewer workers"),
        misleading=(r"network|firewall|pip install",),
    ),
    Failure(
        name="q-torch-loader-collate-sizes",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import torch
from torch.utils.data import DataLoader
data = [torch.zeros(n) for n in (5, 5, 7, 5)]
for b in DataLoader(data, batch_size=2):
    print(b.shape)
"""
        },
        wanted="stack expects each tensor to be equal size, but got [7] at entry 0 and [5] at entry 1",
        helpful=(r"train\.py", r"collate|pad"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-loader-pickle-spawn",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __init__(self):
        self.tf = lambda x: x + 1
    def __len__(self): return 4
    def __getitem__(self, i): return self.tf(torch.zeros(1))
if __name__ == "__main__":
    dl = DataLoader(D(), num_workers=2, multiprocessing_context="spawn")
    for b in dl:
        print(b)
"""
        },
        wanted=(
            "Can't pickle local object",
            "Can't get local object",
            "Can't pickle <function D.__init__.<locals>.<lambda>",
        ),
        helpful=(r"train\.py", r"lambda"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-embedding-index",
        code="exception",
        command="python lm.py",
        files={
            "lm.py": """import torch
emb = torch.nn.Embedding(100, 16)
ids = torch.tensor([[3, 99, 100]])
print(emb(ids).shape)
"""
        },
        wanted="IndexError: index out of range in self",
        helpful=(r"lm\.py", r"vocab|Embedding|index"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-huge-tensor",
        code="host_oom",
        also_codes=("exception",),
        command="python attn.py",
        files={
            "attn.py": """import torch
q = torch.zeros(1, 8, 2_000_000, 1)
scores = q @ q.transpose(-1, -2)
print(scores.shape)
"""
        },
        wanted=("can't allocate memory: you tried to allocate",),
        helpful=(r"attn\.py", r"smaller|memory"),
        misleading=(r"network|firewall|pip install",),
    ),
    Failure(
        name="q-torch-compile-no-compiler",
        code="exception",
        also_codes=("environment",),
        command="PATH=$(dirname $(command -v python)) CXX=/nonexistent/g++ python fast.py",
        files={
            "fast.py": """import torch
@torch.compile
def f(x):
    return (x.sin() + 1).cos()
print(f(torch.randn(8)))
"""
        },
        wanted=("InvalidCxxCompiler", "No working C++ compiler found"),
        helpful=(r"compiler|g\+\+|CXX",),
        misleading=(WRONG_WAY, r"out of memory"),
    ),
    Failure(
        name="q-torch-trace-raises",
        code="exception",
        command="python export.py",
        files={
            "export.py": """import torch
class M(torch.nn.Module):
    def forward(self, x, mask=None):
        if mask is None:
            raise TypeError("mask must be given at export time")
        return x * mask
m = torch.jit.trace(M(), torch.zeros(2))
"""
        },
        wanted="TypeError: mask must be given at export time",
        helpful=(r"export\.py", r"mask"),
        misleading=(WRONG_WAY, r"pip install|out of memory"),
    ),
    Failure(
        name="q-torch-init-without-env",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import torch.distributed as dist
print("world comes from the environment", flush=True)
dist.init_process_group("gloo")
"""
        },
        wanted="environment variable RANK expected, but not set",
        helpful=(r"torchrun|process.count|--procs", r"RANK"),
        misleading=(r"firewall|smaller batch|out of memory|pip install",),
    ),
]
