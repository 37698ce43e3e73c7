"""Gangs below `mpirun` and `torchrun`, and hand-made ones, in which the one to blame says little or is quoted."""

from failures.told_by_values import HUNG, TORCH, gang
from recorder import Failure

MPI = """\
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()

"""


def mpirun(name: str, script: str, rank: int | None, count: int = 3, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"values-mpirun-{name}",
        "code": "exception",
        "command": f"mpirun --allow-run-as-root --oversubscribe -n {count} python -m mpi4py job.py",
        "files": {"job.py": MPI + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "mpirun",
        "num_ranks": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def torchrun(name: str, script: str, rank: int | None, count: int = 3, **more: object) -> Failure:
    command = f"torchrun --nproc_per_node {count} --master_port $MASTER_PORT train.py"
    return gang(f"torchrun-{name}", script, rank, 1, command=command, convention="torchrun", num_ranks=count, **more)


TRUNCATED = """\
if rank == 0:
    for other in range(1, size):
        data = bytearray(8)
        comm.Recv([data, MPI.BYTE], source=other)
        print("part of", other, flush=True)
else:
    time.sleep(rank)
    comm.Send([bytes(8 if rank != 2 else 64), MPI.BYTE], dest=0)
comm.Barrier()
"""

NO_SUCH_RANK = """\
print(f"{rank}: sending to {rank + 1}", flush=True)
comm.send({"from": rank}, dest=rank + 1)
"""

EXITS = """\
def load(shard):
    if shard == 1:
        sys.stderr.write("load: shard 1 has no header\\n")
        os._exit(9)
load(rank)
comm.Barrier()
"""

LIMIT = """\
total = comm.allreduce(rank)
if rank == 1:
    print("rank 1: waiting for the licence", flush=True)
    while True:
        time.sleep(1)
comm.allreduce(total)
"""

ABORTS = """\
parts = comm.gather(rank * 2 if rank != 1 else None, root=0)
if rank == 0:
    bad = [n for n, part in enumerate(parts) if part is None]
    if bad:
        print(f"no result from rank {bad[0]}, aborting", flush=True)
        comm.Abort(7)
comm.Barrier()
"""

KILLED = """\
import signal
comm.Barrier()
if rank == 2:
    os.kill(os.getpid(), signal.SIGBUS)
comm.Barrier()
"""

COUNTS = """\
rows = 100 if rank != 2 else 90
print(f"rank {rank}: {rows} rows", flush=True)
all_rows = comm.allgather(rows)
assert len(set(all_rows)) == 1, f"rows differ between ranks: {all_rows}"
"""

PLAIN = """\
if rank == 1:
    raise KeyError("momentum")
comm.Barrier()
"""

TOLD = (
    TORCH
    + """\
join(20)
flag = torch.zeros(1)
try:
    if RANK == 1:
        raise FileNotFoundError("vocab.txt")
except FileNotFoundError as error:
    print(f"rank {RANK}: {error} is not there", flush=True)
    flag += 1
dist.all_reduce(flag)
if flag.item():
    raise RuntimeError("at least one rank failed during setup")
"""
)

QUIET = (
    TORCH
    + """\
join(20)
time.sleep(1)
if RANK == 2:
    os._exit(17)
dist.barrier()
time.sleep(5)
"""
)

SERVER_DIES = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    links = [server.accept()[0] for _ in range(WORLD - 1)]
    for link in links:
        link.sendall(b"hello")
    say("table is full, leaving")
    os._exit(0)
link = connect()
print(link.recv(5), flush=True)
time.sleep(1)
got = link.recv(10)
if not got:
    raise ConnectionError("the server has closed the connection")
"""

WRONG_SENDER = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    for _ in range(WORLD - 1):
        link, _ = server.accept()
        told = json.loads(link.recv(300))
        if abs(told["mean"]) > 10:
            say(f"ERROR gradient of worker {told['rank']} is out of range: {told['mean']}")
            time.sleep(0.5)
            sys.exit(3)
    sys.exit()
link = connect()
link.sendall(json.dumps({"rank": RANK, "mean": 0.1 if RANK != 1 else 1e6}).encode())
link.recv(10)
"""

EVENT = """\
ready = threading.Event()
folder = pathlib.Path("out"); folder.mkdir(exist_ok=True)
def load():
    if RANK == 1:
        say("opening the index")
        return
    ready.set()
threading.Thread(target=load).start()
if RANK == 0:
    began = time.time()
    while not all((folder / f"part-{n}").exists() for n in range(1, WORLD)):
        if time.time() - began > 5:
            raise TimeoutError(f"parts are missing: {[n for n in range(1, WORLD) if not (folder / f'part-{n}').exists()]}")
        time.sleep(0.1)
ready.wait()
(folder / f"part-{RANK}").touch()
time.sleep(60)
"""

SLOW_COUNT = """\
folder = pathlib.Path("steps"); folder.mkdir(exist_ok=True)
for step in range(1, 50):
    if RANK == 3 and step == 4:
        sys.stdin = None
        time.sleep(100)
    (folder / f"{step}.{RANK}").touch()
    print(f"step {step}", flush=True)
    began = time.time()
    while len(list(folder.glob(f"{step}.*"))) < WORLD:
        if time.time() - began > 4:
            print(f"step {step}: {len(list(folder.glob(f'{step}.*')))} of {WORLD} arrived, stopping", flush=True)
            sys.exit(8)
        time.sleep(0.05)
"""

FAILURES = [
    mpirun("truncated", TRUNCATED, 2, also=(0,), wanted="MPI_ERR_TRUNCATE"),
    mpirun("no-such-rank", NO_SUCH_RANK, 2, wanted="MPI_ERR_RANK"),
    mpirun("exits", EXITS, 1, code="exit_code", wanted="shard 1 has no header"),
    mpirun("limit", LIMIT, 1, code="timeout", limit_s=8, wanted=(*HUNG, "waiting for the licence")),
    mpirun("aborts-for-another", ABORTS, 1, code="exit_code", also=(0,), wanted="no result from rank 1"),
    mpirun("bus-error", KILLED, 2, code="signal", wanted="SIGBUS"),
    mpirun("counts", COUNTS, 2, wanted="rows differ between ranks"),
    mpirun("key", PLAIN, 1, wanted="KeyError: 'momentum'"),
    torchrun("flag", TOLD, 1, code="exception", wanted="vocab.txt"),
    torchrun("quiet", QUIET, 2, code="exit_code", wanted=("17",), helpful=(), also_codes=()),
    gang("server-leaves", SERVER_DIES, 0, wanted=("table is full", "had ended")),
    gang("gradient-of-another", WRONG_SENDER, 1, code="exit_code", also_codes=("exception",), wanted="out of range"),
    gang("event-never-set", EVENT, 1, wanted=("parts are missing", *HUNG)),
    gang("step-not-reached", SLOW_COUNT, 3, 4, also_codes=("exit_code",), wanted=("3 of 4 arrived", *HUNG)),
]
