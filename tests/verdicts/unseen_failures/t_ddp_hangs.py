"""DDP and bare collectives over gloo: ranks that hang, come late, leave early or call something else."""

from functools import partial

from recorder import Failure

COMMON = r"""import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(*words):
    print(time.strftime("%H:%M:%S"), f"r{RANK}/{WORLD}", *words, flush=True)


def init(seconds=5):
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    say("initialised")


def reduce_some(times, pause=0.0):
    for i in range(times):
        t = torch.ones(1000)
        dist.all_reduce(t)
        time.sleep(pause)
    say("reduced", times, "times")
"""

hang = partial(
    Failure, code="collective", convention="process", command="python main.py", misleading=(r"memory|disk|firewall",)
)


def files(main: str) -> dict[str, str]:
    return {"common.py": COMMON, "main.py": "from common import *\n" + main}


FAILURES = [
    hang(
        name="t-hang-stale-lock-file",
        way="one rank waits for a lock file that nobody removes",
        processes=4,
        files=files(r"""
def wait_for_cache(path):
    while os.path.exists(path):
        time.sleep(0.2)

open("cache.lock", "w").close()
init()
reduce_some(3)
if RANK == 3:
    say("waiting for cache.lock")
    wait_for_cache("cache.lock")
reduce_some(3)
"""),
        wanted=("wait_for_cache", "waiting for cache.lock", "did not", "hung", "stuck", "did not respond"),
        helpful=(r"main\.py|wait_for_cache|cache\.lock|rank 3",),
        rank=3,
    ),
    hang(
        name="t-hang-named-pipe",
        way="one rank opens a pipe into which nobody writes",
        processes=3,
        files=files(r"""
init()
reduce_some(2)
if RANK == 1:
    os.mkfifo("commands")
    with open("commands") as pipe:
        say("command", pipe.read())
reduce_some(2)
dist.destroy_process_group()
"""),
        wanted=('open("commands")', "did not", "hung", "stuck"),
        helpful=(r"main\.py|commands|rank 1",),
        rank=1,
    ),
    hang(
        name="t-hang-busy-loop",
        way="a search for a batch size that never ends on one rank",
        processes=6,
        files=files(r"""
def largest_batch(n):
    while n % 8:  # a multiple of 8 must come some day
        n = (n + 16) % 1000
    return n

init(6)
reduce_some(2)
batch = largest_batch(101) if RANK == 4 else 32
say("batch", batch)
reduce_some(2)
"""),
        wanted=("largest_batch", "did not", "hung", "stuck"),
        helpful=(r"main\.py|largest_batch|rank 4",),
        rank=4,
    ),
    hang(
        name="t-hang-thread-lock-twice",
        way="a lock is taken twice by the same thread of one rank",
        processes=4,
        nodes=2,
        files=files(r"""
import threading

class Meter:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = []

    def add(self, value):
        with self.lock:
            self.values.append(value)
            if len(self.values) > 2:
                self.flush()

    def flush(self):
        with self.lock:
            self.values.clear()

init()
meter = Meter()
for i in range(5):
    reduce_some(1)
    if RANK == 2:
        meter.add(i)
"""),
        wanted=("flush", "with self.lock", "did not", "hung", "stuck"),
        helpful=(r"main\.py|lock|flush|rank 2",),
        rank=2,
    ),
    hang(
        name="t-hang-queue-in-dataset",
        way="a data set waits for a producer that has ended",
        processes=3,
        files=files(r"""
import queue
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __init__(self, n):
        self.q = queue.Queue()
        for i in range(n):
            self.q.put(torch.full((4,), float(i)))

    def __iter__(self):
        for _ in range(40):
            yield self.q.get()

init()
for x in DataLoader(Stream(17 if RANK == 2 else 40), batch_size=4):
    dist.all_reduce(x)
say("epoch over")
"""),
        wanted=("self.q.get()", "did not", "hung", "stuck"),
        helpful=(r"main\.py|queue|q\.get|rank 2",),
        rank=2,
    ),
    hang(
        name="t-hang-loader-worker-sleeps",
        way="a worker of one rank's loader never answers",
        processes=2,
        files=files(r"""
from torch.utils.data import DataLoader, Dataset

class Remote(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        if RANK == 1 and i == 13:
            time.sleep(3600)
        return torch.ones(3)

init()
for i, x in enumerate(DataLoader(Remote(), batch_size=4, num_workers=1)):
    dist.all_reduce(x)
    say("batch", i)
"""),
        wanted=("time.sleep(3600)", "did not", "hung", "stuck", "DataLoader", "__getitem__"),
        helpful=(r"main\.py|loader|rank 1|__getitem__",),
        rank=1,
    ),
    hang(
        name="t-hang-prefetch-thread-dies",
        code="exception",
        also_codes=("collective",),
        way="the thread that fetches dies; the rank waits for it for ever",
        processes=4,
        files=files(r"""
import queue, threading

def prefetch(out):
    table = {0: "a.tar", 1: "b.tar", 2: "c.tar"}
    for i in range(5):
        out.put(table[i] if RANK == 1 else "x.tar")

init()
q = queue.Queue(maxsize=1)
threading.Thread(target=prefetch, args=(q,), daemon=True).start()
for i in range(5):
    say("archive", q.get())
    reduce_some(1)
"""),
        wanted="KeyError: 3",
        helpful=(r"main\.py|prefetch|thread|table",),
        rank=1,
    ),
    hang(
        name="t-hang-recv-from-wrong-peer",
        way="a pipeline's stage waits for a message that nobody sends",
        processes=4,
        files=files(r"""
init()
x = torch.zeros(8)
if RANK == 0:
    dist.send(torch.ones(8), 1)
elif RANK < 3:
    dist.recv(x, RANK - 1)
    dist.send(x + 1, RANK + 1)
else:
    dist.recv(x, 1)  # the stage before is 2
say("stage done")
dist.barrier()
"""),
        wanted=("dist.recv(x, 1)", "Timed out waiting", "recv", "did not"),
        helpful=(r"main\.py|recv|rank 3",),
        rank=3,
        also=(2,),
    ),
    hang(
        name="t-hang-subprocess-waits",
        way="one rank waits for a download helper that stalls",
        processes=5,
        files=files(r"""
import subprocess
init()
reduce_some(1)
if RANK == 0:
    say("fetching tokenizer")
    subprocess.run(["bash", "-c", "echo 0%; sleep 600"], check=True)
reduce_some(1)
"""),
        wanted=("subprocess.run", "fetching tokenizer", "did not", "hung", "stuck"),
        helpful=(r"main\.py|subprocess|tokenizer|rank 0",),
        rank=0,
    ),
    hang(
        name="t-late-preprocessing-on-zero",
        way="rank 0 prepares data for longer than the others wait (in German)",
        processes=4,
        files=files(r"""
def tokenisieren(sekunden):
    ende = time.time() + sekunden
    while time.time() < ende:
        sorted(str(i) for i in range(2000))

init(4)
if RANK == 0:
    say("Daten werden tokenisiert, bitte warten …")
    tokenisieren(60)
dist.barrier()
say("Daten bereit")
"""),
        wanted=("tokenisieren", "bitte warten", "did not", "hung", "stuck", "late"),
        helpful=(r"main\.py|tokenisieren|rank 0|timeout",),
        rank=0,
    ),
    hang(
        name="t-late-to-rendezvous",
        code="rendezvous",
        way="one rank unpacks its data before it joins",
        processes=4,
        nodes=2,
        files=files(r"""
if RANK == 2:
    say("unpacking 214 archives")
    time.sleep(120)
init(6)
reduce_some(3)
"""),
        wanted=("unpacking 214 archives", "clients joined", "time.sleep(120)", "did not join", "did not"),
        helpful=(r"main\.py|rank 2|unpack|time",),
        rank=2,
    ),
    hang(
        name="t-world-size-fixed-in-script",
        code="rendezvous",
        way="the script says 8 where 4 were started",
        processes=4,
        files={
            "main.py": r"""import os
from datetime import timedelta
import torch.distributed as dist

rank = int(os.environ["RANK"])
address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=8, timeout=timedelta(seconds=6))
print("all here")
"""
        },
        wanted=("4/8 clients joined", "clients joined", "world size", "world_size"),
        helpful=(r"world.size|WORLD_SIZE|main\.py",),
        rank=None,
    ),
    hang(
        name="t-monitored-barrier-names-it",
        way="a monitored barrier finds the rank that is away",
        processes=6,
        files=files(r"""
init(20)
reduce_some(2)
if RANK == 5:
    say("rotating logs")
    time.sleep(90)
dist.monitored_barrier(timeout=timedelta(seconds=4))
"""),
        wanted=("Rank 5 failed to pass monitoredBarrier", "rotating logs", "time.sleep(90)", "did not"),
        helpful=(r"main\.py|rank 5",),
        rank=5,
    ),
    hang(
        name="t-monitored-barrier-two-away",
        way="a monitored barrier; two ranks are in another group's barrier",
        processes=5,
        files=files(r"""
init(20)
writers = dist.new_group([3, 4, 0])
if RANK >= 3:
    say("writing shards")
    dist.barrier(writers)
dist.monitored_barrier(timeout=timedelta(seconds=4), wait_all_ranks=True)
"""),
        wanted=("Ranks 3, 4 failed to pass monitoredBarrier", "dist.barrier(writers)", "writing shards"),
        helpful=(r"main\.py|writers|group|rank 3",),
        rank=3,
        also=(4,),
    ),
    hang(
        name="t-skips-last-reduction",
        way="one rank has a batch less and is done first",
        processes=4,
        files=files(r"""
init(20)
batches = {0: 9, 1: 9, 2: 8, 3: 9}[RANK]
for i in range(batches):
    dist.all_reduce(torch.ones(10))
say("epoch finished after", batches, "batches")
"""),
        also_codes=("signal",),
        wanted=("exited", "code 0", "after 8 batches", "ended"),
        helpful=(r"main\.py|batch|rank 2",),
        rank=2,
    ),
    hang(
        name="t-early-stop-decided-alone",
        way="one rank stops early by its own loss and goes to the last barrier",
        processes=3,
        files=files(r"""
init(5)
for epoch in range(10):
    dist.all_reduce(torch.ones(50))
    mine = 1.0 / (epoch + 1) if RANK != 1 else 0.5
    if RANK == 1 and epoch >= 4:
        say("no improvement for 4 epochs, stopping early")
        break
results = [None] * WORLD
dist.all_gather_object(results, {"rank": RANK, "loss": mine})
"""),
        also_codes=("exception", "signal"),
        wanted=("stopping early", "all_gather_object", "did not", "another", "preamble.length"),
        helpful=(r"main\.py|early|rank 1|same",),
        rank=1,
    ),
    hang(
        name="t-barrier-inside-if-zero",
        way="rank 0 alone passes a barrier inside its checkpoint",
        processes=4,
        files=files(r"""
def save(step):
    if RANK == 0:
        torch.save({"step": step}, "last.pt")
        say("saved step", step)
        dist.barrier()

init(5)
for s in range(1, 9):
    dist.all_reduce(torch.ones(2000))
    if s % 4 == 0:
        save(s)
    if RANK != 0:
        time.sleep(0.01)
dist.barrier()
say("end")
"""),
        wanted=("dist.barrier()", "barrier", "did not", "hung", "stuck", "waits"),
        helpful=(r"main\.py|barrier|rank 0|every rank",),
        rank=0,
    ),
    hang(
        name="t-evaluates-on-zero-through-ddp",
        way="rank 0 alone evaluates with the wrapped model while the others go on",
        processes=3,
        files=files(r"""
from torch import nn
init(5)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(6):
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    if RANK == 0 and i == 3:
        say("evaluating")
        for _ in range(50):
            net(torch.randn(8, 4))
say("trained")
"""),
        also_codes=("exception", "signal"),
        wanted=("evaluating", "net(torch.randn(8, 4))", "did not", "preamble.length", "forward"),
        helpful=(r"main\.py|evaluat|rank 0|module|eval",),
        rank=0,
    ),
    hang(
        name="t-other-size-on-one",
        way="one rank reduces a tensor of another size",
        processes=4,
        also_codes=("exception", "signal"),
        files=files(r"""
init(6)
features = 1024 if RANK != 2 else 1025  # one column more in its header
g = torch.ones(features)
dist.all_reduce(g)
say("sum", g.sum().item())
dist.barrier()
"""),
        wanted=("op.preamble.length <= op.nbytes", "preamble.length", "features", "size", "Timed out"),
        helpful=(r"main\.py|size|shape|rank 2|features",),
        rank=2,
    ),
    hang(
        name="t-exits-quietly-when-no-data",
        way="one rank finds no data, says so and leaves with code 0",
        processes=8,
        nodes=2,
        files=files(r"""
import glob
if RANK != 5:
    open(f"data-{RANK}.bin", "w").write("x")
init(30)
if not glob.glob(f"data-{RANK}.bin"):
    say("nothing to do for this rank, bye")
    sys.exit(0)
reduce_some(4, 0.1)
"""),
        wanted=("nothing to do for this rank", "code 0", "exited"),
        helpful=(r"main\.py|data|rank 5",),
        rank=5,
    ),
]
