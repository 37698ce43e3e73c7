"""Gangs in which one rank hangs, until the job's time limit passes or the others lose patience."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=3, code="timeout", limit_s=35)
STUCK = ("did not", "hung", "stuck", "hang")
NOT_NETWORK = (r"firewall|MASTER_ADDR|memory|--oversubscribe",)

FAILURES = [
    Gang(
        name="u-upload-loop-without-end",
        way="rank 0 waits for an upload that never completes",
        rank=0,
        command="python -u train_and_upload.py",
        files={
            "train_and_upload.py": """import os, time
import torch
import torch.distributed as dist


def wait_for_upload(marker, poll=1.0):
    \"\"\"The sidecar removes the marker when the upload is through.\"\"\"
    while os.path.exists(marker):
        time.sleep(poll)


dist.init_process_group("gloo")
w = torch.zeros(4)
for epoch in range(3):
    dist.all_reduce(w)
    if dist.get_rank() == 0:
        open("UPLOADING", "w").write(str(epoch))
        print(f"epoch {epoch} finished, uploading checkpoint", flush=True)
        wait_for_upload("UPLOADING")
    dist.barrier()
"""
        },
        wanted=("wait_for_upload", "time.sleep(poll)", *STUCK),
        helpful=(r"train_and_upload\.py", r"upload"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-lock-taken-twice",
        way="a logger's lock is taken twice on rank 2",
        rank=2,
        command="python learner.py",
        files={
            "learner.py": """import threading, torch, torch.distributed as dist


class Metrics:
    def __init__(self):
        self._lock = threading.Lock()
        self.values = {}

    def add(self, key, value):
        with self._lock:
            self.values.setdefault(key, []).append(value)
            if len(self.values[key]) >= 16:
                self.flush()

    def flush(self):
        with self._lock:
            self.values.clear()


dist.init_process_group("gloo")
m = Metrics()
t = torch.ones(1)
for step in range(50):
    dist.all_reduce(t)
    m.add("loss", float(t))
    if dist.get_rank() == 2:
        m.add("loss", 0.0)
    t.fill_(1.0)
    if step % 5 == 0:
        print("step", step, flush=True)
    if dist.get_rank() != 2 and step % 15 == 14:
        m.values.clear()
""",
        },
        wanted=("flush", "with self._lock", *STUCK),
        helpful=(r"learner\.py", r"lock|RLock|flush"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-fewer-batches-on-last-rank",
        way="the last rank has fewer batches, others wait in all_reduce",
        also_codes=("collective",),
        rank=2,
        command="python train_uneven.py",
        files={
            "train_uneven.py": """import torch, torch.distributed as dist, time

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
samples = list(range(1000))[rank::world]
if rank == world - 1:
    samples = samples[:-40]          # filtered: too long
batches = [samples[i:i + 10] for i in range(0, len(samples), 10)]
print(f"rank {rank}: {len(batches)} batches", flush=True)
g = torch.zeros(8)
for n, b in enumerate(batches):
    g.fill_(sum(b))
    dist.all_reduce(g)
print(f"rank {rank}: epoch done after {len(batches)} batches, validating", flush=True)
score = torch.zeros(2)
dist.broadcast(score, src=0)
print("validated", score, flush=True)
"""
        },
        wanted=("rank 2: 30 batches", "epoch done after 30 batches", "dist.broadcast(score", "broadcast"),
        helpful=(r"train_uneven\.py", r"batch|drop_last|join|uneven"),
        misleading=(r"firewall|MASTER_ADDR|memory",),
    ),
    Gang(
        name="u-order-of-collectives",
        way="rank 0 alone goes into an extra broadcast before the barrier",
        also_codes=("collective",),
        rank=0,
        processes=2,
        command="python vae.py --log-images",
        files={
            "vae.py": """import sys
import torch
import torch.distributed as dist


def log_images(step):
    grid = torch.rand(3, 8, 8)
    out = [torch.empty_like(grid) for _ in range(dist.get_world_size())]
    dist.all_gather(out, grid)
    print(f"step {step}: logged {len(out)} grids", flush=True)


def main():
    dist.init_process_group("gloo")
    loss = torch.ones(1)
    for step in range(1, 21):
        if step % 10 == 0 and dist.get_rank() == 0 and "--log-images" in sys.argv:
            log_images(step)
        obj = [None]
        if dist.get_rank() == 0:
            obj = [{"lr": 0.1 / step}]
        dist.barrier()
        dist.broadcast_object_list(obj, src=0)


main()
"""
        },
        wanted=("log_images", "dist.all_gather(out, grid)", "all_gather"),
        helpful=(r"vae\.py", r"log_images|all_gather|every rank|all ranks|rank 0"),
        misleading=(r"firewall|MASTER_ADDR|memory",),
    ),
    Gang(
        name="u-fifo-never-written",
        way="rank 1 reads a pipe that nobody writes",
        rank=1,
        command="python stream_train.py",
        files={
            "stream_train.py": """import os, torch, torch.distributed as dist

rank = int(os.environ["RANK"])
pipe = f"feed.{rank}"
if not os.path.exists(pipe):
    os.mkfifo(pipe)
pid = 0
if rank != 1:                      # feeder of rank 1 is meant to come from the other box
    pid = os.fork()
    if pid == 0:
        with open(pipe, "wb") as f:
            f.write(b"\\x01" * 4096)
        os._exit(0)
dist.init_process_group("gloo")
print(f"rank {rank} opening {pipe}", flush=True)
with open(pipe, "rb") as feed:
    chunk = feed.read(64)
total = torch.tensor([float(sum(chunk))])
dist.all_reduce(total)
print("total", total.item())
"""
        },
        wanted=("rank 1 opening feed.1", 'open(pipe, "rb")', *STUCK),
        helpful=(r"stream_train\.py", r"feed|pipe|fifo"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-breakpoint-left-in",
        way="a breakpoint was left in, there is no terminal",
        rank=0,
        code="exception",
        limit_s=40,
        command="python -u train.py",
        files={
            "train.py": """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.arange(6.0)
for i in range(4):
    y = x * i
    dist.all_reduce(y)
    if i == 2 and dist.get_rank() == 0:
        breakpoint()
    print(i, y.sum())
"""
        },
        wanted=("bdb.BdbQuit", "breakpoint()", "BdbQuit"),
        helpful=(r"breakpoint|debugger|pdb|stdin|interactive", r"train\.py"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-regex-backtracking",
        way="one rank burns time in a regular expression",
        rank=1,
        processes=2,
        command="python -u tokenize_and_train.py",
        files={
            "clean.py": """import re
QUOTED = re.compile(r'^(\\s*"?(\\w+\\s?)*"?)*$')

def is_clean(line):
    return QUOTED.match(line) is not None
""",
            "tokenize_and_train.py": """import torch, torch.distributed as dist
from clean import is_clean
dist.init_process_group("gloo")
r = dist.get_rank()
docs = ["short text of words"] * 30
if r == 1:
    docs[17] = "word" * 12 + " more words here and there and some" + "!"
for n, d in enumerate(docs):
    ok = torch.tensor([1 if is_clean(d) else 0])
    dist.all_reduce(ok)
    print(f"doc {n} clean on {ok.item()} ranks")
""",
        },
        wanted=("is_clean", "QUOTED.match", *STUCK),
        helpful=(r"clean\.py", r"regular expression|regex|backtrack|QUOTED"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-stopped-by-sigstop",
        way="one rank stops itself (job control) and never continues",
        rank=2,
        command="python -u worker.py",
        files={
            "worker.py": """import os, signal, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
buf = torch.zeros(1)


def pause_if_asked(step):
    # operators can pause a worker with a file, `fg` brings it back
    if os.path.exists(f"pause.{rank}"):
        print(f"rank {rank}: pause file found at step {step}, stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


for step in range(100):
    dist.all_reduce(buf)
    if rank == 0 and step == 20:
        open("pause.2", "w").close()
    if step > 25:
        pause_if_asked(step)
    dist.barrier()
"""
        },
        wanted=("pause file found", "stopping", *STUCK),
        helpful=(r"worker\.py", r"pause|SIGSTOP|stopp"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-every-rank-too-slow",
        way="nobody hangs, the limit is too short for the epochs",
        rank=None,
        limit_s=25,
        command="python train.py --epochs 400",
        files={
            "train.py": """import sys, time, torch, torch.distributed as dist
from tqdm import tqdm
dist.init_process_group("gloo")
epochs = int(sys.argv[sys.argv.index("--epochs") + 1])
w = torch.zeros(1000)
for e in tqdm(range(epochs), desc="train", mininterval=1, disable=dist.get_rank() != 0):
    time.sleep(0.3)
    dist.all_reduce(w)
"""
        },
        wanted=("time limit", "train:", "limit"),
        helpful=(r"limit|timeout", r"epoch|checkpoint|fewer|longer"),
        misleading=(r"firewall|MASTER_ADDR|deadlock",),
    ),
    Gang(
        name="u-queue-get-dead-producer",
        way="the producer thread of one rank died, its consumer waits",
        code="timeout",
        also_codes=("exception",),
        rank=1,
        processes=2,
        command="python -u prefetch_train.py",
        files={
            "prefetch_train.py": """import queue, threading
import torch, torch.distributed as dist


class Prefetcher(threading.Thread):
    def __init__(self, rank):
        super().__init__(daemon=True, name="prefetch")
        self.rank, self.q = rank, queue.Queue(4)

    def run(self):
        for n in range(60):
            record = {"pixels": [n] * 4}
            if self.rank == 1 and n == 23:
                record = {"pixel": [n] * 4}
            self.q.put(torch.tensor(record["pixels"], dtype=torch.float32))


dist.init_process_group("gloo")
p = Prefetcher(dist.get_rank())
p.start()
for n in range(60):
    batch = p.q.get()
    dist.all_reduce(batch)
    if n % 10 == 0:
        print("iter", n, batch.mean().item())
"""
        },
        wanted=("KeyError: 'pixels'",),
        helpful=(r"prefetch_train\.py", r"pixels|prefetch|thread|queue"),
        misleading=NOT_NETWORK,
    ),
    Gang(
        name="u-monitored-barrier-names-rank",
        way="a monitored barrier of rank 0 names the missing rank",
        code="collective",
        rank=2,
        processes=4,
        limit_s=None,
        command="python eval_loop.py",
        files={
            "eval_loop.py": """import datetime, logging, time
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=90))
rank = dist.get_rank()


def write_predictions(n):
    logging.info("rank %d writing %d predictions to the feature store", rank, n)
    time.sleep(300 if rank == 2 else 0.2)


write_predictions(50_000)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=8))
logging.info("all predictions written")
"""
        },
        wanted=("write_predictions", "rank 2 writing", "Rank 2 failed to pass monitoredBarrier", "time.sleep(300"),
        helpful=(r"eval_loop\.py", r"write_predictions|feature store|slow|timeout"),
        misleading=(r"firewall|MASTER_ADDR|memory",),
    ),
    Gang(
        name="u-gloo-timeout-one-asleep",
        way="gloo's own timeout ends the others while one rank waits for a licence",
        code="collective",
        rank=3,
        processes=4,
        limit_s=None,
        command="python -u simulate_and_learn.py",
        files={
            "licence.py": """import time, os

def checkout(feature, tries=120):
    for n in range(tries):
        if os.path.exists("licence.free"):
            return
        if n % 5 == 0:
            print(f"licence '{feature}' busy, waiting (try {n})", flush=True)
        time.sleep(1)
""",
            "simulate_and_learn.py": """import os
from datetime import timedelta
import torch, torch.distributed as dist
import licence

dist.init_process_group("gloo", timeout=timedelta(seconds=12))
rank = dist.get_rank()
policy = torch.zeros(10)
for rollout in range(6):
    if rank == 3 and rollout == 2:
        licence.checkout("solver-pro")
    dist.all_reduce(policy)
    print(f"rollout {rollout} merged")
""",
        },
        wanted=("licence 'solver-pro' busy", "licence.checkout", "checkout"),
        helpful=(r"licence|solver-pro", r"simulate_and_learn\.py"),
        misleading=(r"firewall|MASTER_ADDR|memory",),
    ),
    Gang(
        name="u-leaves-after-early-stop",
        way="one rank stops early and exits with 0, the others lose it",
        code="collective",
        rank=1,
        limit_s=None,
        command="python train_es.py --patience 3",
        files={
            "train_es.py": """import sys
import torch
import torch.distributed as dist


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, 1e9, 0

    def __call__(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience


dist.init_process_group("gloo")
rank = dist.get_rank()
stop = EarlyStopping(int(sys.argv[-1]))
grad = torch.zeros(128)
for epoch in range(200):
    dist.all_reduce(grad)
    val = 1.0 / (epoch + 1) if rank != 1 or epoch < 5 else 0.5
    if stop(val):
        print(f"[rank{rank}] early stopping at epoch {epoch}, best {stop.best:.3f}", flush=True)
        sys.exit()
"""
        },
        wanted=("early stopping at epoch",),
        helpful=(r"train_es\.py", r"early stop|same epoch|all ranks|every rank|broadcast"),
        misleading=(r"firewall|MASTER_ADDR|memory",),
    ),
    Gang(
        name="u-atexit-join-hangs",
        way="one rank fails, its non-daemon thread keeps it alive till the limit",
        code="exception",
        also_codes=("timeout",),
        rank=0,
        processes=2,
        limit_s=30,
        command="python -u main.py",
        files={
            "main.py": """import threading, time
import torch, torch.distributed as dist


def heartbeat():
    while True:
        time.sleep(5)


dist.init_process_group("gloo")
threading.Thread(target=heartbeat).start()
t = torch.ones(2)
for step in range(30):
    dist.all_reduce(t)
    if dist.get_rank() == 0 and step == 11:
        t = t.view(3)
    t.fill_(1)
    print("step", step)
"""
        },
        wanted="shape '[3]' is invalid for input of size 2",
        helpful=(r"main\.py", r"view|shape"),
        misleading=(r"firewall|MASTER_ADDR",),
    ),
]
