"""Gangs of plain processes with torch.distributed: flags, lists of values, calls that one rank leaves out or adds."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended")
SET_UP = """\
import datetime, logging, os, sys, threading, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s [r" + str(rank) + "] %(message)s")
log = logging.getLogger("fit")

def setup(s=7):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=s))

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"further-torch-{name}",
        "code": "collective",
        "also_codes": (),
        "command": "python -u fit.py",
        "files": {"fit.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"fit\.py"),
        "misleading": (r"\bpip\b", "firewall", "memory"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


SEEDS = """\
setup()
seeds = [None] * world
dist.all_gather_object(seeds, 1234 if rank != 3 else 4321)
assert len(set(seeds)) == 1, f"seeds differ: {seeds}"
"""

LENGTHS = """\
setup()
lengths = [None] * world
dist.all_gather_object(lengths, 118 if rank == 2 else 120)
if len(set(lengths)) > 1:
    raise RuntimeError("epoch lengths " + "/".join(map(str, lengths)) + " must be equal")
"""

FAILED_ON = """\
setup()
def work():
    if rank == 2:
        raise OSError("scan 2-17 is unreadable")
    return rank
try:
    work()
    mine = ""
except Exception as error:
    mine = repr(error)
all_errors = [None] * world
dist.all_gather_object(all_errors, mine)
bad = {n: text for n, text in enumerate(all_errors) if text}
if bad:
    raise RuntimeError("preprocessing failed on: " + ", ".join(f"{n} ({text})" for n, text in bad.items()))
"""

FLAG_UNNAMED = """\
setup()
missing = 3 if rank == 1 else 0
log.info("validation: %d of 200 rows checked", 200)
if missing:
    log.warning("validation: %d of 200 rows have no label", missing)
flag = torch.tensor([float(missing > 0)])
dist.all_reduce(flag, op=dist.ReduceOp.MAX)
if flag.item():
    log.error("aborting, validation has not passed everywhere")
    sys.exit(9)
"""

FLAG_EXCEPTION = """\
setup()
ok = torch.tensor([1.0])
try:
    table = {"a": 1}
    table["b" if rank == 0 else "a"]
except KeyError:
    log.exception("cannot prepare")
    ok.zero_()
dist.all_reduce(ok, op=dist.ReduceOp.MIN)
if not ok.item():
    raise SystemExit("preparation failed on some rank, see its log")
"""

LATE = """\
if rank == 3:
    log.info("unpacking the archive")
    time.sleep(120)
setup()
"""

SKIPS = """\
setup()
for step in range(6):
    loss = None if (rank, step) == (1, 3) else torch.ones(4)
    if loss is None:
        log.info("batch %d has no valid sample, left out", step)
        continue
    dist.all_reduce(loss)
    log.info("step %d", step)
dist.barrier()
"""

EXTRA = """\
setup()
for step in range(6):
    x = torch.ones(2)
    dist.all_reduce(x)
    if rank == 2 and step == 3:
        y = torch.ones(1)
        dist.broadcast(y, src=2)
        dist.barrier()
dist.all_gather([torch.zeros(3) for _ in range(world)], torch.ones(3))
time.sleep(60)
"""

DOUBLE = """\
setup()
kind = torch.float64 if rank == 1 else torch.float32
print(f"[{rank}] gradients are {kind}")
dist.all_reduce(torch.ones(5000, dtype=kind))
dist.barrier()
"""

KEY_OF_CHIEF = """\
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, rank == 0,
                      timeout=datetime.timedelta(seconds=6))
if rank == 0:
    print("reading the manifest")
    os.read(os.pipe()[0], 1)
    store.set("shard_map", "{}")
print(store.get("shard_map"))
"""

MONITORED = """\
setup(30)
if rank == 5:
    threading.Event().wait()
dist.monitored_barrier(timeout=datetime.timedelta(seconds=6))
"""

LEAVES = """\
setup()
for epoch in range(3):
    if rank == 3 and epoch == 1:
        log.info("patience is used up")
        os._exit(0)
    dist.all_reduce(torch.ones(3))
    log.info("epoch %d", epoch)
"""

LOADER_HANGS = """\
from torch.utils.data import DataLoader, Dataset
class Clips(Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, i):
        if rank == 1 and i == 9:
            time.sleep(600)
        return torch.ones(2)
if __name__ == "__main__":
    setup()
    for step, batch in enumerate(DataLoader(Clips(), batch_size=2, num_workers=1)):
        dist.all_reduce(batch)
"""

SAVES = """\
setup()
dist.barrier()
if rank == 0:
    open("runs", "w").close()
    os.makedirs("runs/17", exist_ok=True)
dist.barrier()
"""

TWO_GROUPS = """\
setup()
group = dist.new_group([0, 1])
other = dist.new_group([2, 3])
mine = group if rank in (0, 1) else other
if rank == 2:
    dist.all_reduce(torch.ones(1))
else:
    dist.all_reduce(torch.ones(1), group=mine)
dist.barrier()
"""

CAUGHT_TIMEOUT = """\
setup()
try:
    if rank == 2:
        threading.Lock().acquire() and threading.Semaphore(0).acquire()
    dist.barrier()
except RuntimeError as error:
    log.error("barrier gave up: %s", str(error)[:60])
    sys.exit(75)
"""

SEND_RECV = """\
setup()
nxt, prv = (rank + 1) % world, (rank - 1) % world
buffer = torch.zeros(2)
for stage in range(3):
    if rank == 0:
        dist.send(torch.ones(2), nxt)
        dist.recv(buffer, prv)
    else:
        dist.recv(buffer, prv)
        if (rank, stage) == (2, 1):
            buffer = buffer.view(3)
        dist.send(buffer, nxt)
"""

FAILURES = [
    gang("seeds", SEEDS, 3, 4, code="exception", wanted="seeds differ: [1234, 1234, 1234, 4321]"),
    gang("lengths", LENGTHS, 2, 4, code="exception", wanted="epoch lengths 120/120/118/120 must be equal"),
    gang("failed-on", FAILED_ON, 2, 4, code="exception", wanted="scan 2-17 is unreadable"),
    gang(
        "flag-unnamed",
        FLAG_UNNAMED,
        1,
        3,
        code="exit_code",
        also_codes=("exception",),
        wanted="3 of 200 rows have no label",
    ),
    gang("flag-exception", FLAG_EXCEPTION, 0, 3, code="exception", wanted="KeyError: 'b'"),
    gang("late", LATE, 3, 4, nodes=2, code="rendezvous", wanted=("unpacking the archive", *HUNG)),
    gang("skips", SKIPS, 1, 4, wanted=("has no valid sample", *HUNG)),
    gang("extra", EXTRA, 2, 4, wanted=("barrier", "broadcast", *HUNG)),
    gang(
        "double", DOUBLE, 1, 3, also_codes=("exception",), wanted=("float64", "Received data size", "Connection closed")
    ),
    gang("key-of-chief", KEY_OF_CHIEF, 0, 3, also_codes=("rendezvous",), wanted=("reading the manifest", *HUNG)),
    gang("monitored-of-8", MONITORED, 5, 8),
    gang("leaves", LEAVES, 3, 4, wanted=("patience is used up", "code 0", *HUNG)),
    gang("loader-hangs", LOADER_HANGS, 1, 3),
    gang("saves", SAVES, 0, 3, code="exception", wanted=("FileExistsError", "NotADirectoryError")),
    gang("two-groups", TWO_GROUPS, 2, 4),
    gang("caught-timeout", CAUGHT_TIMEOUT, 2, 4, also_codes=("exit_code",), wanted=("barrier gave up", *HUNG)),
    gang("send-recv", SEND_RECV, 2, 4, code="exception", wanted="shape '[3]' is invalid for input of size 2"),
]
