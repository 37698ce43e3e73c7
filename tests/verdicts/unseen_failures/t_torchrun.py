"""torchrun on one node: ranks that raise, hang, leave, are killed."""

from functools import partial

from recorder import Failure

TRAIN = r"""import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["WORLD_SIZE"])


def setup(seconds=20):
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))


def steps(n, pause=0.02):
    for i in range(n):
        grad = torch.ones(4096) * rank
        dist.all_reduce(grad)
        if rank == 0:
            print(f"step {i:3d} | grad norm {grad.norm():.2f}", flush=True)
        time.sleep(pause)
"""


def run(name: str, n: int, body: str, flags: str = "", **more: object) -> Failure:
    fields: dict[str, object] = {
        "convention": "torchrun",
        "num_ranks": n,
        "command": f"torchrun --nproc-per-node {n} {flags} --master-port $MASTER_PORT train.py".replace("  ", " "),
        "files": {"util.py": TRAIN, "train.py": "from util import *\n" + body},
        "misleading": (r"firewall|memory|disk",),
        **more,
    }
    return Failure(name=name, **fields)  # type: ignore[arg-type]


plain = partial(run, code="exception")

FAILURES = [
    plain(
        "t-run-record-attribute-error",
        4,
        """
@record
def main():
    setup()
    steps(3)
    model = torch.nn.Linear(4, 4)
    if rank == 3:
        print(model.weights.shape)
    steps(3)

main()
""",
        way="a typing error in a branch of one rank, with @record",
        wanted="'Linear' object has no attribute 'weights'",
        helpful=(r"train\.py|weights?",),
        rank=3,
    ),
    plain(
        "t-run-shape-error-last-batch",
        3,
        """
setup()
steps(2)
lengths = [64, 64, 60 if rank == 1 else 64]
for n in lengths:
    x = torch.randn(4, n)
    (x @ torch.randn(64, 8)).sum()
    steps(1)
""",
        way="a last batch of another width on one rank",
        wanted="mat1 and mat2 shapes cannot be multiplied (4x60 and 64x8)",
        helpful=(r"train\.py|shape",),
        rank=1,
    ),
    plain(
        "t-run-tee-index-error",
        4,
        """
setup()
steps(2)
ids = list(range(100, 100 + world_size - (rank == 2)))
print("my stages:", [ids[i] for i in range(world_size)])
steps(2)
dist.destroy_process_group()
""",
        flags="--tee 3 --log-dir logs",
        way="output with the launcher's prefixes",
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py|ids",),
        rank=2,
    ),
    plain(
        "t-run-redirected-output",
        2,
        """
setup()
steps(2)
if rank == 1:
    raise LookupError("no entry for fold 3 in folds.json")
steps(2)
""",
        flags="--redirects 3 --log-dir logs",
        also_codes=("exit_code",),
        way="the ranks' output lies in files of the launcher",
        wanted=("no entry for fold 3", "exitcode", "log", "code 1"),
        helpful=(r"log|redirect|train\.py|folds|@record",),
        rank=1,
    ),
    plain(
        "t-run-restarts-do-not-help",
        2,
        """
setup()
steps(2)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("attempt", attempt, flush=True)
if rank == 0:
    assert os.path.isdir("/datasets/imagenet-21k"), "data set is not mounted: /datasets/imagenet-21k"
steps(2)
""",
        flags="--max-restarts 1 --monitor-interval 0.5",
        way="the launcher starts all anew, and the same happens",
        limit_s=60,
        wanted="AssertionError: data set is not mounted: /datasets/imagenet-21k",
        helpful=(r"/datasets|mount|input|train\.py",),
        rank=0,
    ),
    plain(
        "t-run-chained-cause",
        4,
        """
class DataError(Exception): pass

def row(line):
    try:
        return [float(v) for v in line.split(",")]
    except ValueError as error:
        raise DataError(f"row could not be parsed on rank {rank}") from error

setup()
for i in range(4):
    row("1.5,2.5,n/a" if (rank, i) == (2, 2) else "1.5,2.5,3.5")
    steps(1)
""",
        way="one exception out of another",
        wanted="ValueError: could not convert string to float: 'n/a'",
        helpful=(r"train\.py|n/a|row",),
        rank=2,
    ),
    plain(
        "t-run-exception-group",
        3,
        """
import asyncio

async def fetch(i):
    await asyncio.sleep(0.01 * i)
    if rank == 1 and i == 2:
        raise TimeoutError("object store: GET part-00002 timed out after 3 attempts")

async def everything():
    async with asyncio.TaskGroup() as group:
        for i in range(4):
            group.create_task(fetch(i))

setup()
steps(1)
asyncio.run(everything())
steps(1)
""",
        way="a task group fails on one rank",
        wanted="object store: GET part-00002 timed out",
        helpful=(r"train\.py|part-00002|store",),
        rank=1,
    ),
    run(
        "t-run-hang-in-sleep",
        4,
        """
def backoff(url):
    for attempt in range(8):
        print(f"rank {rank}: {url} answered 503, next try in {2 ** attempt} s", flush=True)
        time.sleep(2 ** attempt)

setup(4)
steps(2)
if rank == 2:
    backoff("http://models.internal/base.bin")
steps(2)
""",
        code="collective",
        way="one rank retries a download for longer than the others wait",
        wanted=("backoff", "answered 503", "did not", "hung", "stuck", "time.sleep"),
        helpful=(r"train\.py|models\.internal|503|backoff|rank 2",),
        rank=2,
    ),
    run(
        "t-run-one-more-batch",
        4,
        """
setup(5)
data = range(81)
mine = [i for i in data if i % world_size == rank]
print(f"rank {rank}: {len(mine)} samples", flush=True)
for i in mine:
    dist.all_reduce(torch.tensor([float(i)]))
print(f"rank {rank}: epoch done", flush=True)
dist.barrier()
""",
        code="collective",
        also_codes=("exception", "signal"),
        way="one rank has a batch more than the others",
        wanted=("21 samples", "all_reduce", "did not", "Timed out", "closed by peer", "barrier"),
        helpful=(r"train\.py|sampl|batch|rank 0",),
        rank=0,
    ),
    run(
        "t-run-leaves-with-zero",
        3,
        """
setup()
steps(2)
if rank == 2 and not os.path.exists("labels.npz"):
    print("labels.npz not found; leaving", flush=True)
    os._exit(0)
steps(2, pause=0.2)
""",
        code="collective",
        way="one rank leaves with code 0",
        wanted=("labels.npz not found; leaving", "code 0", "exited"),
        helpful=(r"train\.py|labels|rank 2",),
        rank=2,
    ),
    run(
        "t-run-child-killed",
        4,
        """
setup()
steps(4)
if rank == 1:
    os.kill(os.getpid(), 9)
steps(40)
""",
        code="signal",
        way="one child is killed",
        wanted=("SIGKILL", "Signal 9", "exitcode  : -9", "exitcode: -9"),
        helpful=(r"kill|outside|dmesg|memory",),
        misleading=(r"firewall|disk",),
        rank=1,
    ),
    run(
        "t-run-child-segfault",
        2,
        """
import faulthandler, ctypes
faulthandler.enable()
setup()
steps(4)
if rank == 1:
    ctypes.string_at(0)
steps(40)
""",
        code="signal",
        way="one child crashes in native code and shows its stack",
        wanted=("Segmentation fault", "SIGSEGV", "Signal 11"),
        helpful=(r"train\.py|native|ctypes",),
        rank=1,
    ),
    run(
        "t-run-exit-code-42",
        5,
        """
setup()
steps(3)
if rank == 4:
    print("FATAL licence server refused the token for node pool 'b'", file=sys.stderr, flush=True)
    os._exit(42)
steps(10)
""",
        code="exit_code",
        way="one child leaves with a code of its own",
        wanted="licence server refused the token",
        helpful=(r"licen|token|train\.py",),
        rank=4,
    ),
    run(
        "t-run-argparse-rejects",
        2,
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--precision", choices=["fp32", "bf16"])
args = parser.parse_args()
setup()
""",
        code="bad_input",
        command="torchrun --nproc-per-node 2 --master-port $MASTER_PORT train.py --epochs 3 --precision fp8",
        way="an option with a value that is not allowed",
        wanted="argument --precision: invalid choice: 'fp8'",
        helpful=(r"precision|fp32|bf16",),
        rank=0,
        also=(1,),
    ),
    run(
        "t-run-script-elsewhere",
        2,
        "setup()\n",
        code="bad_input",
        also_codes=("launcher_missing",),
        command="torchrun --nproc-per-node 2 --master-port $MASTER_PORT scripts/train.py",
        way="the script lies in another folder",
        wanted="can't open file",
        helpful=(r"train\.py|scripts",),
        rank=0,
        also=(1,),
    ),
    run(
        "t-run-missing-import",
        3,
        "import einops_ext\nsetup()\n",
        code="environment",
        way="a package is missing everywhere",
        wanted="No module named 'einops_ext'",
        helpful=(r"einops_ext",),
        rank=0,
        also=(1, 2),
    ),
    run(
        "t-run-no-python-missing-program",
        2,
        "setup()\n",
        code="launcher_missing",
        command="torchrun --nproc-per-node 2 --master-port $MASTER_PORT --no-python ./bin/trainer --steps 10",
        way="the program that the launcher is to start is not there",
        wanted=("No such file or directory: './bin/trainer'", "./bin/trainer"),
        helpful=(r"bin/trainer|trainer",),
        rank=None,
        also=(0, 1),
    ),
    run(
        "t-run-bad-launcher-option",
        2,
        "setup()\n",
        code="bad_input",
        command="torchrun --nproc-per-node 2 --master-port $MASTER_PORT --max-restart 0 --gpus 2 train.py",
        way="an option that the launcher does not know",
        wanted=("unrecognized arguments", "ambiguous option", "can't open file", "invalid", "--gpus"),
        helpful=(r"--gpus|nproc|option|argument",),
        rank=None,
        also=(0, 1),
    ),
]
