"""Scripts that start processes by themselves."""

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|raise .{0,20}timeout|pip install"

FAILURES = [
    Failure(
        name="q-spawn-torch-child-raises",
        code="exception",
        convention="spawn",
        command="python train.py",
        files={
            "train.py": """import torch.multiprocessing as mp, time

def worker(i, n):
    print(f"worker {i}/{n}", flush=True)
    if i == 1:
        d = {"lr": 0.1}
        d["momentum"]
    time.sleep(3)

if __name__ == "__main__":
    mp.spawn(worker, args=(3,), nprocs=3)
"""
        },
        wanted="KeyError: 'momentum'",
        helpful=(r"train\.py", r"momentum"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-torch-child-sigsegv",
        code="exception",
        also_codes=("signal",),
        convention="spawn",
        command="python train.py",
        files={
            "train.py": """import ctypes, torch.multiprocessing as mp, time

def worker(i):
    if i == 0:
        time.sleep(0.2)
        ctypes.string_at(0)
    time.sleep(5)

if __name__ == "__main__":
    mp.spawn(worker, nprocs=2)
"""
        },
        wanted=("process 0 terminated with signal SIGSEGV",),
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-mp-pool-map",
        code="exception",
        convention="spawn",
        command="python count.py",
        files={
            "count.py": """from multiprocessing import Pool

def f(x):
    if x == 7:
        raise ValueError("bad row 7: 'n/a' is not a number")
    return x * x

if __name__ == "__main__":
    with Pool(3) as p:
        print(sum(p.map(f, range(12))))
"""
        },
        wanted="ValueError: bad row 7: 'n/a' is not a number",
        helpful=(r"count\.py", r"row"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-missing-main-guard",
        code="exception",
        convention="spawn",
        command="python run.py",
        files={
            "run.py": """import multiprocessing as mp
mp.set_start_method("spawn")

def f(i):
    print("child", i)

p = mp.Process(target=f, args=(1,))
p.start()
p.join()
raise SystemExit(p.exitcode)
"""
        },
        wanted=("RuntimeError: context has already been set", "An attempt has been made to start a new process"),
        helpful=(r"__main__", r"run\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-broken-process-pool",
        code="exception",
        also_codes=("signal",),
        convention="spawn",
        command="python tile.py",
        files={
            "tile.py": """import os
from concurrent.futures import ProcessPoolExecutor

def tile(i):
    if i == 4:
        os.kill(os.getpid(), 9)
    return i

if __name__ == "__main__":
    with ProcessPoolExecutor(2) as ex:
        for r in ex.map(tile, range(8)):
            print("tile", r, flush=True)
"""
        },
        wanted="A process in the process pool was terminated abruptly",
        helpful=(r"tile\.py", r"memory|worker|kill"),
        misleading=(r"firewall|pip install|MASTER_PORT",),
    ),
    Failure(
        name="q-spawn-child-error-parent-exit-1",
        code="exception",
        convention="spawn",
        command="python parent.py",
        files={
            "parent.py": """import multiprocessing as mp, sys

def child(q):
    batch = q.get()
    batch["x"].append(1)

if __name__ == "__main__":
    q = mp.Queue()
    p = mp.Process(target=child, args=(q,), name="trainer-0")
    p.start()
    q.put({"x": (1, 2)})
    p.join()
    if p.exitcode:
        print(f"[parent] {p.name} failed with exit code {p.exitcode}, see above")
        sys.exit(1)
"""
        },
        wanted="AttributeError: 'tuple' object has no attribute 'append'",
        helpful=(r"parent\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-pickle-lambda",
        code="exception",
        convention="spawn",
        command="python search.py",
        files={
            "search.py": """import multiprocessing as mp

class Trial:
    def __init__(self, fn):
        self.fn = fn

def go(t):
    return t.fn(2)

if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    with ctx.Pool(2) as pool:
        print(pool.map(go, [Trial(lambda x: x + i) for i in range(2)]))
"""
        },
        wanted=("Can't pickle <function <lambda>", "Can't pickle <function"),
        helpful=(r"search\.py", r"lambda"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-subprocess-check-call",
        code="exception",
        convention="spawn",
        command="python pipeline.py",
        files={
            "pipeline.py": """import subprocess, sys
for stage in ("clean", "train"):
    print("::: stage", stage, flush=True)
    subprocess.run([sys.executable, f"{stage}.py"], check=True)
""",
            "clean.py": "print('cleaned 10 rows')\n",
            "train.py": "w = [0.1, 0.2]\nprint(w[0] + w['bias'])\n",
        },
        wanted="TypeError: list indices must be integers or slices, not str",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-launcher-own-loop",
        code="exception",
        convention="spawn",
        command="bash launch_all.sh",
        files={
            "launch_all.sh": """#!/bin/bash
pids=()
for r in 0 1 2; do
  RANK=$r python -u worker.py 2>&1 | sed "s/^/[w$r] /" &
  pids+=($!)
done
rc=0
for p in "${pids[@]}"; do wait $p || rc=1; done
grep -q fail status.* && rc=5
echo "all workers have ended, rc=$rc"
exit $rc
""",
            "worker.py": """import os, time
r = int(os.environ["RANK"])
open(f"status.{r}", "w").write("fail" if r == 1 else "ok")
for i in range(4):
    print("it", i)
    time.sleep(0.05)
    if r == 1 and i == 2:
        float("1,5")
""",
        },
        wanted="ValueError: could not convert string to float: '1,5'",
        helpful=(r"worker\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-hang-time-limit",
        code="timeout",
        convention="spawn",
        command="python pool.py",
        rank=0,
        limit_s=4,
        files={
            "pool.py": """import multiprocessing as mp, time

def produce(q):
    for i in range(3):
        q.put(i)

if __name__ == "__main__":
    q = mp.Queue()
    p = mp.Process(target=produce, args=(q,))
    p.start()
    for _ in range(4):
        print("item", q.get(), flush=True)
"""
        },
        wanted=("q.get()", "4 s", "time limit"),
        helpful=(r"pool\.py", r"q\.get|queue"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    Failure(
        name="q-spawn-set-start-method-twice",
        code="exception",
        convention="spawn",
        command="python main.py",
        files={
            "lib.py": "import multiprocessing as mp\nmp.set_start_method('fork')\n",
            "main.py": "import lib\nimport multiprocessing as mp\nmp.set_start_method('spawn')\n",
        },
        wanted="RuntimeError: context has already been set",
        helpful=(r"main\.py", r"lib\.py", r"force|set_start_method"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-spawn-torch-gloo-port-in-script",
        code="port_trouble",
        convention="spawn",
        command="python hold.py & sleep 0.4; python train.py; rc=$?; kill %1; exit $rc",
        files={
            "hold.py": "import socket, time\ns = socket.create_server(('0.0.0.0', 12399))\ntime.sleep(200)\n",
            "train.py": """import os
import torch.multiprocessing as mp
import torch.distributed as dist

def run(rank, world):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12399"
    dist.init_process_group("gloo", rank=rank, world_size=world)

if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2, join=True)
""",
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"12399", r"MASTER_PORT"),
        misleading=(r"smaller batch|pip install|out of memory",),
    ),
    Failure(
        name="q-spawn-child-exits-silently",
        code="exit_code",
        convention="spawn",
        command="python sup.py",
        files={
            "sup.py": """import multiprocessing as mp, os, sys, time

def work(i):
    time.sleep(0.1 * i)
    if i == 2:
        sys.stderr.write("worker 2: CUDA_VISIBLE_DEVICES lists 2 devices but 3 workers were asked for\\n")
        sys.stderr.flush()
        os._exit(33)
    time.sleep(1)

if __name__ == "__main__":
    ps = [mp.Process(target=work, args=(i,)) for i in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    sys.exit(max(p.exitcode for p in ps))
"""
        },
        wanted="worker 2: CUDA_VISIBLE_DEVICES lists 2 devices but 3 workers were asked for",
        helpful=(r"CUDA_VISIBLE_DEVICES|devices|workers",),
        misleading=(WRONG_WAY, r"network"),
    ),
]
