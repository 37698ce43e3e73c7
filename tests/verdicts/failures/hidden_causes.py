"""Gangs in which the guilty rank says little: it hides its error, answers with it, or is at the end of a chain of waits."""

from recorder import Failure

SET_UP = """\
import json, os, pathlib, socket, sys, threading, time
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, nodes: int = 1, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"hidden-{name}",
        "code": "exception",
        "command": "python -u job.py",
        "files": {"job.py": SET_UP + script},
        "wanted": ("did not",),
        "helpful": (rf"rank {rank}", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall", "memory"),
        "rank": rank,
        "convention": "process",
        "processes": count,
        "nodes": nodes,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


REPLIES = """\
RATES = {"alpha": 0.1, "gamma": 0.3}

def answer(request):
    try:
        return {"value": RATES[request["name"]]}
    except Exception as error:
        return {"error": repr(error)}

def serve():
    server = socket.create_server(("127.0.0.1", PORT))
    while True:
        conn, _ = server.accept()
        with conn:
            conn.sendall(json.dumps(answer(json.loads(conn.recv(1000)))).encode())

def ask(name):
    with socket.create_connection(("127.0.0.1", PORT), timeout=10) as conn:
        conn.sendall(json.dumps({"name": name}).encode())
        reply = json.loads(conn.recv(1000))
    if "error" in reply:
        raise RuntimeError(f"the coordinator answered: {reply['error']}")
    return reply["value"]

if RANK == 0:
    serve()
time.sleep(1)
for name in ("alpha", "beta", "gamma"):
    print("worker", RANK, name, ask(name))
    time.sleep(0.3 * RANK)
"""

PARTS = """\
part = pathlib.Path(f"parts/part-{RANK}.json")
part.parent.mkdir(exist_ok=True)
if RANK == 2:
    print("no rows for this one, nothing to write")
    sys.exit(0)
part.write_text(json.dumps([RANK] * 3))
time.sleep(2)
if RANK == 0:
    rows = [json.loads(pathlib.Path(f"parts/part-{n}.json").read_text()) for n in range(WORLD)]
    print("merged", len(rows))
else:
    time.sleep(20)
"""

SWALLOWED = """\
def barrier(name, seconds=4):
    pathlib.Path(f"{name}.{RANK}").touch()
    until = time.monotonic() + seconds
    while len(list(pathlib.Path(".").glob(f"{name}.*"))) < WORLD:
        if time.monotonic() > until:
            raise TimeoutError(f"barrier {name}: {WORLD - len(list(pathlib.Path('.').glob(name + '.*')))} absent")
        time.sleep(0.05)

def parse(record):
    return int(record)

def main():
    for number, record in enumerate(["1", "2", "3x" if RANK == 1 else "3"]):
        try:
            parse(record)
        except ValueError as error:
            print(f"record {number}: {error}")
            return
    barrier("parsed")
    print("all parsed")

main()
"""

THREAD = """\
server = None
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    peers = [server.accept()[0] for _ in range(WORLD - 1)]
    for step in range(8):
        for peer in peers:
            if len(peer.recv(4, socket.MSG_WAITALL)) < 4:
                raise ConnectionError(f"a peer closed its stream in step {step}")
else:
    time.sleep(1)
    conn = socket.create_connection(("127.0.0.1", PORT))
    def feed():
        for step in range(8):
            scale = 10 // (3 - step) if RANK == 2 else 1
            conn.sendall(scale.to_bytes(4, "big", signed=True))
            time.sleep(0.2)
    feeder = threading.Thread(target=feed)
    feeder.start()
    feeder.join()
    print("rank", RANK, "is through")
"""

CHAIN = """\
def token_of(rank, step):
    return pathlib.Path(f"token-{rank}-{step}")

def wait_for_token(rank, step, seconds):
    until = time.monotonic() + seconds
    while not token_of(rank, step).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"no token {step} from rank {rank}")
        time.sleep(0.05)

def simulate(step):
    if RANK == 1 and step == 3:
        x = 0.0
        while True:
            x = (x + 1.0) % 7.0
    time.sleep(0.05)

for step in range(6):
    if RANK > 0:
        wait_for_token(RANK - 1, step, 3 if RANK == WORLD - 1 else 60)
    simulate(step)
    token_of(RANK, step).touch()
    print("rank", RANK, "passed token", step)
"""

LOGGED = """\
import logging
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
batches = []
ready = threading.Event()

def load():
    try:
        for n in range(9):
            if RANK == 2 and n == 4:
                raise OSError("volume /mnt/tiles: record 4 is torn")
            batches.append(n)
            time.sleep(0.1)
        ready.set()
    except OSError:
        logging.exception("loader stopped")

threading.Thread(target=load, daemon=True).start()
ready.wait()
mark = pathlib.Path(f"ready-{RANK}")
mark.touch()
until = time.monotonic() + 3
while any(not pathlib.Path(f"ready-{n}").exists() for n in range(WORLD)):
    if time.monotonic() > until:
        sys.exit("not every rank became ready within 3 s")
    time.sleep(0.1)
"""

MPI_GRID = """\
from mpi4py import MPI
import numpy as np
grid = MPI.COMM_WORLD.Create_cart([MPI.COMM_WORLD.size], periods=[True])
me = grid.Get_rank()

def relax(field, sweep):
    while sweep == 2 and me == 3 and abs(field[0]) >= 0:
        field[0] += 1e-9
    return field * 0.5

field = np.ones(4)
for sweep in range(5):
    field = relax(field, sweep)
    left, right = grid.Shift(0, 1)
    halo = np.empty(4)
    grid.Sendrecv(field, right, 0, halo, left, 0)
    print("rank", me, "sweep", sweep, flush=True)
"""

MPI_SPLIT = """\
from mpi4py import MPI
world = MPI.COMM_WORLD
rank = world.rank
for step in range(4):
    if rank == 1 and step == 2:
        total = world.reduce(rank, root=0)
        world.recv(source=0, tag=99)
    else:
        total = world.allreduce(rank)
    print("rank", rank, "step", step, flush=True)
"""

TORCH = """\
import datetime
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=9))
"""

FINALLY = (
    TORCH
    + """\
VOCABULARY = {"a": 1, "b": 2}

def encode(step):
    word = "c" if RANK == 1 and step == 2 else "a"
    return torch.tensor([float(VOCABULARY[word])])

def train():
    try:
        for step in range(5):
            dist.all_reduce(encode(step))
            print("rank", RANK, "step", step)
    finally:
        dist.barrier()
        dist.destroy_process_group()

train()
"""
)

SERVICE = """\
import urllib.request
def labels(step):
    if RANK == 1 and step == 2:
        return urllib.request.urlopen("http://127.0.0.1:9/labels?step=2", timeout=3).read()
    return b""
for step in range(40):
    labels(step)
    print("rank", RANK, "step", step)
    time.sleep(0.3)
"""

READ_TIMEOUT = """\
def fetch(shard):
    if RANK == 0 and shard == 3:
        raise TimeoutError("shard 3: the store sent nothing for 5 s")
    return shard
for shard in range(30):
    fetch(shard)
    print("rank", RANK, "has shard", shard)
    time.sleep(0.2)
"""

SAME_RANK = """\
import datetime
import torch.distributed as dist
number = 1 if RANK == 2 else RANK
print(f"process {RANK} joins as member {number} of {WORLD}")
dist.init_process_group("gloo", rank=number, world_size=WORLD, timeout=datetime.timedelta(seconds=9))
dist.barrier()
"""

RESTARTS = (
    TORCH
    + """\
LOOKUP = ["x", "y"]
for step in range(4):
    if RANK == 1 and step == 3:
        print(LOOKUP[step])
    dist.all_reduce(torch.ones(1))
"""
)

NOT_REGISTERED = """\
MODELS = {"unet": 1}
def build(name):
    if name not in MODELS:
        raise ValueError(f"model {name!r} is not registered")
    return MODELS[name]
time.sleep(0.2 * RANK)
build("unet" if RANK != 1 else "vit")
time.sleep(20)
"""

TRUNCATED = """\
import pickle
with open(f"state-{RANK}.pkl", "wb") as handle:
    handle.write(pickle.dumps(list(range(50)))[: 0 if RANK == 0 else 400])
def restore():
    with open(f"state-{RANK}.pkl", "rb") as handle:
        return pickle.load(handle)
time.sleep(0.5)
restore()
print("rank", RANK, "restored")
time.sleep(20)
"""

RELAYED = """\
from mpi4py import MPI
comm = MPI.COMM_WORLD
def solve(part):
    if comm.rank == 2:
        raise ArithmeticError(f"part {part}: residual grows without bound")
    return part
if comm.rank == 0:
    for _ in range(comm.size - 1):
        kind, source, what = comm.recv()
        if kind == "error":
            print(f"worker {source} failed: {what}", flush=True)
            comm.Abort(5)
else:
    try:
        comm.send(("done", comm.rank, solve(comm.rank)), dest=0)
    except ArithmeticError as error:
        comm.send(("error", comm.rank, str(error)), dest=0)
comm.Barrier()
"""
WORKER_SH = """\
for step in 0 1 2 3; do
    if [ "$OMPI_COMM_WORLD_RANK" = 1 ] && [ $step = 2 ]; then sleep 600; fi
    echo "rank $OMPI_COMM_WORLD_RANK step $step"
    touch "s-$OMPI_COMM_WORLD_RANK-$step"
    while [ "$(ls s-*-$step | wc -l)" -lt 4 ]; do sleep 0.1; done
done
"""

FAILURES = [
    gang(
        "mpirun-relayed",
        "",
        2,
        1,
        also_codes=("exit_code",),
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python job.py",
        files={"job.py": RELAYED},
        wanted="residual grows without bound",
        helpful=("rank 2", r"job\.py"),
    ),
    gang(
        "mpirun-shell-sleeps",
        "",
        1,
        1,
        code="timeout",
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 bash worker.sh",
        files={"worker.sh": WORKER_SH},
        limit_s=6,
        wanted="time limit",
        helpful=("rank 1", "limits.timeout"),
    ),
    gang(
        "mpirun-without-count",
        "",
        None,
        1,
        code="launcher_missing",
        convention="mpirun",
        num_ranks=2,
        also=(0, 1),
        command="mpirun ./solvr --steps 3",
        files={"solver.c": "int main(void) { return 0; }\n"},
        wanted="solvr",
        helpful=("solvr",),
    ),
    gang("not-registered", NOT_REGISTERED, 1, 2, 2, wanted=("model 'vit' is not registered",)),
    gang("truncated-state", TRUNCATED, 0, 2, wanted=("Ran out of input",)),
    Failure(
        name="odd-own-name-missing",
        code="exception",
        command="python main.py",
        files={"main.py": "from losses import focal_los\n", "losses.py": "def focal_loss(x):\n    return x\n"},
        wanted="cannot import name 'focal_los'",
        helpful=(r"losses|focal_loss",),
        misleading=(r"\bpip\b", "firewall"),
    ),
    gang("finally-barrier", FINALLY, 1, wanted=("KeyError: 'c'",)),
    gang("service-refused", SERVICE, 1, 2, wanted=("Connection refused",), helpful=("127.0.0.1:9", r"job\.py")),
    gang("own-timeout", READ_TIMEOUT, 0, 2, wanted=("the store sent nothing",)),
    gang(
        "same-number-twice",
        SAME_RANK,
        2,
        3,
        code="rendezvous",
        also=(1,),
        wanted=("did not", "as member 1", "joined", "imeout"),
    ),
    gang(
        "torchrun-restarts",
        "",
        1,
        1,
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --max-restarts 1 --nproc-per-node 2 job.py",
        files={"job.py": SET_UP + RESTARTS},
        wanted="IndexError: list index out of range",
    ),
    gang("reply-error", REPLIES, 0, wanted=("KeyError('beta')",)),
    gang(
        "part-missing",
        PARTS,
        2,
        4,
        2,
        code="collective",
        also_codes=("exception",),
        wanted=("nothing to write", "ended"),
    ),
    gang(
        "swallowed",
        SWALLOWED,
        1,
        4,
        code="collective",
        also_codes=("exception",),
        wanted=("invalid literal for int()",),
    ),
    gang("thread-of-leaver", THREAD, 2, wanted=("division or modulo by zero",)),
    gang("chain", CHAIN, 1, 4, code="collective", wanted=("did not", "rank 1"), also_codes=("exception",)),
    gang("logged-in-loader", LOGGED, 2, wanted=("record 4 is torn",)),
    gang(
        "mpirun-no-program",
        "",
        None,
        1,
        code="launcher_missing",
        convention="mpirun",
        num_ranks=3,
        also=(0, 1, 2),
        command="mpirun --oversubscribe --np 3 ./solver --steps 3",
        files={"solver.c": "int main(void) { return 0; }\n"},
        wanted="solver",
        helpful=("solver",),
    ),
    gang(
        "mpirun-second-program",
        "",
        2,
        1,
        code="launcher_missing",
        convention="mpirun",
        num_ranks=3,
        command="mpirun --oversubscribe -n 2 python work.py : -n 1 ./writer",
        files={"work.py": "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"},
        wanted="writer",
        helpful=("writer",),
    ),
    gang(
        "mpirun-wrapper-lacks-tool",
        "",
        1,
        1,
        code="launcher_missing",
        also_codes=("exit_code",),
        convention="mpirun",
        num_ranks=3,
        command="mpirun --oversubscribe -n 3 bash step.sh",
        files={
            "step.sh": 'echo "part $OMPI_COMM_WORLD_RANK"\nif [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec regrid in.nc; fi\nsleep 4\n'
        },
        wanted="regrid",
        helpful=("regrid",),
    ),
    gang(
        "mpi-grid-spins",
        "",
        3,
        4,
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        files={"job.py": MPI_GRID},
        limit_s=8,
        wanted=("did not", "relax"),
    ),
    gang(
        "mpirun-grid-spins",
        "",
        3,
        1,
        code="timeout",
        also_codes=("collective",),
        convention="mpirun",
        num_ranks=4,
        command="mpirun --oversubscribe -n 4 python job.py",
        files={"job.py": MPI_GRID},
        limit_s=8,
        wanted=("did not", "relax"),
    ),
    gang(
        "mpi-other-collective",
        "",
        1,
        3,
        code="timeout",
        also_codes=("collective",),
        convention="mpi",
        files={"job.py": MPI_SPLIT},
        limit_s=8,
        wanted=("did not", "another call", "tag=99"),
    ),
]
