"""More under torchrun and TensorFlow, and shared memory."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")
STEP = """\
import os, pathlib, sys, time
RANK, WORLD = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
def meet(name, seconds=25):
    pathlib.Path(f'{name}.{RANK}').touch()
    end = time.monotonic() + seconds
    while len(list(pathlib.Path('.').glob(f'{name}.*'))) < WORLD:
        if time.monotonic() > end:
            raise TimeoutError(f'{name}: waited {seconds} s for the other ranks')
        time.sleep(0.02)
meet('begin')
"""
GLOO = """\
import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
RANK, WORLD = dist.get_rank(), dist.get_world_size()
dist.barrier()
"""
TWO_NODES = (
    "torchrun --nnodes 2 --node-rank $NODE_RANK --nproc-per-node 2 "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py"
)

FAILURES = [
    Failure(
        name="shared-memory-bus-error",
        way="a segment of shared memory larger than /dev/shm",
        convention="shell",
        code="signal",
        also_codes=("shm_too_small",),
        command="./shm.sh",
        files={
            "shm.sh": """\
#!/bin/bash
exec unshare -m bash -c 'mount -t tmpfs -o size=1m shm /dev/shm && exec python ring.py'
""",
            "ring.py": """\
from multiprocessing import shared_memory
ring = shared_memory.SharedMemory(create=True, size=8 << 20)
print('ring of', ring.size, flush=True)
ring.buf[:] = bytes(ring.size)
""",
        },
        wanted=("SIGBUS", "Bus error", "signal 7"),
        helpful=(r"shm|shared memory|ring\.py",),
        misleading=(r"network|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-two-nodes-hung",
        way="a child of the first node hangs; three time out",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        code="collective",
        rank=1,
        command=TWO_NODES,
        files={
            "train.py": GLOO
            + """\
def pull_from_queue():
    time.sleep(500)
if RANK == 1:
    print('rank 1 waits for the queue', flush=True)
    pull_from_queue()
dist.all_reduce(torch.ones(2))
"""
        },
        wanted=(*HUNG, "pull_from_queue", "rank 1 waits for the queue"),
        helpful=(r"rank 1\b|pull_from_queue|queue",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="torchrun-assert-one-of-8",
        way="one of eight children fails an assertion",
        convention="torchrun",
        num_ranks=8,
        code="exception",
        rank=5,
        command="torchrun --standalone --nproc-per-node 8 train.py",
        files={
            "train.py": STEP
            + """\
if RANK == 5:
    lengths = [512, 512, 511]
    assert len(set(lengths)) == 1, f'sequences of different lengths on rank {RANK}: {lengths}'
meet('end')
"""
        },
        wanted="AssertionError: sequences of different lengths on rank 5: [512, 512, 511]",
        helpful=(r"train\.py|lengths|pad",),
        misleading=(r"memory|\bpip\b|firewall|network",),
    ),
    Failure(
        name="torchrun-rich-traceback",
        way="a child prints its traceback in a box",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=2,
        venv="torch",
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": STEP
            + """\
from rich.traceback import install
install(width=100)
def lookup(table, key):
    return table[key]
if RANK == 2:
    lookup({'relu': 1}, 'swiglu')
meet('end')
"""
        },
        wanted="KeyError: 'swiglu'",
        helpful=(r"train\.py|swiglu|table",),
        misleading=(r"memory|\bpip\b|firewall|network",),
    ),
    Failure(
        name="torchrun-flood-of-siblings",
        way="the other children print a lot after one has raised",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=0,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": STEP
            + """\
if RANK == 0:
    raise UserWarning('prompt template has no {question} field')
import signal
def on_term(*_):
    for i in range(4000):
        print(f'rank {RANK}: flushing cache line {i}: error: 0', flush=False)
    sys.exit(1)
signal.signal(signal.SIGTERM, on_term)
meet('end')
"""
        },
        wanted="UserWarning: prompt template has no {question} field",
        helpful=(r"train\.py|template|question",),
        misleading=(r"memory|\bpip\b|firewall|network|flushing",),
    ),
    Failure(
        name="torchrun-late-child",
        way="a child is late for init_process_group",
        convention="torchrun",
        num_ranks=4,
        code="rendezvous",
        also_codes=("collective",),
        rank=3,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "train.py": """\
import datetime, os, time, torch.distributed as dist
if os.environ['RANK'] == '3':
    print('rank 3: converting the checkpoint first', flush=True)
    time.sleep(300)
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))
dist.barrier()
"""
        },
        wanted=(*HUNG, "late", "rank 3: converting the checkpoint first"),
        helpful=(r"rank 3|convert",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="torchrun-monitored-barrier",
        way="monitored_barrier under torchrun",
        convention="torchrun",
        num_ranks=4,
        code="collective",
        rank=1,
        command="torchrun --standalone --nproc-per-node 4 train.py",
        files={
            "train.py": GLOO
            + """\
if RANK == 1:
    time.sleep(100)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
"""
        },
        wanted=("Rank 1 failed to pass monitoredBarrier in 2000 ms", *HUNG),
        helpful=(r"rank 1\b|time\.sleep",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="torchrun-error-flag",
        way="all children exit because one reported an error",
        convention="torchrun",
        num_ranks=3,
        code="exception",
        rank=2,
        command="torchrun --standalone --nproc-per-node 3 train.py",
        files={
            "train.py": GLOO
            + """\
import traceback
failed = torch.zeros(1)
try:
    if RANK == 2:
        b'\\xff\\xfe'.decode('utf-8')
except UnicodeDecodeError:
    print(f'[rank {RANK}] reading failed:', flush=True)
    traceback.print_exc()
    failed += 1
dist.all_reduce(failed)
if failed:
    raise RuntimeError(f'{int(failed)} rank(s) could not read their data')
"""
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
        helpful=(r"encoding|utf-8|train\.py|rank 2",),
        misleading=(r"memory|\bpip\b|firewall|network",),
    ),
    Failure(
        name="torchrun-legacy-launch",
        way="python -m torch.distributed.launch; the script does not know --local-rank",
        convention="torchrun",
        num_ranks=3,
        code="exit_code",
        also_codes=("bad_input",),
        rank=0,
        also=(1, 2),
        command="python -m torch.distributed.launch --nproc_per_node 3 --master_port $MASTER_PORT old.py --lr 1",
        files={
            "old.py": """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('--local_rank', type=int)
p.add_argument('--lr', type=float)
print(p.parse_args())
"""
        },
        wanted="unrecognized arguments: --local-rank",
        helpful=(r"local[-_]rank|torchrun|LOCAL_RANK",),
        misleading=(r"memory|\bpip\b|firewall|network",),
    ),
    Failure(
        name="gang-loader-worker-of-rank-2",
        way="a data-loader worker of one rank raises",
        convention="process",
        processes=3,
        code="exception",
        rank=2,
        command="python train.py",
        files={
            "train.py": GLOO
            + """\
from torch.utils.data import DataLoader, Dataset
class Audio(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        if RANK == 2 and i == 7:
            raise EOFError(f'clip {i} ends after 0.0 s')
        return torch.ones(2)
for batch in DataLoader(Audio(), batch_size=2, num_workers=1):
    dist.all_reduce(batch)
"""
        },
        wanted="EOFError: clip 7 ends after 0.0 s",
        helpful=(r"clip 7|train\.py",),
        misleading=(r"memory|\bpip\b|firewall|network|num_workers=0",),
    ),
    Failure(
        name="tf-multi-worker-one-raises",
        way="MultiWorkerMirroredStrategy: one worker raises before the first step",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        limit_s=60.0,
        venv="tf",
        command="python mw.py",
        variables={"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"},
        files={
            "mw.py": """\
import json, os, time
R, W, P = (int(os.environ[k]) for k in ('RANK', 'WORLD_SIZE', 'MASTER_PORT'))
workers = [f'127.0.0.1:{20000 + (P + 7 * r) % 20000}' for r in range(W)]
os.environ['TF_CONFIG'] = json.dumps({'cluster': {'worker': workers}, 'task': {'type': 'worker', 'index': R}})
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print('worker', R, 'of', strategy.num_replicas_in_sync, flush=True)
if R == 1:
    raise KeyError('feature spec has no key "label"')
time.sleep(20)
"""
        },
        wanted='feature spec has no key "label"',
        helpful=(r"mw\.py|label|feature spec",),
        misleading=(r"out of memory|\bpip\b|firewall|network|GPU|cuda",),
    ),
    Failure(
        name="deepspeed-launcher-script-raises",
        way="the deepspeed launcher reports a child that raised",
        convention="torchrun",
        num_ranks=1,
        code="exception",
        venv="ds",
        command="deepspeed --num_gpus 1 --master_port $MASTER_PORT finetune.py --zero 3",
        files={
            "finetune.py": """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('--local_rank', type=int)
p.add_argument('--zero', type=int)
a = p.parse_args()
stages = {1: 'os', 2: 'grads'}
print('stage', stages[a.zero])
"""
        },
        wanted="KeyError: 3",
        helpful=(r"finetune\.py|--zero|stage",),
        misleading=(r"memory|\bpip\b|firewall|network",),
    ),
]
