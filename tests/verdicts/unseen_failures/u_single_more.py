"""Single processes: waits, old files, native code, floods of output."""

from recorder import Failure

FAILURES = [
    Failure(
        name="u-infinite-wait-for-marker",
        way="it polls for a file of another job until the time limit",
        code="timeout",
        limit_s=12,
        rank=None,
        command="python -u stage2.py",
        files={
            "stage2.py": """import os, time, datetime

def log(msg):
    print(datetime.datetime.now().strftime("%H:%M:%S"), msg)

log("stage 2 starts")
while not os.path.exists("stage1/_SUCCESS"):
    log("stage1/_SUCCESS not there yet, checking again in 3 s")
    time.sleep(3)
log("training")
"""
        },
        wanted=("stage1/_SUCCESS not there yet", "stage1/_SUCCESS"),
        helpful=(r"_SUCCESS|stage1|stage 1", r"stage2\.py", r"limit|timeout"),
        misleading=(r"firewall|out of memory",),
    ),
    Failure(
        name="u-pickle-class-moved",
        way="an old pickle refers to a class that moved",
        code="exception",
        also_codes=("environment",),
        command="python evaluate.py preprocessor.pkl",
        files={
            "evaluate.py": """import pickle, sys, types
import features


def write_old(path):
    # as written by release 0.3
    features.Scaler = type("Scaler", (), {"__module__": "features"})
    with open(path, "wb") as f:
        pickle.dump(features.Scaler(), f)
    del features.Scaler


write_old(sys.argv[1])
with open(sys.argv[1], "rb") as f:
    scaler = pickle.load(f)
print(scaler)
""",
            "features.py": "class StandardScaler:\n    pass\n",
        },
        wanted="Can't get attribute 'Scaler' on",
        helpful=(r"Scaler|preprocessor\.pkl|features", r"evaluate\.py|version"),
        misleading=(r"network|out of memory|port\b",),
    ),
    Failure(
        name="u-database-is-locked",
        way="an experiment database is locked by another connection",
        code="exception",
        command="python track.py",
        files={
            "track.py": """import sqlite3, sys

def connect():
    return sqlite3.connect("runs.db", timeout=1.0)

setup = connect()
setup.execute("create table runs (id integer primary key, name text)")
setup.commit()
sweep = connect()                     # the sweep keeps a transaction open
sweep.execute("begin immediate")
sweep.execute("insert into runs (name) values ('sweep-1')")
me = connect()
me.execute("insert into runs (name) values ('train-7')")
me.commit()
"""
        },
        wanted="database is locked",
        helpful=(r"track\.py", r"runs\.db|lock|transaction|database"),
        misleading=(r"network|out of memory|install",),
    ),
    Failure(
        name="u-warning-flood-then-error",
        way="thousands of warnings, the error among them, then more lines at exit",
        code="exception",
        command="python -u crawl_stats.py",
        files={
            "crawl_stats.py": """import atexit, warnings, sys
warnings.simplefilter("always")


@atexit.register
def summary():
    for n in range(3000):
        print(f"[summary] host-{n:04d}.example ok={n * 3} failed={n % 5} retried={n % 3}")


def parse(n):
    if n % 2:
        warnings.warn(f"page {n}: deprecated encoding, guessed latin-1")
    return bytes([0x63, 0x61, 0x66, 0xE9 if n == 1501 else 0x65]).decode("utf-8")


for n in range(2000):
    parse(n)
"""
        },
        wanted="'utf-8' codec can't decode byte 0xe9 in position 3",
        helpful=(r"crawl_stats\.py", r"encoding|utf-8|latin|decode"),
        misleading=(r"network|out of memory|install",),
    ),
    Failure(
        name="u-permission-of-output-folder",
        way="the output folder is read-only for the user",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        command="setpriv --bounding-set=-all --inh-caps=-all bash night.sh",
        files={
            "night.sh": "mkdir -p results && chmod 555 results && exec python report.py\n",
            "report.py": """import csv

rows = [("epoch", "loss"), (1, 0.5), (2, 0.4)]
with open("results/metrics.csv", "w", newline="") as f:
    csv.writer(f).writerows(rows)
print("metrics written")
""",
        },
        wanted="Permission denied: 'results/metrics.csv'",
        helpful=(r"results|permission|chmod|writable",),
        misleading=(r"network|out of memory|install",),
    ),
    Failure(
        name="u-double-free-abort",
        way="free() of a wrong pointer aborts in native code",
        code="signal",
        command="python -X faulthandler bind.py",
        files={
            "bind.py": """import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]


def release(handle):
    libc.free(handle)


h = libc.malloc(4096)
release(h + 16)
print("released twice")
"""
        },
        wanted=(
            "double free or corruption",
            "free(): invalid",
            "munmap_chunk(): invalid pointer",
            "invalid pointer",
            "Aborted",
        ),
        helpful=(r"bind\.py", r"free|native|pointer|ctypes"),
        misleading=(r"network|out of memory|install",),
    ),
    Failure(
        name="u-batch-planner-does-not-fit",
        way="a batch-size finder on a fake device reports memory and raises",
        code="exception",
        command="python find_batch.py",
        files={
            "find_batch.py": """# the memory model of the accelerator, used to plan batches on machines without one
class DeviceModel:
    def __init__(self, gb):
        self.free = gb * 1024

    def reserve(self, mb, what):
        if mb > self.free:
            raise ValueError(f"plan does not fit: {what} needs {mb} MB, {self.free} MB left on the planned device")
        self.free -= mb


device = DeviceModel(24)
device.reserve(14_000, "weights")
for batch in (8, 16, 32):
    device.reserve(batch * 120, f"activations (batch {batch})")
    print("batch", batch, "fits", flush=True)
device.reserve(9_000, "optimizer state")
"""
        },
        wanted="plan does not fit: optimizer state needs 9000 MB",
        helpful=(r"find_batch\.py", r"batch|optimizer|plan"),
        misleading=(r"network|nvidia-smi|install",),
    ),
    Failure(
        name="u-asyncio-task-group",
        way="an exception group of an asyncio task group",
        code="exception",
        command="python fetch_shards.py",
        files={
            "fetch_shards.py": """import asyncio


class ChecksumMismatch(Exception):
    pass


async def fetch(n):
    await asyncio.sleep(0.05 * n)
    if n == 3:
        raise ChecksumMismatch("shard-0003.tar: expected 8f14e45f, got c9f0f895")
    print("fetched shard", n)


async def main():
    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(fetch(n))


asyncio.run(main())
"""
        },
        wanted="shard-0003.tar: expected 8f14e45f, got c9f0f895",
        helpful=(r"shard-0003|checksum|download", r"fetch_shards\.py"),
        misleading=(r"out of memory|port\b",),
    ),
    Failure(
        name="u-linear-after-smaller-images",
        way="the model's layers do not fit together",
        code="exception",
        command="python net.py",
        files={
            "net.py": """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.fc = nn.Linear(16 * 30 * 30, 10)

    def forward(self, x):
        return self.fc(torch.flatten(torch.relu(self.conv(x)), 1))


net = Net()
print(net(torch.zeros(2, 3, 32, 32)).shape)
print(net(torch.zeros(2, 3, 28, 28)).shape)
"""
        },
        wanted="mat1 and mat2 shapes cannot be multiplied (2x10816 and 14400x10)",
        helpful=(r"net\.py", r"shape|size|28|linear"),
        misleading=(r"network connection|out of memory|install",),
    ),
]
