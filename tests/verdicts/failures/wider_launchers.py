"""Gangs under torchrun, and gangs in which one rank leaves with a code, a message or nothing at all."""

from dataclasses import replace

from recorder import Failure

SET_UP = """\
import datetime, logging, os, sys, time, threading, traceback
import torch
import torch.distributed as dist
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds={seconds}))

def reduce(value=1.0):
    x = torch.tensor([value]); dist.all_reduce(x); return x.item()

"""
HUNG = ("did not", "hung", "stuck", "was at", "stayed", "had ended", "another call")
ONE_NODE = "torchrun --standalone --nproc-per-node {count} train.py"
TWO_NODES = (
    "torchrun --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT "
    "--nproc-per-node {count} train.py"
)


def child(
    name: str, script: str, rank: int | None, count: int = 4, nodes: int = 1, seconds: int = 20, **more: object
) -> Failure:
    command = (TWO_NODES if nodes == 2 else ONE_NODE).replace("{count}", str(count // nodes))
    given: dict[str, object] = {
        "name": f"wide-torchrun-{name}",
        "code": "exception",
        "command": command,
        "files": {"train.py": SET_UP.replace("{seconds}", str(seconds)) + script},
        "wanted": HUNG,
        "helpful": (r"train\.py", f"rank {rank}"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "torchrun",
        "processes": nodes,
        "nodes": nodes,
        "num_ranks": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def gang(name: str, script: str, rank: int | None, count: int = 4, nodes: int = 1, **more: object) -> Failure:
    made = {"command": "python -u train.py", "convention": "process", "processes": count, "num_ranks": None}
    return replace(child(name, script, rank, count, nodes, **{**made, **more}), name=f"wide-{name}")


HANGS = """\
def read(step):
    if RANK == {guilty} and step == 3:
        time.sleep(300)
for step in range(9):
    read(step); reduce()
"""

MESSAGE = """\
for step in range(9):
    reduce()
    if RANK == 2 and step == 4:
        sys.exit("validation: vocabulary has 31999 entries, the model wants 32000")
"""

SILENT = """\
log = logging.getLogger("train"); logging.basicConfig(level=logging.INFO)
for step in range(9):
    log.info("step %d", step)
    reduce()
    if RANK == 1 and step == 4:
        os._exit(7)
    if RANK == 3 and step == 2:
        log.warning("could not write the cache, going on without")
"""

FLAG = """\
error = ""
try:
    if RANK == 1:
        raise FileNotFoundError("shards/0001.parquet")
except Exception:
    traceback.print_exc()
    error = "failed"
if reduce(float(bool(error))):
    raise SystemExit("a rank could not load its shard, stopping")
"""

RESTARTS = """\
for step in range(4):
    reduce()
    if RANK == 0 and step == 2:
        raise ArithmeticError("gradient norm is nan")
"""

ELSEWHERE = """\
x = torch.ones(4)
if RANK == 3:
    dist.broadcast(x, src=0)
else:
    dist.all_reduce(x)
dist.barrier()
"""

EARLY = """\
for step in range(3 if RANK == 1 else 6):
    reduce()
print("finished", RANK)
"""

KILLED = """\
import signal
for step in range(6):
    reduce()
    if RANK == 2 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""

CAUGHT = """\
log = logging.getLogger("train"); logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
for step in range(8):
    try:
        if RANK == 0 and step == 2:
            raise BlockingIOError("cache is locked")
    except BlockingIOError:
        log.exception("reading the cache")
    reduce()
    if RANK == 2 and step == 5:
        print("rank 2: budget of tokens is used up")
        sys.exit(9)
"""

ALL_BUT = """\
batch = torch.ones(4 if RANK != 2 else 3)
sizes = [torch.zeros(1) for _ in range(WORLD)]
dist.all_gather(sizes, torch.tensor([float(len(batch))]))
if len({size.item() for size in sizes}) > 1 and RANK != 2:
    raise RuntimeError(f"rank {RANK}: batch sizes differ: {[int(size) for size in sizes]}")
reduce()
"""

RAISES_LATE = """\
def cleanup():
    time.sleep(0.4)
try:
    for step in range(5):
        reduce()
        if RANK == 1 and step == 3:
            raise LookupError("token 40000 is not in the vocabulary")
finally:
    cleanup()
"""

SUPERVISOR = """\
import json
state = {"rank": RANK, "error": None}
try:
    if RANK == 3:
        json.loads("{broken")
except ValueError as error:
    state["error"] = repr(error)
found = [None] * WORLD
dist.all_gather_object(found, state)
bad = [item for item in found if item["error"]]
if RANK == 0 and bad:
    raise RuntimeError(f"preflight failed: {bad}")
dist.barrier()
time.sleep(20)
"""

CAUGHT_FEW = """\
try:
    if RANK == 0:
        raise BlockingIOError("cache is locked")
except BlockingIOError:
    traceback.print_exc()
for step in range(3):
    reduce()
if RANK == 1:
    print("quota: 0 of 5000 GPU minutes are left for this project", flush=True)
    sys.exit(11)
time.sleep(60)
"""

BEFORE = """\
if RANK == 2:
    raise PermissionError("cannot take the licence of this seat")
"""

NOISY = """\
reduce()
if RANK == 1:
    import json
    json.loads('{"lr": }')
print("rank", RANK, "waits for the others", file=sys.stderr, flush=True)
dist.barrier()
"""

ASSERTS = """\
seen = reduce(float(RANK))
assert RANK != 3 or seen < 3, f"sum of ranks is {seen}"
time.sleep(60)
"""

WORKER = """\
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        if RANK == 1 and index == 17:
            raise ValueError(f"image {index} is truncated")
        return torch.ones(2)
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Numbers(), 8, num_workers=2):
        reduce()
"""

WORKS = """\
for step in range(100_000):
    reduce(); time.sleep(0.05)
"""

PARENT = """\
import signal
reduce()
if RANK == 1:
    os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""

CONTRACT = """\
reduce()
code = {0: 0, 1: 0, 2: 65}[RANK]
if code:
    print("data contract violated: column price has 12 nulls", file=sys.stderr, flush=True)
dist.destroy_process_group()
sys.exit(code)
"""

NODE = "if [ $NODE_RANK = 1 ]; then cd /nonexistent-folder || exit 1; fi; "

FAILURES = [
    child("hangs-5", HANGS.replace("{guilty}", "3"), 3, 5, seconds=5, code="collective"),
    child("hangs-2x2", HANGS.replace("{guilty}", "1"), 1, 4, 2, seconds=5, code="collective"),
    child("message-4", MESSAGE, 2, code="exit_code", wanted="vocabulary has 31999 entries", helpful=()),
    child("silent-4", SILENT, 1, code="exit_code", wanted=("code 7",), helpful=(), also_codes=("collective",)),
    child("flag-3", FLAG, 1, 3, wanted="shards/0001.parquet", also_codes=("data_unavailable", "exit_code")),
    child("restarts-2", RESTARTS, 0, 2, command=ONE_NODE.replace("{count}", "2 --max-restarts 1"),
          wanted="ArithmeticError: gradient norm is nan"),
    child("elsewhere-4", ELSEWHERE, 3, seconds=5, code="collective", also_codes=("exception",),
          wanted=(*HUNG, "Timed out", "timed out")),
    child("early-3", EARLY, 1, 3, seconds=5, code="collective"),
    child("killed-2x2", KILLED, 2, 4, 2, code="signal", wanted="SIGKILL", helpful=("SIGKILL",)),
    child("late-3", RAISES_LATE, 1, 3, wanted="LookupError: token 40000 is not in the vocabulary"),
    child("left-2x2", EARLY, 1, 4, 2, seconds=5, code="collective"),
    child("node-folder-2x2", EARLY, 2, 4, 2, also=(3,), command=NODE + TWO_NODES.replace("{count}", "2"),
          code="exit_code", also_codes=("launcher_missing", "bad_input", "exception", "data_unavailable"),
          wanted=("No such file", "nonexistent"), helpful=("nonexistent",)),
    child("caught-4", CAUGHT, 2, code="exit_code", wanted="budget of tokens is used up", helpful=()),
    child("caught-few-3", CAUGHT_FEW, 1, 3, code="exit_code", wanted="quota: 0 of 5000 GPU minutes", helpful=(),
          misleading=("cache|Blocking",)),
    child("before-4", "", 2, wanted="PermissionError: cannot take the licence of this seat",
          files={"train.py": SET_UP.split("dist.init")[0] + BEFORE + "dist.init_process_group('gloo')\n"}),
    child("noisy-3", NOISY, 1, 3, wanted="JSONDecodeError"),
    child("asserts-2x2", ASSERTS, 3, 4, 2, wanted="AssertionError: sum of ranks"),
    child("worker-2", WORKER, 1, 2, wanted="ValueError: image 17 is truncated"),
    child("killed-3", KILLED, 2, 3, code="signal", wanted="SIGKILL", helpful=("SIGKILL",)),
    child("timeout-2", WORKS, None, 2, command="timeout 12 " + ONE_NODE.replace("{count}", "2"), code="exit_code",
          also_codes=("timeout", "signal"), wanted=("124", "timeout", "SIGTERM", "signal"),
          helpful=("timeout",), misleading=(r"train\.py",)),
    child("parent-2", PARENT, None, 2, also=(1,), code="signal", also_codes=("exit_code", "exception"),
          wanted=("SIGTERM", "signal"), helpful=("SIGTERM|signal",)),
    child("contract-3", CONTRACT, 2, 3, code="exit_code", wanted="data contract violated", helpful=()),
    gang("timeout-each-3", WORKS, None, 3, command="timeout 10 python -u train.py", also=(0, 1, 2), code="exit_code",
         also_codes=("timeout", "signal"), wanted=("124", "timeout"), helpful=("timeout",)),
    gang("contract-exit-3", CONTRACT, 2, 3, code="exit_code", wanted="data contract violated", helpful=()),
    gang("caught-exit-4", CAUGHT, 2, code="exit_code", wanted="budget of tokens is used up", helpful=()),
    gang("silent-exit-4", SILENT, 1, 4, 2, code="exit_code", wanted=("code 7",), helpful=(),
         also_codes=("collective",)),
    gang("message-exit-3", MESSAGE, 2, 3, code="exit_code", wanted="vocabulary has 31999 entries", helpful=()),
    gang("all-but-one-4", ALL_BUT, 2, also=(0, 1, 3), wanted="batch sizes differ"),
    gang("supervisor-4", SUPERVISOR, 3, 4, 2, wanted="JSONDecodeError", also=(0,)),
    gang("flag-exit-4", FLAG, 1, 4, 2, wanted="shards/0001.parquet", also_codes=("data_unavailable", "exit_code")),
]  # fmt: skip
