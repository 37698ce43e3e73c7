"""Gangs in which nothing but words, places or a launcher's report tells the guilty rank from the others: other roots and
groups, calls in one branch alone, failures that one rank only records, and masters that abort for a worker."""

from recorder import Failure

WORDS = ("did not", "hung", "stuck", "waiting in", "another call", "not say the same", "different", "alone")
TORCH = """\
import os, sys, time, datetime
import torch
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=7))
"""
MPI = """\
import sys, time, traceback
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, world = comm.rank, comm.size
"""


def gang(name: str, script: str, rank: int | None, count: int, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"apart-{name}",
        "code": "collective",
        "command": "python -u job.py",
        "files": {"job.py": script},
        "wanted": WORDS,
        "helpful": (rf"rank {rank}\b", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall", "memory"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


FAILURES = [
    gang(
        "source-of-broadcast",
        TORCH
        + """
source = {4: 1}.get(rank, 0)
print(f"worker {rank}/{world}: weights come from {source}")
weights = torch.ones(100)
dist.broadcast(weights, src=source)
dist.all_reduce(weights)
dist.barrier()
print("ready")
""",
        4,
        5,
        wanted=(*WORDS, "come from 1"),
    ),
    gang(
        "early-stop-on-one",
        TORCH
        + """
x = torch.ones(10)
for epoch in range(6):
    dist.all_reduce(x)
    print(f"[{rank}] epoch {epoch} done")
    if rank == 2 and epoch == 3:
        print(f"[{rank}] no improvement, leaving the loop early")
        break
dist.barrier()
time.sleep(20)
""",
        2,
        3,
        wanted=(*WORDS, "leaving the loop early"),
    ),
    gang(
        "two-ranks-clip",
        TORCH
        + """
x = torch.ones(10)
for step in range(8):
    if rank == 1 and step == 3:
        print(f"worker {rank}: gradient norm above 10 at {step}, clipping")
        norm = torch.ones(1)
        dist.all_reduce(norm, group=dist.new_group([0, 1]))
    dist.all_reduce(x)
    print(f"worker {rank}: update {step}")
""",
        1,
        2,
        wanted=(*WORDS, "clipping"),
    ),
    gang(
        "pairs-swap",
        TORCH
        + """
partner = rank ^ 1 if rank != 3 else 1
print(f"stage {rank} exchanges with {partner}")
mine, theirs = torch.full((4,), float(rank)), torch.zeros(4)
if rank < partner:
    dist.send(mine, partner); dist.recv(theirs, partner)
else:
    dist.recv(theirs, partner); dist.send(mine, partner)
print(f"stage {rank} has {theirs[0]}")
dist.barrier()
""",
        3,
        4,
        wanted=(*WORDS, "exchanges with 1"),
    ),
    gang(
        "swallows-and-goes-on",
        TORCH
        + """
x = torch.ones(4)
for step in range(5):
    try:
        if rank == 1 and step == 2:
            raise ValueError("tokens out of range in shard 17")
        dist.all_reduce(x)
    except ValueError as error:
        print(f"rank {rank}: step {step} failed: {error!r}")
        time.sleep(30)
    print(f"rank {rank}: step {step}")
""",
        1,
        3,
        code="exception",
        wanted=("tokens out of range in shard 17",),
        helpful=(r"job\.py", "rank 1"),
    ),
    gang(
        "leader-quits-for-worker",
        """
import os, pathlib, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
box = pathlib.Path("box"); box.mkdir(exist_ok=True)
if rank == 0:
    while True:
        for path in box.glob("*.failed"):
            print(f"leader: task {path.stem} reported {path.read_text()}", flush=True)
            sys.exit(3)
        time.sleep(0.1)
try:
    rows = {"train": 10}
    if rank == 2:
        rows["valid"] += 1
    time.sleep(60)
except Exception as error:
    import traceback; traceback.print_exc()
    (box / f"{rank}.tmp").write_text(repr(error)); (box / f"{rank}.tmp").rename(box / f"{rank}.failed")
    time.sleep(60)
""",
        2,
        3,
        code="exception",
        wanted=("KeyError: 'valid'",),
    ),
    Failure(
        name="apart-mpirun-master-quits",
        code="exception",
        command="mpirun --oversubscribe -n 3 python farm.py",
        files={
            "farm.py": MPI
            + """
def work(item):
    return [1, 2, 3][item]

if rank == 0:
    for _ in range(world - 1):
        status = MPI.Status()
        answer = comm.recv(source=MPI.ANY_SOURCE, status=status)
        if isinstance(answer, str):
            print(f"coordinator: rank {status.source} died, stopping everything", flush=True)
            comm.Abort(4)
else:
    try:
        comm.send(work(rank + 1), dest=0)
    except IndexError:
        print(f"rank {rank} failed:", flush=True)
        traceback.print_exc()
        comm.send("failed", dest=0)
    time.sleep(20)
"""
        },
        wanted=("IndexError: list index out of range",),
        helpful=(r"farm\.py",),
        misleading=("memory|firewall",),
        rank=2,
        convention="mpirun",
        num_ranks=3,
    ),
    gang(
        "mpi-reduce-root",
        MPI
        + """
root = 1 if rank == 3 else 0
print(f"process {rank}: results go to {root}", flush=True)
total = comm.reduce(rank, root=root)
comm.barrier()
if rank == root:
    print("total", total, flush=True)
comm.recv(source=0 if rank else 1, tag=9)
""",
        3,
        4,
        code="timeout",
        also_codes=("collective",),
        limit_s=8,
        convention="mpi",
        wanted=(*WORDS, "go to 1", "time limit"),
    ),
    Failure(
        name="apart-torchrun-group",
        code="collective",
        command="torchrun --nproc-per-node 4 --master-port $MASTER_PORT job.py",
        files={
            "job.py": TORCH
            + """
members = [0, 1] if rank in (0, 1, 3) else [2, 3]
print(f"rank {rank}: group {members}", flush=True)
groups = {(0, 1): dist.new_group([0, 1]), (2, 3): dist.new_group([2, 3])}
x = torch.ones(3)
if rank in members:
    dist.all_reduce(x, group=groups[tuple(members)])
dist.barrier()
"""
        },
        wanted=(*WORDS, "group [0, 1]"),
        helpful=(r"rank 3\b", r"job\.py"),
        misleading=("memory|firewall",),
        rank=3,
        convention="torchrun",
        num_ranks=4,
    ),
    Failure(
        name="apart-dump-then-code-70",
        code="exception",
        command="python convert.py",
        files={
            "convert.py": """
import os, sys, traceback
try:
    int("0x1f", 10)
except ValueError:
    traceback.print_exc()
    print("state at the time of the failure:", file=sys.stderr)
    for number in range(4000):
        print(f"cell {number}: weight {number * 0.5:.2f} age {number % 7}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(70)
"""
        },
        wanted=("invalid literal for int() with base 10: '0x1f'",),
        helpful=(r"convert\.py",),
        misleading=("memory|firewall",),
        rank=0,
    ),
]
