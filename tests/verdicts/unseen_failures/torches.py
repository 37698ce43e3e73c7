"""torch: single processes, spawned ones, and gangs with one process per rank."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
LEFT = ("code 0", "exited early", "ended early", "left early", "finished before", "had ended")
GLOO = """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
"""

FAILURES = [
    Failure(
        name="torch-linear-shape",
        way="shapes that cannot be multiplied",
        code="exception",
        command="python net.py",
        files={
            "net.py": """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(10, 5))
net(torch.ones(4, 20))
"""
        },
        wanted="mat1 and mat2 shapes cannot be multiplied (4x8 and 10x5)",
        helpful=(r"net\.py|Linear|shape",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-dtype-mismatch",
        way="float and half",
        code="exception",
        command="python half.py",
        files={
            "half.py": """\
import torch
w = torch.ones(3, 3, dtype=torch.bfloat16)
x = torch.ones(2, 3)
print(x @ w)
"""
        },
        wanted="expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16",
        helpful=(r"half\.py|dtype|bfloat16",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-state-dict-mismatch",
        way="a checkpoint of another model",
        code="exception",
        command="python load.py",
        files={
            "load.py": """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, n)
torch.save(Net(10).state_dict(), 'net.pt')
state = torch.load('net.pt')
state['module.extra'] = state.pop('body.bias')
Net(3).load_state_dict(state)
"""
        },
        wanted=(
            "Error(s) in loading state_dict for Net",
            "size mismatch for head.weight",
            'Missing key(s) in state_dict: "body.bias"',
        ),
        helpful=(r"load\.py|head|net\.pt|strict",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-load-weights-only",
        way="torch.load refuses a pickled object",
        code="exception",
        command="python restore.py",
        files={
            "restore.py": """\
import argparse, torch
torch.save({'args': argparse.Namespace(lr=1), 'w': torch.ones(2)}, 'last.ckpt')
print(torch.load('last.ckpt'))
"""
        },
        wanted=(
            "Weights only load failed",
            "Unsupported global: GLOBAL argparse.Namespace",
        ),
        helpful=(r"weights_only|safe_globals|last\.ckpt|restore\.py",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-cuda-absent",
        way="CUDA is asked for where there is none",
        code="exception",
        also_codes=(
            "environment",
            "bad_input",
        ),
        command="python gpu.py",
        files={
            "gpu.py": """\
import torch
model = torch.nn.Linear(2, 2).to('cuda:0')
"""
        },
        wanted="Torch not compiled with CUDA enabled",
        helpful=("GPU|--compute|cpu",),
        misleading=("out of memory|firewall|smaller batch",),
    ),
    Failure(
        name="torch-loader-worker-raises",
        way="an exception in a data-loader worker",
        code="exception",
        command="python loader.py",
        files={
            "loader.py": """\
import torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, i):
        if i == 13:
            raise OSError(f'image file is truncated (7 bytes not processed): img_{i:05}.jpg')
        return torch.ones(3)
if __name__ == '__main__':
    for n, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=2)):
        print('batch', n, flush=True)
"""
        },
        wanted="OSError: image file is truncated (7 bytes not processed): img_00013.jpg",
        helpful=(r"img_00013|loader\.py",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"num_workers=0|\bpip\b|shm",
        ),
    ),
    Failure(
        name="torch-loader-worker-killed",
        way="a data-loader worker crashes",
        code="signal",
        also_codes=("exception",),
        command="python crashload.py",
        files={
            "crashload.py": """\
import ctypes, torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, i):
        if i == 9:
            ctypes.string_at(0)
        return torch.ones(3)
if __name__ == '__main__':
    for batch in DataLoader(D(), batch_size=2, num_workers=2):
        pass
"""
        },
        wanted=(
            "is killed by signal: Segmentation fault",
            "Unexpected segmentation fault encountered in worker",
        ),
        helpful=(r"crashload\.py|worker|num_workers=0|faulthandler",),
        misleading=(r"network|firewall|smaller batch|\bpip\b",),
    ),
    Failure(
        name="torch-collate-sizes",
        way="samples of different sizes",
        code="exception",
        command="python collate.py",
        files={
            "collate.py": """\
import torch
from torch.utils.data import DataLoader
data = [torch.ones(5), torch.ones(7)]
next(iter(DataLoader(data, batch_size=2)))
"""
        },
        wanted=("stack expects each tensor to be equal size, but got [5] at entry 0 and [7] at entry 1"),
        helpful=("collate|pad|size",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-shm-too-small",
        way="/dev/shm of 1 MiB",
        code="shm_too_small",
        command="./small_shm.sh",
        files={
            "small_shm.sh": """\
#!/bin/bash
exec unshare -m bash -c 'mount -t tmpfs -o size=1m shm /dev/shm && exec python wide.py'
""",
            "wide.py": """\
import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(1_000_000)
if __name__ == '__main__':
    for b in DataLoader(D(), batch_size=2, num_workers=2):
        print(b.shape, flush=True)
""",
        },
        wanted=(
            "shared memory",
            "Bus error",
            "/dev/shm",
            "No space left on device",
        ),
        helpful=("shm_size|shared memory|/dev/shm|fewer workers|num_workers",),
        misleading=("network|firewall|muster rm",),
    ),
    Failure(
        name="torch-target-out-of-bounds",
        way="a label beyond the number of classes",
        code="exception",
        command="python loss.py",
        files={
            "loss.py": """\
import torch
import torch.nn.functional as F
F.cross_entropy(torch.randn(2, 10), torch.tensor([3, 10]))
"""
        },
        wanted="IndexError: Target 10 is out of bounds.",
        helpful=(r"loss\.py|class|label|Target",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-inplace-backward",
        way="a tensor was changed in place",
        code="exception",
        command="python grad.py",
        files={
            "grad.py": """\
import torch
x = torch.ones(2, requires_grad=True)
y = x.exp()
y += 1
y.sum().backward()
"""
        },
        wanted="has been modified by an inplace operation",
        helpful=(r"grad\.py|in-?place|detect_anomaly",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="torch-allocator-host",
        way="a tensor of 4 TB",
        code="host_oom",
        also_codes=("exception",),
        command="python huge.py",
        files={
            "huge.py": """\
import torch
attention = torch.zeros(1_000_000, 1_000_000)
"""
        },
        wanted="you tried to allocate 4000000000000 bytes",
        helpful=(r"huge\.py|memory|4000000000000|smaller",),
        misleading=(r"network|firewall|\bpip\b|GPU",),
    ),
    Failure(
        name="torch-env-rendezvous-without-ranks",
        way="init_process_group in a job of one plain process",
        code="exception",
        also_codes=(
            "rendezvous",
            "bad_input",
        ),
        command="python ddp.py",
        files={
            "ddp.py": """\
import torch.distributed as dist
dist.init_process_group('gloo')
"""
        },
        wanted="environment variable RANK expected, but not set",
        helpful=("torchrun|--procs|process[ _]count|process_count_per_instance",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="torch-nan-guard-anomaly",
        way="the anomaly mode finds a NaN",
        code="exception",
        command="python anomaly.py",
        files={
            "anomaly.py": """\
import torch
x = torch.zeros(1, requires_grad=True)
with torch.autograd.detect_anomaly():
    y = torch.sqrt(x) * 0 / x
    y.backward()
"""
        },
        wanted=(
            "returned nan values in its 0th output",
            "returned nan values",
        ),
        helpful=(r"anomaly\.py|nan|sqrt",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="spawn-torch-child-raises",
        way="torch.multiprocessing.spawn, one child raises",
        convention="spawn",
        code="exception",
        command="python spawn.py",
        files={
            "spawn.py": """\
import torch.multiprocessing as mp
def work(rank, world):
    if rank == 2:
        raise KeyError('no shard for rank 2')
    import time; time.sleep(20)
if __name__ == '__main__':
    mp.spawn(work, args=(3,), nprocs=3)
"""
        },
        wanted="KeyError: 'no shard for rank 2'",
        helpful=(r"spawn\.py|shard",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="spawn-torch-child-killed",
        way="torch.multiprocessing.spawn, one child dies of a signal",
        convention="spawn",
        code="signal",
        also_codes=("exception",),
        command="python spawn2.py",
        files={
            "spawn2.py": """\
import os, signal, torch.multiprocessing as mp
def work(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGABRT)
    import time; time.sleep(20)
if __name__ == '__main__':
    mp.spawn(work, nprocs=2)
"""
        },
        wanted="process 1 terminated with signal SIGABRT",
        helpful=(r"spawn2\.py|SIGABRT|process 1|faulthandler",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="pool-remote-traceback",
        way="multiprocessing.Pool passes an exception on",
        convention="spawn",
        code="exception",
        command="python pool.py",
        files={
            "pool.py": """\
import multiprocessing as mp
def encode(text):
    return text.encode('ascii')
if __name__ == '__main__':
    with mp.Pool(3) as pool:
        pool.map(encode, ['a', 'b', 'naïve'])
"""
        },
        wanted="UnicodeEncodeError: 'ascii' codec can't encode character '\\xef' in position 2",
        helpful=(r"pool\.py|ascii|encod",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="pool-broken-process-pool",
        way="a worker of an executor is killed",
        convention="spawn",
        code="exception",
        also_codes=("signal",),
        command="python executor.py",
        files={
            "executor.py": """\
import os
from concurrent.futures import ProcessPoolExecutor
def work(n):
    if n == 3:
        os._exit(11)
    return n
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(work, range(6))))
"""
        },
        wanted="A process in the process pool was terminated abruptly",
        helpful=(r"executor\.py|worker|pool",),
        misleading=(r"network|firewall|\bpip\b|MASTER_PORT",),
    ),
    Failure(
        name="spawn-main-guard-missing",
        way="spawned processes without the main guard",
        convention="spawn",
        code="exception",
        command="python unguarded.py",
        files={
            "unguarded.py": """\
import multiprocessing as mp
mp.set_start_method('spawn')
p = mp.Process(target=print, args=('hi',))
p.start()
p.join()
if p.exitcode:
    raise SystemExit(p.exitcode)
"""
        },
        wanted=(
            "An attempt has been made to start a new process before the",
            "context has already been set",
        ),
        helpful=(r"__main__|main guard|unguarded\.py",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="spawn-cannot-pickle",
        way="a lambda for a spawned process",
        convention="spawn",
        code="exception",
        command="python lam.py",
        files={
            "lam.py": """\
import multiprocessing as mp
if __name__ == '__main__':
    ctx = mp.get_context('spawn')
    p = ctx.Process(target=lambda: None)
    p.start()
    p.join()
"""
        },
        wanted=(
            "Can't pickle <function <lambda>",
            "Can't get local object",
            "attribute lookup <lambda>",
        ),
        helpful=(r"lam\.py|lambda|pickle",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="spawn-children-exit-codes",
        way="a parent reports the exit codes of its workers",
        convention="spawn",
        code="exception",
        also_codes=("exit_code",),
        command="python parent.py",
        files={
            "parent.py": """\
import multiprocessing as mp, sys
def work(n):
    limits = [1, 2, 3]
    if n == 1:
        assert sum(limits) == 7, f'worker {n}: limits add up to {sum(limits)}, not 7'
if __name__ == '__main__':
    ps = [mp.Process(target=work, args=(n,)) for n in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    codes = [p.exitcode for p in ps]
    if any(codes):
        print('workers ended with', codes, file=sys.stderr)
        sys.exit(70)
"""
        },
        wanted="AssertionError: worker 1: limits add up to 6, not 7",
        helpful=(r"parent\.py|limits|worker 1",),
        misleading=(
            "network|firewall|out of memory|smaller batch|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="gloo-hung-one-of-3",
        way="one rank does not come to the all-reduce",
        convention="process",
        processes=3,
        code="collective",
        rank=1,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
dist.all_reduce(torch.ones(3))
def validate():
    time.sleep(300)
if RANK == 1:
    validate()
dist.all_reduce(torch.ones(3))
"""
        },
        wanted=(
            *HUNG,
            "validate",
        ),
        helpful=("rank 1|validate",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-hung-one-of-5-lock",
        way="one rank waits for a lock; the others are in a barrier",
        convention="process",
        processes=5,
        code="collective",
        rank=3,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
import fcntl
f = open('cache.lock', 'w')
def cached():
    other = open('cache.lock', 'w')
    fcntl.flock(f, fcntl.LOCK_EX)
    fcntl.flock(other, fcntl.LOCK_EX)
dist.barrier()
if RANK == 3:
    cached()
dist.barrier()
"""
        },
        wanted=(
            *HUNG,
            "cached",
            "flock",
        ),
        helpful=("rank 3|cached|flock|lock",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-hung-last-of-8",
        way="the last of eight ranks spins",
        convention="process",
        processes=8,
        nodes=2,
        code="collective",
        rank=7,
        command="python train.py",
        files={
            "train.py": """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=12))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
dist.barrier()
pg = dist.new_group(backend='gloo', timeout=datetime.timedelta(seconds=4))
dist.barrier(pg)
def retokenize():
    while True:
        time.sleep(0.1)
if RANK == 7:
    retokenize()
dist.all_reduce(torch.ones(4), group=pg)
"""
        },
        wanted=(
            *HUNG,
            "retokenize",
        ),
        helpful=("rank 7|retokenize",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-monitored-barrier",
        way="monitored_barrier names the rank that is missing",
        convention="process",
        processes=4,
        code="collective",
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
dist.barrier()
def warm_cache():
    time.sleep(200)
if RANK == 2:
    warm_cache()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
"""
        },
        wanted=(
            *HUNG,
            "Rank 2 failed to pass monitoredBarrier",
            "warm_cache",
        ),
        helpful=("rank 2|warm_cache",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-late-to-rendezvous",
        way="one rank is late; the others' init times out",
        convention="process",
        processes=4,
        code="rendezvous",
        rank=3,
        command="python train.py",
        files={
            "train.py": """\
import datetime, os, time, torch, torch.distributed as dist
def download_weights():
    time.sleep(300)
if os.environ['RANK'] == '3':
    print('downloading weights', flush=True)
    download_weights()
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
dist.barrier()
"""
        },
        wanted=(
            *HUNG,
            "download_weights",
            "late",
            "clients joined",
        ),
        helpful=("rank 3|download_weights",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="gloo-rank0-late",
        way="rank 0, which holds the store, is late",
        convention="process",
        processes=3,
        code="rendezvous",
        command="python train.py",
        files={
            "train.py": """\
import datetime, os, time, torch, torch.distributed as dist
def index_files():
    time.sleep(300)
if os.environ['RANK'] == '0':
    print('indexing files', flush=True)
    index_files()
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
dist.barrier()
"""
        },
        wanted=(
            *HUNG,
            "index_files",
            "late",
            "timed out while waiting",
            "failed to connect",
        ),
        helpful=("rank 0|index_files",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="gloo-early-exit-0",
        way="one rank's data is shorter; it ends with code 0",
        convention="process",
        processes=4,
        code="collective",
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
data = list(range(40 + (0 if RANK == 2 else 10)))
for i in range(0, len(data), 10):
    dist.all_reduce(torch.ones(1))
print('epoch done', flush=True)
os._exit(0)
"""
        },
        wanted=(
            *LEFT,
            "Connection closed by peer",
            "Connection reset by peer",
        ),
        helpful=("rank 2|uneven|drop_last|join",),
        misleading=(r"memory|\bpip\b|interface|firewall",),
    ),
    Failure(
        name="gloo-one-raises-others-reduce",
        way="one rank raises while the others are in an all-reduce",
        convention="process",
        processes=5,
        code="exception",
        rank=4,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
for step in range(4):
    x = torch.ones(2, 3)
    if RANK == 4 and step == 2:
        x = x.view(4, 2)
    dist.all_reduce(x)
"""
        },
        wanted="shape '[4, 2]' is invalid for input of size 6",
        helpful=(r"train\.py|view|shape",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-victims-exit-first",
        way="the rank at fault destroys its group, then tidies up slowly",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
def main():
    dist.barrier()
    if RANK == 1:
        raise LookupError('vocabulary has no <pad> token')
    dist.all_reduce(torch.ones(1))
try:
    main()
finally:
    if RANK == 1:
        dist.destroy_process_group()
        time.sleep(0.35)
"""
        },
        wanted="LookupError: vocabulary has no <pad> token",
        helpful=(r"train\.py|<pad>|vocab",),
        misleading=("memory|pip install|firewall",),
    ),
    Failure(
        name="gloo-world-size-too-large",
        way="WORLD_SIZE says 4, three processes start",
        convention="process",
        processes=3,
        code="rendezvous",
        rank=None,
        variables={"WORLD_SIZE": "4"},
        command="python train.py",
        files={
            "train.py": """\
import datetime, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
"""
        },
        wanted=(
            "3/4 clients joined",
            "clients joined",
            "did not find each other",
        ),
        helpful=("WORLD_SIZE|world size|3/4",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="gloo-store-key-missing",
        way="a rank never sets the key that the others wait for",
        convention="process",
        processes=3,
        code="collective",
        also_codes=(
            "rendezvous",
            "exception",
        ),
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
store = dist.distributed_c10d._get_default_store()
dist.barrier()
if RANK == 2:
    sys.stdin.read()
    time.sleep(100)
else:
    store.wait(['shard_plan_from_2'], datetime.timedelta(seconds=2))
"""
        },
        wanted=(
            *HUNG,
            "shard_plan_from_2",
        ),
        helpful=("shard_plan_from_2|rank 2",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-fixed-port-taken",
        way="the script sets MASTER_PORT itself; the port is taken",
        convention="process",
        processes=3,
        code="port_trouble",
        command="python train.py",
        files={
            "train.py": """\
import os, socket, time, datetime
os.environ['MASTER_PORT'] = '29517'
if os.environ['RANK'] == '0':
    metrics = socket.create_server(('', 29517))
import torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=20))
"""
        },
        wanted=(
            "EADDRINUSE",
            "address already in use",
        ),
        helpful=("29517|MASTER_PORT",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-nccl-without-gpu",
        way="every rank asks for NCCL",
        convention="process",
        processes=3,
        code="exception",
        also_codes=(
            "environment",
            "bad_input",
        ),
        also=(
            1,
            2,
        ),
        command="python train.py",
        files={
            "train.py": """\
import torch, torch.distributed as dist
backend = 'nccl'
dist.init_process_group(backend)
"""
        },
        facts={"gpu_clusters": ["a100-pool"]},
        wanted=(
            "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            "Distributed package doesn't have NCCL built in",
        ),
        helpful=("gloo|a100-pool|--compute",),
        misleading=("out of memory|firewall|SOCKET_IFNAME",),
    ),
    Failure(
        name="gloo-limit-hung-rank",
        way="the job's limit passes before gloo's own",
        convention="process",
        processes=4,
        code="timeout",
        also_codes=("collective",),
        rank=1,
        limit_s=15.0,
        command="python train.py",
        files={
            "train.py": """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(minutes=30))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
dist.barrier()
def sync_to_bucket():
    import subprocess
    subprocess.check_call(['sleep', '1000'])
if RANK == 1:
    sync_to_bucket()
dist.barrier()
"""
        },
        wanted=(
            *HUNG,
            "sync_to_bucket",
        ),
        helpful=("rank 1|sync_to_bucket|subprocess",),
        misleading=(r"memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="gloo-limit-earlier-traceback",
        way="a rank raised and stays in destroy_process_group's company until the limit",
        convention="process",
        processes=3,
        code="disk_full",
        also_codes=("exception", "timeout"),
        limit_s=15.0,
        command="python train.py",
        files={
            "train.py": """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(minutes=30))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
import threading
dist.barrier()
if RANK == 0:
    threading.Thread(target=time.sleep, args=(1000,), name='uploader').start()
    raise OSError(122, 'Disk quota exceeded', 'ckpt/step_10.pt')
dist.barrier()
"""
        },
        wanted="OSError: [Errno 122] Disk quota exceeded: 'ckpt/step_10.pt'",
        helpful=("quota|step_10|disk",),
        misleading=(r"out of memory|\bpip\b|firewall|raise .{0,20}limits\.timeout",),
    ),
    Failure(
        name="gloo-error-flag",
        way="all ranks raise because a flag was reduced",
        convention="process",
        processes=4,
        code="exception",
        also_codes=("exit_code",),
        rank=3,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
import traceback
ok = torch.ones(1)
try:
    if RANK == 3:
        float('nan-ish')
except ValueError:
    traceback.print_exc()
    ok.zero_()
dist.all_reduce(ok, op=dist.ReduceOp.MIN)
if not ok:
    raise SystemExit('preprocessing failed on some rank')
"""
        },
        wanted="ValueError: could not convert string to float: 'nan-ish'",
        helpful=(r"train\.py|nan-ish|rank 3",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-segv-one-of-3",
        way="one rank crashes during training",
        convention="process",
        processes=3,
        code="signal",
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
dist.barrier()
if RANK == 0:
    import ctypes
    print('step 100', flush=True)
    ctypes.string_at(0)
dist.barrier()
"""
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "signal 11",
        ),
        helpful=("faulthandler|native|rank 0",),
        misleading=(r"memory limit|\bpip\b|firewall|network",),
    ),
    Failure(
        name="gloo-sizes-differ",
        way="one rank reduces a larger tensor",
        convention="process",
        processes=3,
        code="collective",
        also_codes=(
            "exception",
            "signal",
        ),
        also=(
            1,
            2,
        ),
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
dist.barrier()
x = torch.ones(5000 if RANK == 2 else 100)
dist.all_reduce(x)
dist.barrier()
"""
        },
        wanted=(
            "op.preamble.length <= op.nbytes",
            "preamble",
            "EnforceNotMet",
        ),
        helpful=("size|shape|same",),
        misleading=(r"out of memory|\bpip\b|firewall",),
    ),
    Failure(
        name="gloo-object-broadcast-raises",
        way="rank 0 raises before it broadcasts",
        convention="process",
        processes=3,
        code="exception",
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
import json
plan = [None]
if RANK == 0:
    plan = [json.load(open('plan.json'))]
dist.broadcast_object_list(plan, src=0)
print(plan)
""",
            "plan.json": "{'steps': 3}\n",
        },
        wanted="Expecting property name enclosed in double quotes: line 1 column 2",
        helpful=(r"plan\.json|quotes",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
]
