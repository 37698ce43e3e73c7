"""Scripts that start processes by themselves."""

from functools import partial

from recorder import Failure

Spawn = partial(Failure, convention="spawn")

FAILURES = [
    Spawn(
        name="u-sp-mp-spawn-one-raises",
        way="torch.multiprocessing.spawn: process 2 raises",
        code="exception",
        command="python ddp_spawn.py",
        files={
            "ddp_spawn.py": """import os, tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world, init):
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    sizes = [10, 10, 11]
    t = torch.zeros(10)
    for step in range(5):
        if rank == 2 and step == 3:
            t.copy_(torch.zeros(sizes[rank]))
        dist.all_reduce(t)
        print(f"[{rank}] step {step}", flush=True)


if __name__ == "__main__":
    init = "file://" + os.path.join(tempfile.mkdtemp(), "store")
    mp.spawn(worker, args=(3, init), nprocs=3)
"""
        },
        wanted="The size of tensor a (10) must match the size of tensor b (11)",
        helpful=(r"ddp_spawn\.py", r"size|shape"),
        misleading=(r"network|memory|install",),
    ),
    Spawn(
        name="u-sp-pool-worker-killed",
        way="a process pool's worker is killed",
        code="exception",
        also_codes=("host_oom", "signal"),
        command="python -u featurize.py",
        files={
            "featurize.py": """import os, signal
from concurrent.futures import ProcessPoolExecutor


def featurize(n):
    if n == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        for n, value in enumerate(pool.map(featurize, range(40))):
            print("document", n, value)
"""
        },
        wanted=("A process in the process pool was terminated abruptly",),
        helpful=(r"featurize\.py", r"memory|killed|worker"),
        misleading=(r"network|install",),
    ),
    Spawn(
        name="u-sp-missing-main-guard",
        way="spawn without the main guard",
        code="exception",
        also_codes=("timeout",),
        command="python prepare.py",
        files={
            "prepare.py": """import multiprocessing as mp

mp.set_start_method("spawn")


def shard(n):
    return list(range(n))


pool = mp.Pool(2)
print(pool.map(shard, [1, 2, 3]))
"""
        },
        limit_s=25,
        wanted=("current process has finished its bootstrapping phase", "context has already been set"),
        helpful=(r"__main__", r"prepare\.py"),
        misleading=(r"network|memory|install",),
    ),
    Spawn(
        name="u-sp-queue-unpicklable",
        way="a lambda cannot be sent to a spawned process",
        code="exception",
        command="python actors.py",
        files={
            "actors.py": """import multiprocessing as mp


class Actor(mp.get_context("spawn").Process):
    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def run(self):
        print(self.policy(1))


if __name__ == "__main__":
    a = Actor(policy=lambda obs: obs * 2)
    a.start()
    a.join()
    raise SystemExit(a.exitcode)
"""
        },
        wanted=("Can't pickle", "<lambda>"),
        helpful=(r"actors\.py", r"lambda|pickle"),
        misleading=(r"network|memory|install",),
    ),
    Spawn(
        name="u-sp-child-code-summed",
        way="the parent checks its children's codes and leaves with a line",
        code="exception",
        also_codes=("exit_code",),
        command="python -u launcher.py --workers 4",
        files={
            "launcher.py": """import subprocess, sys, os

n = int(sys.argv[2])
children = []
for i in range(n):
    env = dict(os.environ, WORKER_ID=str(i), NUM_WORKERS=str(n))
    children.append(subprocess.Popen([sys.executable, "worker.py"], env=env))
codes = [c.wait() for c in children]
print("exit codes:", codes)
if any(codes):
    print(f"launcher: {sum(map(bool, codes))} worker(s) failed", file=sys.stderr)
    sys.exit(1)
""",
            "worker.py": """import os, datetime
me = int(os.environ["WORKER_ID"])
days = ["2024-02-27", "2024-02-28", "2023-02-29", "2024-03-01"]
day = datetime.date.fromisoformat(days[me])
print(f"worker {me} processes {day:%d %B %Y}")
""",
        },
        wanted="day is out of range for month",
        helpful=(r"worker\.py", r"2023-02-29|date"),
        misleading=(r"network|memory|install",),
    ),
    Spawn(
        name="u-sp-deadlock-join-before-get",
        way="the parent joins a child whose queue is full",
        code="timeout",
        limit_s=15,
        command="python collect.py",
        files={
            "collect.py": """from multiprocessing import Process, Queue


def produce(q):
    print("producing", flush=True)
    q.put(b"x" * 20_000_000)
    print("produced", flush=True)


if __name__ == "__main__":
    q = Queue()
    p = Process(target=produce, args=(q,))
    p.start()
    p.join()
    print("got", len(q.get()))
"""
        },
        wanted=("p.join()", "join", "collect.py"),
        helpful=(r"collect\.py", r"join|queue|q\.get"),
        misleading=(r"network|memory|install",),
    ),
    Spawn(
        name="u-sp-two-servers-one-port",
        way="the spawned server's port is taken by its twin",
        code="port_trouble",
        also_codes=("exception",),
        command="python replicas.py",
        files={
            "replicas.py": """import http.server, multiprocessing as mp, sys, time

PORT = 28931


def serve(replica):
    time.sleep(replica)
    server = http.server.HTTPServer(("127.0.0.1", PORT), http.server.SimpleHTTPRequestHandler)
    print(f"replica {replica} listens on {PORT}", flush=True)
    server.timeout = 1
    for _ in range(4):
        server.handle_request()


if __name__ == "__main__":
    replicas = [mp.Process(target=serve, args=(n,)) for n in range(2)]
    [r.start() for r in replicas]
    [r.join() for r in replicas]
    sys.exit(max(r.exitcode for r in replicas))
"""
        },
        wanted="Address already in use",
        helpful=(r"28931|port", r"replicas\.py"),
        misleading=(r"memory|install",),
    ),
    Spawn(
        name="u-sp-worker-init-seed",
        way="a loader's worker_init_fn raises in every worker",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import random
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def seed_worker(worker_id):
    seed = torch.initial_seed() * 7919
    np.random.seed(seed)
    random.seed(seed)


if __name__ == "__main__":
    data = TensorDataset(torch.arange(100).float())
    loader = DataLoader(data, batch_size=10, num_workers=2, worker_init_fn=seed_worker)
    for (x,) in loader:
        print(x.mean().item(), flush=True)
"""
        },
        wanted="Seed must be between 0 and 2**32 - 1",
        helpful=(r"train\.py", r"seed"),
        misleading=(r"network|memory|install|shm",),
    ),
    Spawn(
        name="u-sp-child-traceback-as-text",
        way="a child raises and its error is sent to the parent as text",
        code="exception",
        command="python -u runner.py",
        files={
            "runner.py": """import multiprocessing as mp
import traceback


class ChildFailed(RuntimeError):
    pass


def trial(conn, space):
    try:
        conn.send(("ok", {k: 1 / v for k, v in space.items()}))
    except BaseException:
        conn.send(("error", traceback.format_exc()))


def run(space):
    here, there = mp.Pipe()
    p = mp.Process(target=trial, args=(there, space))
    p.start()
    kind, value = here.recv()
    p.join()
    if kind == "error":
        raise ChildFailed("trial failed, its traceback was:\\n\\n" + value)
    return value


if __name__ == "__main__":
    print(run({"lr": 0.1, "dropout": 0.3}))
    print(run({"lr": 0.1, "dropout": 0.0}))
""",
        },
        wanted=("float division by zero", "division by zero"),
        helpful=(r"runner\.py", r"dropout|zero"),
        misleading=(r"network|memory|install",),
    ),
]
