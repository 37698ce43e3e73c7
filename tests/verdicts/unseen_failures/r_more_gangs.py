"""More gangs: causes that come seconds before the complaints, ranks that disagree, noisy victims, several nodes."""
# ruff: noqa: E501

from recorder import Failure

SETUP = """import datetime, logging, os, sys, time
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
rank = int(os.environ["RANK"])
log = logging.getLogger(f"worker{rank}")
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
world = dist.get_world_size()
log.info("joined, %d ranks", world)
"""
WRONG_WAY = r"firewall|submit again|pip install|smaller batch"
HANG_WRONG = r"pip install|smaller batch|disk"


def gang(name: str, source: str, ranks: int, **labels: object) -> Failure:
    labels = {"command": "python fit.py", "files": {"fit.py": SETUP + source}, "misleading": (WRONG_WAY,)} | labels
    return Failure(name=name, convention="process", processes=ranks, **labels)  # type: ignore[arg-type]


FAILURES = [
    gang(
        "r-more-cause-three-seconds-earlier",
        """
t = torch.ones(1)
try:
    dist.all_reduce(t)
    if rank == 1:
        limits = {"train": 100}
        log.info("rows: %d", limits["eval"])
    dist.all_reduce(t)
except KeyError:
    log.exception("cannot go on, leaving in 3 seconds so that logs are flushed")
    dist.destroy_process_group()
    time.sleep(3)
    os._exit(1)
""",
        3,
        code="exception",
        rank=1,
        wanted="KeyError: 'eval'",
        helpful=(r"fit\.py|eval",),
    ),
    gang(
        "r-more-victims-retry-noisily",
        """
def exchange(step):
    t = torch.ones(1)
    if rank == 2 and step == 2:
        raise ArithmeticError("learning rate became 0 after 2 decays")
    dist.all_reduce(t)

for step in range(4):
    for attempt in range(3):
        try:
            exchange(step)
            break
        except RuntimeError:
            log.exception("exchange failed, attempt %d of 3", attempt + 1)
            time.sleep(0.1)
    else:
        log.error("giving up after 3 attempts")
        sys.exit(1)
""",
        3,
        code="exception",
        rank=2,
        wanted="ArithmeticError: learning rate became 0 after 2 decays",
        helpful=(r"fit\.py|learning rate|decay",),
    ),
    gang(
        "r-more-three-of-four-same-error",
        """
dist.barrier()
columns = ["a", "b"] if rank == 0 else ["a"]
values = dict(zip(columns, range(2)))
t = torch.tensor(values["b"])
dist.all_reduce(t)
""",
        4,
        code="exception",
        rank=1,
        also=(2, 3),
        wanted="KeyError: 'b'",
        helpful=(r"fit\.py",),
    ),
    gang(
        "r-more-one-rank-other-seed",
        """
seed = {0: 1, 1: 1, 2: 7, 3: 1}[rank]
torch.manual_seed(seed)
order = torch.randperm(8)
every = [torch.zeros_like(order) for _ in range(world)]
dist.all_gather(every, order)
if not all(torch.equal(e, every[0]) for e in every):
    log.error("sampling order differs between ranks; mine (seed %d): %s", seed, order.tolist())
    dist.barrier()
    os._exit(4)
""",
        4,
        code="exit_code",
        rank=2,
        wanted=("sampling order differs between ranks", "seed 7"),
        helpful=(r"seed|fit\.py|rank 2",),
    ),
    gang(
        "r-more-leaves-with-zero-after-flag",
        """
stop = rank == 1
t = torch.ones(4)
for step in range(6):
    dist.all_reduce(t)
    log.info("step %d", step)
    if stop and step == 2:
        log.info("early stopping on this rank")
        break
if stop:
    dist.destroy_process_group()
    sys.exit(0)
""",
        4,
        code="collective",
        rank=1,
        wanted=("code 0", "early stopping on this rank", "left", "had ended"),
        helpful=(r"fit\.py|rank 1|every rank|all ranks|early stop",),
        misleading=(HANG_WRONG, r"firewall"),
    ),
    gang(
        "r-more-four-ranks-one-hangs-two-nodes",
        """
import threading
condition = threading.Condition()
dist.barrier()
if rank == 3:
    with condition:
        log.info("waiting for the augmentation thread")
        condition.wait()
t = torch.ones(1)
dist.all_reduce(t)
""",
        4,
        nodes=2,
        code="collective",
        rank=3,
        wanted=("did not", "hung", "stuck", "condition.wait()", "waiting for the augmentation thread"),
        helpful=(r"fit\.py|condition|rank 3",),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-more-hang-in-native-call",
        """
import ctypes
dist.barrier()
if rank == 1:
    log.info("calling the tokenizer library")
    ctypes.CDLL("libc.so.6").pause()
dist.barrier()
""",
        3,
        code="collective",
        rank=1,
        wanted=("did not", "hung", "stuck", "pause()", "calling the tokenizer library"),
        helpful=(r"fit\.py|pause|rank 1|native|tokenizer",),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-more-stopped-process",
        """
import signal
dist.barrier()
if rank == 2:
    log.info("checking the debugger port")
    os.kill(os.getpid(), signal.SIGSTOP)
dist.barrier()
""",
        3,
        code="collective",
        rank=2,
        wanted=("did not", "hung", "stuck", "checking the debugger port", "stopped"),
        helpful=(r"rank 2|stopped|SIGSTOP|fit\.py|debugger",),
        misleading=(HANG_WRONG,),
    ),
    gang(
        "r-more-rank0-device-full",
        """
t = torch.ones(2)
dist.all_reduce(t)
if rank == 0:
    with open("/dev/full", "wb") as f:
        f.write(b"x" * 100_000)
dist.barrier()
""",
        3,
        code="disk_full",
        rank=0,
        wanted="No space left on device",
        helpful=(r"disk|space|/dev/full|fit\.py",),
    ),
    gang(
        "r-more-subgroup-wrong-member",
        """
group = dist.new_group([0, 1])
t = torch.ones(1)
if rank == 2:
    dist.broadcast_object_list([None], src=5)
dist.all_reduce(t, group=group)
dist.barrier()
""",
        3,
        code="exception",
        rank=2,
        wanted="invalid root rank: 5",
        helpful=(r"fit\.py|src|rank",),
    ),
    gang(
        "r-more-gather-list-missing",
        """
t = torch.ones(2)
dist.gather(t, gather_list=[torch.zeros(2)] if rank == 0 else None, dst=0)
dist.barrier()
""",
        3,
        code="exception",
        rank=0,
        wanted="Incorrect output list size 1. Output list size should be 3",
        helpful=(r"fit\.py|gather",),
    ),
    gang(
        "r-more-subprocess-child-on-one-rank",
        """
import subprocess
dist.barrier()
if rank == 1:
    subprocess.run([sys.executable, "unpack.py", "shard1.zip"], check=True)
dist.barrier()
""",
        2,
        files={
            "fit.py": SETUP
            + """
import subprocess
dist.barrier()
if rank == 1:
    subprocess.run([sys.executable, "unpack.py", "shard1.zip"], check=True)
dist.barrier()
""",
            "unpack.py": "import sys, zipfile\nopen(sys.argv[1], 'wb').write(b'PK\\x03\\x04 broken')\nzipfile.ZipFile(sys.argv[1]).extractall()\n",
        },
        code="exception",
        rank=1,
        wanted="zipfile.BadZipFile: File is not a zip file",
        helpful=(r"unpack\.py|shard1\.zip|fit\.py",),
    ),
    Failure(
        name="r-more-rank1-other-master-port",
        code="rendezvous",
        convention="process",
        processes=2,
        rank=1,
        command="[ $RANK = 0 ] || export MASTER_PORT=1; python fit.py",
        files={
            "fit.py": "import datetime\nimport torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=6))\ndist.barrier()\n"
        },
        wanted=("(127.0.0.1, 1)", "127.0.0.1:1", "port 1", "1/2 clients joined"),
        helpful=(r"MASTER_PORT|port",),
        misleading=(r"pip install|smaller batch",),
    ),
    Failure(
        name="r-more-rank2-never-starts-python",
        code="exit_code",
        also_codes=("data_unavailable",),
        convention="process",
        processes=3,
        rank=2,
        command="bash start.sh",
        files={
            "start.sh": """set -e
if [ "$RANK" = 2 ]; then
  echo "start.sh: mounting scratch for rank $RANK"
  mount -t nfs4 127.0.0.1:/scratch ./scratch 2>/dev/null || { echo "start.sh: scratch is not mounted, refusing to start" >&2; exit 32; }
fi
exec python fit.py
""",
            "fit.py": "import datetime\nimport torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=6))\ndist.barrier()\n",
        },
        wanted="scratch is not mounted, refusing to start",
        helpful=(r"start\.sh|scratch|mount",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-more-limit-rank-failed-before",
        code="exception",
        also_codes=("timeout",),
        convention="process",
        processes=3,
        rank=1,
        limit_s=10,
        command="python fit.py",
        files={
            "fit.py": """import threading, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")

def train():
    if dist.get_rank() == 1:
        scores = []
        print("best", max(scores))
    dist.all_reduce(torch.ones(1))

worker = threading.Thread(target=train)
worker.start()
worker.join()
while dist.get_rank() == 1:
    time.sleep(1)
"""
        },
        wanted=("ValueError: max() arg is an empty sequence", "ValueError: max() iterable argument is empty"),
        helpful=(r"fit\.py|max|scores",),
        misleading=(r"pip install|firewall|raise .{0,20}timeout",),
    ),
    Failure(
        name="r-more-rpc-remote-raises",
        code="exception",
        convention="process",
        processes=2,
        rank=1,
        also=(0,),
        command="python fit.py",
        files={
            "fit.py": """import os
import torch.distributed.rpc as rpc
rank = int(os.environ["RANK"])

def lookup(key):
    return {"a": 1}[key]

rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
if rank == 0:
    print(rpc.rpc_sync("w1", lookup, args=("zeta",)))
rpc.shutdown()
"""
        },
        wanted="KeyError: 'zeta'",
        helpful=(r"fit\.py|lookup|zeta",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-more-make-gang",
        code="exception",
        also_codes=("exit_code",),
        convention="process",
        processes=3,
        rank=2,
        command="make -s part N=$RANK",
        files={
            "Makefile": "part:\n\t@python part.py $(N) && sleep 2\n",
            "part.py": "import sys\nn = int(sys.argv[1])\nprint('part', n, flush=True)\nprint([10, 20][n])\n",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"part\.py",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-more-java-gang",
        code="exception",
        convention="process",
        processes=2,
        rank=1,
        command="mkdir -p c$RANK && javac -d c$RANK Worker.java && java -cp c$RANK Worker",
        files={
            "Worker.java": """import java.util.*;
public class Worker {
  public static void main(String[] args) throws Exception {
    int rank = Integer.parseInt(System.getenv("RANK"));
    System.out.println("worker " + rank + " up");
    List<Integer> parts = List.of(3);
    Thread.sleep(500);
    System.out.println(parts.get(rank));
    Thread.sleep(8000);
  }
}
"""
        },
        wanted="java.lang.IndexOutOfBoundsException: Index: 1 Size: 1",
        helpful=(r"Worker\.java|index|parts",),
        misleading=(WRONG_WAY,),
    ),
]
