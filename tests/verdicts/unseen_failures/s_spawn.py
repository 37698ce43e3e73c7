"""Scripts that start processes by themselves."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-sp-pool-map-remote",
        code="exception",
        convention="spawn",
        command="python -u pool.py",
        files={
            "pool.py": r"""from multiprocessing import Pool


def clean(row):
    user, price = row.split(";")
    return float(price.replace(",", "."))


if __name__ == "__main__":
    rows = ["a;1,5", "b;2,0", "c;n/a", "d;7,1"]
    with Pool(2) as pool:
        print(sum(pool.map(clean, rows)))
""",
        },
        wanted="ValueError: could not convert string to float: 'n/a'",
        helpful=(r"pool\.py|n/a|clean",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sp-executor-worker-killed",
        code="exception",
        convention="spawn",
        command="python -u executor.py",
        files={
            "executor.py": r"""import os, signal
from concurrent.futures import ProcessPoolExecutor


def render(n):
    if n == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


if __name__ == "__main__":
    with ProcessPoolExecutor(3) as pool:
        for value in pool.map(render, range(12)):
            print(value)
""",
        },
        wanted="A process in the process pool was terminated abruptly",
        helpful=(r"executor\.py|render|memory|worker|killed",),
        misleading=(r"network|pip install",),
        also_codes=("signal", "host_oom"),
    ),
    Failure(
        name="s-sp-spawn-without-main-guard",
        code="exception",
        convention="spawn",
        command="python -u noguard.py",
        files={
            "noguard.py": r"""import multiprocessing as mp

mp.set_start_method("spawn", force=True)


def work(n):
    print("work", n)


p = mp.Process(target=work, args=(1,))
p.start()
p.join()
if p.exitcode:
    raise SystemExit(p.exitcode)
""",
        },
        wanted="An attempt has been made to start a new process before the",
        helpful=(r"__main__|noguard\.py|guard",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sp-lambda-not-picklable",
        code="exception",
        convention="spawn",
        command="python -u lamb.py",
        files={
            "lamb.py": r"""import multiprocessing as mp

if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    jobs = [ctx.Process(target=lambda: print("train fold", fold)) for fold in range(2)]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
""",
        },
        wanted=("Can't pickle local object", "Can't get local object", "Can't pickle <function <lambda>", "<lambda>"),
        helpful=(r"lamb\.py|lambda|pickle",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sp-torch-spawn-second",
        code="exception",
        convention="spawn",
        command="python -u spawned.py",
        files={
            "spawned.py": r"""import torch
import torch.multiprocessing as mp


def train(i, n):
    torch.manual_seed(i)
    w = torch.randn(4, 4, requires_grad=True)
    y = w.mm(torch.ones(4, 1))
    (y if i == 1 else y.sum()).backward()
    print("worker", i, "of", n, "done")


if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
""",
        },
        wanted="RuntimeError: grad can be implicitly created only for scalar outputs",
        helpful=(r"spawned\.py|backward|scalar|sum|mean",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sp-children-codes-summed",
        code="exit_code",
        convention="spawn",
        command="python -u folds.py",
        files={
            "fold.py": r"""import sys

fold = int(sys.argv[1])
print(f"fold {fold}: 120 samples")
if fold == 3:
    print(f"fold {fold}: error: class 'rare' has a single member, cannot stratify", file=sys.stderr)
    sys.exit(2)
print(f"fold {fold}: f1 0.8{fold}")
""",
            "folds.py": r"""import subprocess, sys

children = [subprocess.Popen([sys.executable, "-u", "fold.py", str(n)]) for n in range(5)]
codes = [c.wait() for c in children]
print("exit codes:", codes)
sys.exit(1 if any(codes) else 0)
""",
        },
        wanted="fold 3: error: class 'rare' has a single member, cannot stratify",
        helpful=(r"rare|fold\.py|stratif|class",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="s-sp-queue-consumer-gone",
        code="exception",
        convention="spawn",
        command="python -u produce.py",
        limit_s=10,
        files={
            "produce.py": r"""import multiprocessing as mp


def consume(q):
    total = 0
    while (item := q.get()) is not None:
        total += item["tokens"]
    print("tokens", total)


if __name__ == "__main__":
    q = mp.Queue(maxsize=5)
    p = mp.Process(target=consume, args=(q,))
    p.start()
    for i in range(100):
        q.put({"tokens": i} if i != 40 else {"token": i})
    q.put(None)
    p.join()
""",
        },
        wanted="KeyError: 'tokens'",
        helpful=(r"produce\.py|tokens|consume",),
        misleading=(r"network|memory|longer limit",),
        also_codes=("timeout",),
    ),
    Failure(
        name="s-sp-joblib-like-deadlock",
        code="timeout",
        convention="spawn",
        command="python -u pipes.py",
        limit_s=10,
        files={
            "pipes.py": r"""import multiprocessing as mp


def child(conn):
    conn.send(b"x" * 5_000_000)
    conn.close()


if __name__ == "__main__":
    ours, theirs = mp.Pipe()
    p = mp.Process(target=child, args=(theirs,))
    p.start()
    print("waiting for the child to end", flush=True)
    p.join()
    print(len(ours.recv()))
""",
        },
        wanted=("did not", "hung", "stuck", "p.join()", "conn.send"),
        helpful=(r"pipes\.py|join|recv|send",),
        misleading=(r"memory|firewall",),
        rank=0,
    ),
]
