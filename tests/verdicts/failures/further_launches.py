"""Jobs below torchrun and mpirun, and programs that reject what they were given."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended")
TORCH = """\
import datetime, logging, os, signal, sys, threading, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def setup(s=7):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=s))

"""
MPI = "import os, signal, sys, time\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nr, n = comm.rank, comm.size\n"


def elastic(name: str, script: str, rank: int | None, count: int = 3, nodes: int = 1, **more: object) -> Failure:
    nnodes = f"--nnodes={nodes} --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    given: dict[str, object] = {
        "name": f"further-torchrun-{name}",
        "code": "exception",
        "command": f"torchrun --nproc-per-node={count // nodes} {nnodes if nodes > 1 else '--standalone'} run.py",
        "files": {"run.py": TORCH + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"run\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "torchrun",
        "processes": nodes,
        "nodes": nodes,
        "num_ranks": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def mpi(name: str, script: str, rank: int | None, count: int = 4, own: bool = False, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"further-{'mpi' if own else 'mpirun'}-{name}",
        "code": "exception",
        "command": "python -u sim.py" if own else f"mpirun --oversubscribe -n {count} python -u sim.py",
        "files": {"sim.py": MPI + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"sim\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "mpi" if own else "mpirun",
        "processes": count if own else 1,
        "num_ranks": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def one(name: str, command: str, files: dict[str, str], wanted: object, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"further-one-{name}",
        "code": "bad_input",
        "command": command,
        "files": files,
        "wanted": wanted,
        "helpful": (),
        "misleading": ("memory", "firewall"),
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


EARLY = """\
setup()
for step in range(5):
    if rank == 2 and step == 2:
        print("rank 2 has seen all of its files")
        sys.exit(0)
    dist.all_reduce(torch.ones(3))
"""
FLAG = """\
logging.basicConfig(level=logging.INFO)
setup()
flag = torch.zeros(1)
try:
    value = [1, 2, 3][3 if rank == 1 else 0]
except IndexError:
    logging.exception("rank %d cannot sample", rank)
    flag += 1
dist.all_reduce(flag)
if flag.item():
    raise RuntimeError(f"{int(flag.item())} rank(s) could not sample, see their logs")
"""
HANGS = """\
setup()
if rank == 3:
    os.mkfifo(f"/tmp/further-{os.getpid()}")
    open(f"/tmp/further-{os.getpid()}").read()
dist.barrier()
"""
RECORDED = """\
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    setup()
    if rank == 1:
        raise ValueError("scheduler: warmup 500 is longer than the 200 steps of the run")
    dist.barrier()
main()
"""
COUNTS = """\
setup()
counts = [torch.zeros(1) for _ in range(world)]
dist.all_gather(counts, torch.tensor([31.0 if rank == 2 else 32.0]))
counts = [int(c) for c in counts]
if min(counts) != max(counts):
    raise ValueError(f"ranks have unequal numbers of batches: {counts}")
"""
KILLED = """\
setup()
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(torch.ones(1))
time.sleep(5)
dist.barrier()
"""
CONFIG = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
print(parser.parse_args())
"""

MPI_FLAG = """\
bad = 0
if r == 2:
    print(f"rank {r}: cell 118 has volume -0.3", flush=True)
    bad = 1
if comm.allreduce(bad):
    raise RuntimeError("mesh check failed")
"""
MPI_GATHER = """\
result = None if r == 3 else r * 2.0
if r == 3:
    print(f"[{r}] no atoms in this domain", flush=True)
found = comm.gather(result)
if r == 0:
    lacking = [k for k, v in enumerate(found) if v is None]
    if lacking:
        print("ranks without a result:", lacking, flush=True)
        comm.Abort(4)
comm.Barrier()
"""
MPI_EARLY = """\
for step in range(4):
    if r == 1 and step == 2:
        print("rank 1: converged", flush=True)
        os._exit(0)
    comm.allreduce(1.0)
"""
MPI_WAITS = """\
if r == 1:
    grid = {"nx": 4}
    grid["ny"]
comm.Barrier()
"""
MPI_BEAT = """\
if r == 0:
    seen = set()
    until = time.time() + 6
    while len(seen) < n - 1:
        status = MPI.Status()
        if comm.iprobe(status=status):
            seen.add(comm.recv(source=status.source))
        elif time.time() > until:
            print("no sign of life from", sorted(set(range(1, n)) - seen), "for 6 s, aborting", flush=True)
            comm.Abort(5)
        time.sleep(0.05)
if r == 2:
    while True:
        time.sleep(1)
comm.send(r, dest=0)
comm.Barrier()
"""
CLICK = """\
import click
@click.command()
@click.argument("dataset", type=click.Path(exists=True))
@click.option("--epochs", type=click.IntRange(1, 100))
def main(dataset, epochs):
    print(dataset, epochs)
main()
"""
TYPER = """\
import typer
app = typer.Typer()
@app.command()
def train(rate: float = typer.Option(...), width: int = 4):
    print(rate, width)
@app.command()
def evaluate():
    print("ok")
app()
"""
OWN_CHECK = """\
import sys
known = {"--lr", "--epochs", "--out"}
for word in sys.argv[1:]:
    if word.startswith("--") and word.split("=")[0] not in known:
        print(f"{sys.argv[0]}: unknown option {word}", file=sys.stderr)
        print(f"usage: {sys.argv[0]} [--lr X] [--epochs N] [--out DIR]", file=sys.stderr)
        sys.exit(64)
"""
ABSL = """\
from absl import app, flags
flags.DEFINE_enum("mode", "train", ["train", "eval"], "what to do")
app.run(lambda argv: print(flags.FLAGS.mode))
"""
SETTINGS = """\
from pydantic import Field
from pydantic_settings import BaseSettings
class Settings(BaseSettings, cli_parse_args=True):
    steps: int = Field(gt=0)
    name: str
print(Settings())
"""
GETOPT = """\
import getopt, sys
try:
    options, rest = getopt.getopt(sys.argv[1:], "l:e:", ["lr=", "epochs="])
except getopt.GetoptError as error:
    print(error)
    sys.exit(2)
"""
SUBCOMMANDS = """\
import argparse
parser = argparse.ArgumentParser(prog="pipeline")
below = parser.add_subparsers(dest="what", required=True)
below.add_parser("prepare")
below.add_parser("fit").add_argument("--fold", type=int, choices=range(5))
print(parser.parse_args())
"""
GETOPTS = """\
#!/bin/bash
while getopts "d:n:" option; do
  case $option in
    d) data=$OPTARG ;;
    n) count=$OPTARG ;;
    *) echo "usage: $0 -d DATA [-n COUNT]"; exit 1 ;;
  esac
done
"""
POSITIONAL = """\
import sys
if len(sys.argv) != 3:
    sys.exit("Usage: prepare.py INPUT OUTPUT")
"""

FAILURES = [
    elastic("early", EARLY, 2, 4, code="collective", wanted=("has seen all of its files", "code 0", *HUNG)),
    elastic("flag", FLAG, 1, wanted="IndexError: list index out of range"),
    elastic("hangs-two-nodes", HANGS, 3, 4, 2, code="collective"),
    elastic("recorded", RECORDED, 1, wanted="warmup 500 is longer than the 200 steps"),
    elastic("counts", COUNTS, 2, 4, wanted="ranks have unequal numbers of batches: [32, 32, 31, 32]"),
    elastic("killed", KILLED, 1, code="signal", wanted=("SIGKILL", "Signal 9")),
    elastic(
        "count-in-words",
        CONFIG,
        None,
        2,
        code="bad_input",
        also=(0, 1),
        wanted="two",
        command="torchrun --nproc-per-node=two run.py",
        helpful=("nproc",),
    ),
    elastic(
        "backend-unknown",
        CONFIG,
        None,
        2,
        code="bad_input",
        also_codes=("exception",),
        also=(0, 1),
        command="torchrun --nproc-per-node=2 --rdzv-backend=zookeeper --rdzv-endpoint=localhost:0 run.py",
        wanted="zookeeper",
        helpful=("rdzv", "c10d"),
    ),
    elastic(
        "option-of-script",
        CONFIG,
        0,
        2,
        code="bad_input",
        also=(1,),
        wanted="the following arguments are required: --width",
        helpful=("--width",),
    ),
    mpi("flag", MPI_FLAG, 2, wanted="cell 118 has volume -0.3"),
    mpi("gather", MPI_GATHER, 3, code="exit_code", also_codes=("exception",), wanted="ranks without a result: [3]"),
    mpi(
        "early-at-limit",
        MPI_EARLY,
        1,
        own=True,
        code="timeout",
        also_codes=("collective",),
        limit_s=9.0,
        wanted=("rank 1: converged", "limit", "finalize", *HUNG),
    ),
    mpi("waits-in-finalize", MPI_WAITS, 1, 3, own=True, also_codes=("timeout",), limit_s=9.0, wanted="KeyError: 'ny'"),
    mpi(
        "beat",
        MPI_BEAT,
        2,
        own=True,
        code="collective",
        also_codes=("exit_code",),
        wanted=("no sign of life from [2]", *HUNG),
    ),
    one(
        "click-path",
        "python cli.py data/nowhere --epochs 5",
        {"cli.py": CLICK},
        "Path 'data/nowhere' does not exist",
        helpful=("data/nowhere",),
    ),
    one("typer-missing", "python app.py train", {"app.py": TYPER}, "Missing option '--rate'", helpful=("--rate",)),
    one("own-check", "python go.py --lrr=3", {"go.py": OWN_CHECK}, "unknown option --lrr=3", helpful=("--lrr",)),
    one(
        "absl-enum",
        "python fl.py --mode=test",
        {"fl.py": ABSL},
        "flag --mode=test: value should be one of",
        helpful=("--mode",),
    ),
    one(
        "pydantic-cli",
        "python st.py --steps 0",
        {"st.py": SETTINGS},
        "greater than 0",
        also_codes=("exception",),
        helpful=("steps", r"st\.py"),
    ),
    one(
        "getopt", "python gt.py --rate 3", {"gt.py": GETOPT}, "option --rate not recognized", also_codes=("exit_code",)
    ),
    one(
        "subcommands", "python pipe.py fit --fold 7", {"pipe.py": SUBCOMMANDS}, "invalid choice: 7", helpful=("--fold",)
    ),
    one(
        "getopts", "./start.sh -x 3", {"start.sh": GETOPTS}, "illegal option -- x", convention="shell", helpful=("-x",)
    ),
    one(
        "positional",
        "python prepare.py raw",
        {"prepare.py": POSITIONAL},
        "Usage: prepare.py INPUT OUTPUT",
        helpful=("prepare", "OUTPUT"),
    ),
]
