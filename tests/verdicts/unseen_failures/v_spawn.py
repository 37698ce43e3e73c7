"""Scripts that start processes by themselves: mp.spawn, multiprocessing, pools, subprocess."""

from functools import partial

from recorder import Failure

Spawn = partial(Failure, convention="spawn")

FAILURES = [
    Spawn(
        name="v-spawn-child-raises",
        way="mp.spawn: one child raises in its dataset",
        code="exception",
        command="python -u train_multi.py",
        files={
            "train_multi.py": """import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def lookup(name):
    known = {"train_0": 10, "train_1": 12, "train_3": 9}
    return known[name]


def run(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29871")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    rows = lookup(f"train_{rank}")
    total = torch.tensor(rows)
    dist.all_reduce(total)
    print("rank", rank, "total", total.item())


if __name__ == "__main__":
    mp.spawn(run, args=(4,), nprocs=4)
"""
        },
        wanted="KeyError: 'train_2'",
        helpful=(r"train_multi\.py|train_2|lookup",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Spawn(
        name="v-spawn-child-killed",
        way="mp.spawn: a child gets SIGKILL",
        code="signal",
        also_codes=("exception",),
        command="python main.py --workers 3",
        files={
            "main.py": """import argparse, os, signal, time
import torch.multiprocessing as mp

def work(i, n):
    print(f"child {i} of {n} started", flush=True)
    time.sleep(1)
    if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(20)

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    mp.spawn(work, args=(a.workers,), nprocs=a.workers, join=True)
"""
        },
        wanted=("process 1 terminated with signal SIGKILL", "SIGKILL"),
        helpful=(r"memory|kill|dmesg|child|process 1",),
        misleading=(r"firewall|port\b|network",),
    ),
    Spawn(
        name="v-spawn-no-main-guard",
        way="the start of processes is not guarded by __main__: workers fail and are started again until the limit",
        code="exception",
        also_codes=("timeout",),
        limit_s=10,
        command="python tokenize_all.py",
        files={
            "tokenize_all.py": """import multiprocessing as mp

mp.set_start_method("spawn")

def tokenize(text):
    return text.split()

pool = mp.Pool(2)
print(pool.map(tokenize, ["a b", "c d e"]))
"""
        },
        wanted=(
            "context has already been set",
            "before the\n        current process has finished its bootstrapping phase",
            "__main__",
        ),
        helpful=(r"__main__|tokenize_all\.py|guard|force",),
        misleading=(r"firewall|memory|port\b",),
    ),
    Spawn(
        name="v-spawn-pool-remote-traceback",
        way="a pool's worker raises a domain error in the 17th item; a lot of progress output",
        code="exception",
        command="python featurize.py",
        files={
            "featurize.py": """import math
from multiprocessing import Pool
from tqdm import tqdm

def featurize(x):
    return math.log(1.6 - x / 10)

if __name__ == "__main__":
    with Pool(4) as pool:
        out = list(tqdm(pool.imap(featurize, range(40)), total=40, desc="featurize"))
    print(len(out))
"""
        },
        wanted="ValueError: math domain error",
        helpful=(r"featurize\.py|log|negative|zero",),
        misleading=(r"firewall|memory|network",),
    ),
    Spawn(
        name="v-spawn-executor-broken",
        way="a worker of a ProcessPoolExecutor crashes in native code",
        code="signal",
        also_codes=("exception",),
        command="python embed.py",
        files={
            "embed.py": """import ctypes, logging
from concurrent.futures import ProcessPoolExecutor, as_completed

logging.basicConfig(level=logging.INFO, format="%(processName)s %(levelname)s %(message)s")

def embed(doc):
    logging.info("embedding %s", doc)
    if doc == "doc-05.pdf":
        ctypes.memset(16, 0, 64)        # the parser of PDFs writes through a null pointer
    return [0.0] * 8

def main():
    docs = [f"doc-{i:02d}.pdf" for i in range(10)]
    with ProcessPoolExecutor(2) as pool:
        futures = {pool.submit(embed, d): d for d in docs}
        for f in as_completed(futures):
            f.result()

if __name__ == "__main__":
    main()
"""
        },
        wanted=("A process in the process pool was terminated abruptly", "BrokenProcessPool"),
        helpful=(r"embed\.py|native|faulthandler|worker|memory|crash",),
        misleading=(r"firewall|port\b|network",),
    ),
    Spawn(
        name="v-spawn-queue-empty",
        way="the consumer's queue.get times out because the producer died with an exception",
        code="exception",
        command="python -u pipeline.py",
        files={
            "pipeline.py": """import multiprocessing as mp
import sys


def producer(q):
    sources = ["en", "de", "fr"]
    sizes = {"en": 3, "de": 2}
    for s in sources:
        for i in range(sizes[s]):
            q.put((s, i))


def main():
    q = mp.Queue()
    p = mp.Process(target=producer, args=(q,), name="producer")
    p.start()
    for n in range(8):
        item = q.get(timeout=3)
        print("consumed", n, item)


if __name__ == "__main__":
    main()
"""
        },
        wanted="KeyError: 'fr'",
        helpful=(r"pipeline\.py|producer|fr\b|sizes",),
        misleading=(r"firewall|memory|network|increase the timeout",),
    ),
    Spawn(
        name="v-spawn-exitcodes-checked",
        way="the parent checks the codes of its processes and exits with 1",
        code="exception",
        also_codes=("exit_code",),
        command="python launch.py",
        files={
            "launch.py": """import multiprocessing as mp, sys

def shard(k):
    data = list(range(k, 30, 3))
    if k == 2:
        data = data + [None]
    print("shard", k, "sum", sum(data), flush=True)

if __name__ == "__main__":
    ps = [mp.Process(target=shard, args=(k,)) for k in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    codes = [p.exitcode for p in ps]
    if any(codes):
        print("some shards failed, exit codes", codes, file=sys.stderr)
        sys.exit(1)
"""
        },
        wanted="unsupported operand type(s) for +: 'int' and 'NoneType'",
        helpful=(r"launch\.py|None|shard",),
        misleading=(r"firewall|memory|network",),
    ),
    Spawn(
        name="v-spawn-subprocess-check",
        way="a driver calls a training script with check=True, and the script rejects its arguments",
        code="bad_input",
        also_codes=("exception",),
        command="python sweep.py",
        files={
            "sweep.py": """import itertools, subprocess, sys

for lr, wd in itertools.product(["1e-3", "3e-4"], ["0", "0.1"]):
    command = [sys.executable, "fit.py", "--lr", lr, "--weight-decay", wd, "--optim", "lion"]
    print("+", " ".join(command[1:]), flush=True)
    subprocess.run(command, check=True)
""",
            "fit.py": """import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
p.add_argument("--weight-decay", type=float)
p.add_argument("--optim", choices=["sgd", "adam", "adamw"])
print(p.parse_args())
""",
        },
        wanted="invalid choice: 'lion'",
        helpful=(r"--optim|lion|fit\.py|sweep\.py",),
        misleading=(r"firewall|memory|network",),
    ),
    Spawn(
        name="v-spawn-join-for-ever",
        way="a child fills a pipe that nobody reads, the parent joins; the limit passes",
        code="timeout",
        limit_s=9,
        command="python -u collect.py",
        files={
            "collect.py": """import multiprocessing as mp

def simulate(q, seed):
    q.put(bytes(500_000))
    print("simulation", seed, "done")

if __name__ == "__main__":
    q = mp.Queue()
    workers = [mp.Process(target=simulate, args=(q, s)) for s in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        print("joined")
    print(sum(len(q.get()) for _ in workers))
"""
        },
        wanted=("w.join()", "join", "simulation"),
        helpful=(r"collect\.py|join|queue|q\.get|drain",),
        misleading=(r"firewall|out of memory|network",),
    ),
    Spawn(
        name="v-spawn-start-method-cuda",
        way="a lambda cannot be sent to spawned processes",
        code="exception",
        command="python render.py",
        files={
            "render.py": """import multiprocessing as mp

if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    p = ctx.Process(target=lambda: print("rendering"))
    p.start()
    p.join()
"""
        },
        wanted=("Can't pickle", "Can't get local object"),
        helpful=(r"render\.py|lambda|pickle|function",),
        misleading=(r"firewall|memory|network",),
    ),
]
