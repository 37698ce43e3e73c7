"""Scripts that start processes by themselves."""
# ruff: noqa: E501

from recorder import Failure

WRONG_WAY = r"firewall|submit again|pip install"


def spawn(name: str, source: str, code: str = "exception", **labels: object) -> Failure:
    labels = {"misleading": (WRONG_WAY,), "command": "python main.py", "files": {"main.py": source}} | labels
    return Failure(name=name, code=code, convention="spawn", **labels)  # type: ignore[arg-type]


FAILURES = [
    spawn(
        "r-spawn-no-main-guard",
        """import multiprocessing as mp

def work(n):
    print(n)

mp.set_start_method("spawn")
p = mp.Process(target=work, args=(1,))
p.start()
p.join()
raise SystemExit(p.exitcode)
""",
        wanted=(
            "An attempt has been made to start a new process before the current process has finished its bootstrapping phase",
            "context has already been set",
        ),
        helpful=(r"__main__|main\.py",),
    ),
    spawn(
        "r-spawn-lambda-to-pool",
        """import multiprocessing as mp

if __name__ == "__main__":
    with mp.Pool(2) as pool:
        print(pool.map(lambda x: x * x, range(4)))
""",
        wanted=("Can't pickle <function <lambda>", "Can't get local object", "Can't get attribute '<lambda>'"),
        helpful=(r"lambda|main\.py",),
    ),
    spawn(
        "r-spawn-executor-worker-dies",
        """import os
from concurrent.futures import ProcessPoolExecutor

def resize(n):
    if n == 3:
        os._exit(11)
    return n

if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(resize, range(6))))
""",
        wanted="concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
        helpful=(r"main\.py|memory|worker|process",),
    ),
    spawn(
        "r-spawn-remote-traceback",
        """from concurrent.futures import ProcessPoolExecutor

def area(box):
    return (box["x1"] - box["x0"]) * (box["y1"] - box["y0"])

if __name__ == "__main__":
    boxes = [{"x0": 0, "x1": 2, "y0": 0, "y1": 1}, {"x0": 0, "x1": 2, "y0": 0}]
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(area, boxes)))
""",
        wanted="KeyError: 'y1'",
        helpful=(r"main\.py|y1",),
    ),
    spawn(
        "r-spawn-child-exit-code-checked",
        """import multiprocessing as mp, sys

def work(part):
    if part == 2:
        raise LookupError(f"speaker 77 of part {part} is not in speakers.tsv")

if __name__ == "__main__":
    children = [mp.Process(target=work, args=(n,)) for n in range(3)]
    [c.start() for c in children]
    [c.join() for c in children]
    bad = [n for n, c in enumerate(children) if c.exitcode]
    if bad:
        print(f"{len(bad)} of {len(children)} parts failed: {bad}")
        sys.exit(1)
""",
        also_codes=("exit_code",),
        wanted="LookupError: speaker 77 of part 2 is not in speakers.tsv",
        helpful=(r"main\.py|speakers\.tsv|speaker 77",),
    ),
    spawn(
        "r-spawn-torch-mp-ddp",
        """import os
import torch, torch.distributed as dist, torch.multiprocessing as mp

def worker(rank, world):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29877"
    dist.init_process_group("gloo", rank=rank, world_size=world)
    logits = torch.randn(4, 10)
    target = torch.tensor([0, 3, 12 if rank == 1 else 2, 9])
    loss = torch.nn.functional.cross_entropy(logits, target)
    dist.all_reduce(loss)

if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
""",
        wanted="IndexError: Target 12 is out of bounds",
        helpful=(r"main\.py|classes|label|target",),
    ),
    spawn(
        "r-spawn-fork-in-lightning-style-launcher",
        """import multiprocessing as mp, time, sys

def worker(rank, errors):
    try:
        if rank == 1:
            [].pop()
        time.sleep(1)
    except Exception as e:
        errors.put((rank, repr(e)))
        sys.exit(1)

if __name__ == "__main__":
    errors = mp.Queue()
    ps = [mp.Process(target=worker, args=(r, errors)) for r in range(3)]
    [p.start() for p in ps]
    [p.join() for p in ps]
    if not errors.empty():
        rank, error = errors.get()
        raise RuntimeError(f"worker {rank} failed: {error}")
""",
        wanted="RuntimeError: worker 1 failed: IndexError('pop from empty list')",
        helpful=(r"main\.py|pop",),
    ),
    spawn(
        "r-spawn-queue-never-filled",
        """import multiprocessing as mp, queue

def load(q):
    for n in range(3):
        q.put(n)

if __name__ == "__main__":
    q = mp.Queue()
    mp.Process(target=load, args=(q,)).start()
    for n in range(5):
        print("batch", q.get(timeout=2), flush=True)
""",
        wanted=("_queue.Empty", "queue.Empty"),
        helpful=(r"main\.py|queue|q\.get|timeout",),
    ),
    spawn(
        "r-spawn-child-segfault-signal-code",
        """import ctypes, multiprocessing as mp, sys

def native():
    ctypes.string_at(0)

if __name__ == "__main__":
    p = mp.Process(target=native)
    p.start()
    p.join()
    print(f"feature extractor ended with {p.exitcode}", file=sys.stderr)
    sys.exit(abs(p.exitcode))
""",
        code="exit_code",
        also_codes=("signal",),
        wanted="feature extractor ended with -11",
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes|main\.py|SIGSEGV|-11",),
    ),
    spawn(
        "r-spawn-joblib-like-timeout",
        """import multiprocessing as mp, time

def slow(n):
    time.sleep(30 if n == 2 else 0)
    return n

if __name__ == "__main__":
    pool = mp.Pool(3)
    jobs = [pool.apply_async(slow, (n,)) for n in range(3)]
    print([j.get(timeout=3) for j in jobs])
""",
        wanted=("multiprocessing.context.TimeoutError", "TimeoutError"),
        helpful=(r"main\.py|timeout|get",),
    ),
    spawn(
        "r-spawn-shm-full",
        """import torch
from torch.utils.data import DataLoader, Dataset

class Video(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(3_000_000)

if __name__ == "__main__":
    for batch in DataLoader(Video(), batch_size=2, num_workers=2):
        print(batch.shape, flush=True)
""",
        code="shm_too_small",
        command="unshare -m sh -c 'mount -t tmpfs -o size=4m none /dev/shm; python main.py'",
        wanted=("Bus error", "shared memory", "shm"),
        helpful=(r"shm|shared memory|num_workers",),
        misleading=(r"firewall|pip install|MASTER_PORT",),
    ),
    spawn(
        "r-spawn-manager-gone",
        """import multiprocessing as mp, os, signal, time

if __name__ == "__main__":
    manager = mp.Manager()
    scores = manager.dict()
    os.kill(manager._process.pid, signal.SIGKILL)
    time.sleep(0.5)
    scores["a"] = 1
""",
        wanted=("ConnectionRefusedError", "EOFError", "BrokenPipeError", "FileNotFoundError", "ConnectionResetError"),
        helpful=(r"main\.py|manager|scores",),
    ),
]
