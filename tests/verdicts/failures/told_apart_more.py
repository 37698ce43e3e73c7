"""More gangs and programs with the same faults in other clothes: queues, sockets, files, threads, other launchers."""

from failures.told_apart import MPI, TORCH, WORDS, gang
from recorder import Failure

FAILURES = [
    gang(
        "store-counter-never-reached",
        TORCH
        + """
store = dist.distributed_c10d._get_default_store()
if rank == 3:
    print("rank 3: warming the page cache", flush=True)
    time.sleep(40)
store.add("loaded", 1)
deadline = time.time() + 6
while store.add("loaded", 0) < world:
    if time.time() > deadline:
        raise TimeoutError(f"only {store.add('loaded', 0)} of {world} have loaded the data")
    time.sleep(0.2)
""",
        3,
        4,
        wanted=(*WORDS, "page cache"),
    ),
    gang(
        "scatter-list-on-wrong-rank",
        TORCH
        + """
chief = 2 if os.environ["RANK"] == "1" else 0
print(f"{rank}: data is dealt by {chief}", flush=True)
got = torch.zeros(2)
dist.scatter(got, [torch.ones(2)] * world if rank == chief else None, src=chief)
dist.all_reduce(got)
print("sum", got)
""",
        1,
        3,
        code="collective",
        wanted=(*WORDS, "dealt by 2"),
    ),
    gang(
        "spawned-reader-dies-quietly",
        """
import multiprocessing, os, queue, sys, time
rank = int(os.environ["RANK"])

def read(box, number):
    for item in range(5):
        if number == 1 and item == 3:
            print("reader: unsupported codec in clip 3", flush=True)
            os._exit(9)
        box.put(item)

box = multiprocessing.Queue()
reader = multiprocessing.Process(target=read, args=(box, rank))
reader.start()
for step in range(5):
    try:
        print("trainer", rank, "item", box.get(timeout=4), flush=True)
    except queue.Empty:
        sys.exit(f"trainer {rank}: the reader gave nothing for 4 s (exit code {reader.exitcode})")
time.sleep(15)
""",
        1,
        2,
        code="exit_code",
        also_codes=("exception",),
        wanted=("the reader gave nothing for 4 s", "unsupported codec in clip 3"),
        helpful=("",),
    ),
    gang(
        "logs-critical-and-waits",
        """
import logging, os, pathlib, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level="INFO")
folder = pathlib.Path("flags"); folder.mkdir(exist_ok=True)
for step in range(4):
    if rank == 2 and step == 2:
        try:
            [][step]
        except IndexError as error:
            logging.critical("step %d: IndexError: %s, parking for the debugger", step, error)
            time.sleep(60)
    logging.info("step %d", step)
    (folder / f"{rank}-{step}").touch()
    end = time.time() + 5
    while not all((folder / f"{r}-{step}").exists() for r in range(world)):
        if time.time() > end:
            raise TimeoutError(f"step {step}: not all of {world} arrived")
        time.sleep(0.05)
""",
        2,
        4,
        code="exception",
        wanted=("IndexError: list index out of range",),
    ),
    gang(
        "two-nodes-other-batch",
        TORCH
        + """
batch = 24 if rank == 2 else 32
print(f"rank {rank} of {world}: batch {batch}, features 16", flush=True)
x = torch.ones(batch, 16)
parts = [torch.zeros(batch, 16) for _ in range(world)]
dist.all_gather(parts, x)
dist.barrier()
""",
        2,
        4,
        nodes=2,
        code="collective",
        also_codes=("exception",),
        wanted=(*WORDS, "batch 24", "size", "length"),
    ),
    Failure(
        name="apart-torchrun-worker-names-peer",
        code="exception",
        command="torchrun --nproc-per-node 3 --master-port $MASTER_PORT job.py",
        files={
            "job.py": TORCH
            + """
failed = None
try:
    if rank == 1:
        open("tokens-1.bin")
except OSError as error:
    failed = f"{type(error).__name__}: {error}"
flags = [None] * world
dist.all_gather_object(flags, failed)
bad = [n for n, flag in enumerate(flags) if flag]
if bad:
    sys.exit(f"rank {rank}: stopping because of {flags[bad[0]]} on rank {bad[0]}")
"""
        },
        wanted=("No such file or directory: 'tokens-1.bin'",),
        helpful=(r"tokens-1\.bin", r"job\.py"),
        misleading=("memory|firewall",),
        also_codes=("exit_code",),
        rank=1,
        convention="torchrun",
        num_ranks=3,
    ),
    Failure(
        name="apart-mpirun-one-rank-asserts",
        code="exception",
        command="mpirun --oversubscribe -n 4 python -m mpi4py job.py",
        files={
            "job.py": MPI
            + """
print(f"rank {rank} of {world}: slab {rank * 8}..{rank * 8 + 7}", flush=True)
comm.barrier()
if rank == 3:
    assert rank * 8 + 7 < 31, f"slab of rank {rank} reaches beyond 30"
comm.allreduce(1)
"""
        },
        wanted=("AssertionError: slab of rank 3 reaches beyond 30",),
        helpful=(r"job\.py",),
        misleading=("memory|firewall",),
        rank=3,
        convention="mpirun",
        num_ranks=4,
    ),
    gang(
        "mpi-rank-sorts-for-ever",
        MPI
        + """
def polish(values):
    while True:
        values = sorted(values, reverse=values[0] < values[-1])

print("process", rank, "begins", flush=True)
if rank == 1:
    polish(list(range(500)))
comm.gather(rank, root=0)
comm.barrier()
""",
        1,
        3,
        code="timeout",
        also_codes=("collective",),
        limit_s=6,
        convention="mpi",
        wanted=("polish",),
        helpful=(r"job\.py line",),
    ),
    Failure(
        name="apart-pool-worker-chain",
        code="exception",
        command="python run.py",
        files={
            "run.py": """
from concurrent.futures import ProcessPoolExecutor
from settings import parse

if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(parse, ["lr=1", "lr=2", "momentum"])))
""",
            "settings.py": """
def parse(text):
    try:
        name, value = text.split("=")
    except ValueError as error:
        raise RuntimeError(f"bad setting {text!r}") from error
    return name, float(value)
""",
        },
        wanted=("not enough values to unpack (expected 2, got 1)", "bad setting 'momentum'"),
        helpful=(r"settings\.py",),
        misleading=("memory|firewall",),
        rank=0,
    ),
    Failure(
        name="apart-warning-then-quiet-code",
        code="exit_code",
        command="bash stage.sh",
        files={
            "stage.sh": "echo 'stage 1: 40 files'\necho 'manifest lists 41, folder holds 40' >&2\n"
            "echo 'stage 1 took 3 s'\nexit 12\n"
        },
        wanted=("manifest lists 41, folder holds 40",),
        helpful=(r"stage\.sh", "manifest"),
        misleading=("memory|firewall",),
        rank=0,
        convention="shell",
    ),
    Failure(
        name="apart-c-assert-in-one-of-four",
        code="signal",
        command="python job.py",
        files={
            "job.py": """
import ctypes, os, sys, time
rank = int(os.environ["RANK"])
print("rank", rank, "loads the kernels", flush=True)
time.sleep(1)
if rank == 2:
    libc = ctypes.CDLL(None)
    libc.__assert_fail(b"block % 32 == 0", b"kernels.c", 88, b"launch")
time.sleep(20)
"""
        },
        wanted=("Assertion `block % 32 == 0' failed",),
        helpful=(r"kernels\.c",),
        misleading=("firewall",),
        rank=2,
        convention="process",
        processes=4,
    ),
]
