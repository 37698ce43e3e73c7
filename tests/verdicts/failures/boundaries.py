"""Failures at the borders between codes: arguments that a program rejects in its own way, programs that a launcher cannot
start, devices that the node does not have, ranks that never come to the start, that freeze, or that alone go on."""

from failures.told_apart import TORCH, WORDS
from recorder import Failure

NO_NETWORK = ("firewall|memory|submit again|pip install", "interface")

STAR = """\
import os, signal, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def read(link, size):
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end closed")
        data += part
    return data

if rank == 0:
    server = socket.create_server(at)
    links = {}
    while len(links) < world - 1:
        link, _ = server.accept()
        links[struct.unpack("i", read(link, 4))[0]] = link
else:
    for _ in range(200):
        try:
            hub = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.1)
    hub.sendall(struct.pack("i", rank))
    links = {0: hub}
for link in links.values():
    link.settimeout(4)

def mean(value):
    if rank == 0:
        total = value + sum(struct.unpack("d", read(links[r], 8))[0] for r in sorted(links))
        for link in links.values():
            link.sendall(struct.pack("d", total / world))
        return total / world
    hub.sendall(struct.pack("d", value))
    return struct.unpack("d", read(hub, 8))[0]
"""

FILES = """\
import os, pathlib, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
here = pathlib.Path("ready")
here.mkdir(exist_ok=True)
"""


def gang(name: str, script: str, rank: int | None, count: int, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"border-{name}",
        "code": "collective",
        "command": "python -u job.py",
        "files": {"job.py": script},
        "wanted": WORDS,
        "helpful": (rf"rank {rank}\b", r"job\.py"),
        "misleading": NO_NETWORK,
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def usage(name: str, command: str, wanted: str | tuple[str, ...], **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"border-{name}",
        "code": "bad_input",
        "command": command,
        "wanted": wanted,
        "misleading": NO_NETWORK,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


FAILURES = [
    # Ranks that do not come to the start.
    gang(
        "files-at-the-start-of-4",
        FILES
        + """
def unpack():
    time.sleep(60)

if rank == 2:
    unpack()
(here / str(rank)).touch()
deadline = time.time() + 3
while time.time() < deadline:
    missing = [r for r in range(world) if not (here / str(r)).exists()]
    if not missing:
        break
    time.sleep(0.1)
else:
    raise RuntimeError(f"start line: ranks {missing} are still missing after 3 s")
""",
        2,
        4,
        code="rendezvous",
        also_codes=("collective",),
    ),
    gang(
        "roll-call-leaves-with-a-message",
        FILES
        + """
if rank == 0:
    print("rank 0 builds the vocabulary", flush=True)
    time.sleep(60)
(here / f"{rank}.ok").touch()
for _ in range(30):
    absent = sorted(set(range(world)) - {int(p.stem) for p in here.glob("*.ok")})
    if not absent:
        break
    time.sleep(0.1)
else:
    sys.exit(f"roll call: rank(s) {absent} did not check in within 3 s")
""",
        0,
        3,
        code="rendezvous",
        also_codes=("collective",),
        wanted=(*WORDS, "builds the vocabulary"),
    ),
    gang(
        "two-of-five-not-at-the-gate",
        FILES
        + """
class GateTimeout(Exception):
    pass

if rank in (1, 3):
    time.sleep(60)
(here / str(rank)).touch()
deadline = time.monotonic() + 3
while len(list(here.iterdir())) < world:
    if time.monotonic() > deadline:
        late = [r for r in range(world) if not (here / str(r)).exists()]
        raise GateTimeout(f"gate closed, workers {late} never came")
    time.sleep(0.05)
""",
        1,
        5,
        also=(3,),
        code="rendezvous",
        also_codes=("collective", "exception"),
    ),
    gang(
        "rank-said-to-have-failed",
        FILES
        + """
if rank == 1:
    try:
        open("tokens/part-1.bin")
    except OSError as error:
        print(f"cannot open the part of rank 1: {error}", flush=True)
        (here / "failed-1").touch()
        time.sleep(60)
time.sleep(2)
failed = sorted(int(p.name.partition("-")[2]) for p in here.glob("failed-*"))
if failed:
    raise RuntimeError(f"preparation failed on ranks {failed}")
""",
        1,
        3,
        code="exception",
        also_codes=("collective", "data_unavailable"),
        wanted=("tokens/part-1.bin", "failed on ranks [1]"),
    ),
    # Ranks that freeze: they cannot even show where they are.
    gang(
        "frozen-in-star-of-4",
        STAR
        + """
for step in range(6):
    if rank == 1 and step == 2:
        print("rank 1 is paused", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    mean(float(step))
""",
        1,
        4,
        wanted=(*WORDS, "rank 1 is paused", "stopped"),
    ),
    gang(
        "frozen-hub-of-3",
        STAR
        + """
for step in range(6):
    if rank == 0 and step == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    mean(float(step))
""",
        0,
        3,
        wanted=(*WORDS, "stopped"),
    ),
    gang(
        "frozen-partner-of-2",
        STAR
        + """
for step in range(6):
    if rank == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    mean(float(step))
""",
        1,
        2,
        wanted=(*WORDS, "stopped"),
    ),
    gang(
        "frozen-in-all-reduce",
        TORCH
        + """
import signal
for step in range(5):
    if rank == 2 and step == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(4))
""",
        2,
        3,
        wanted=(*WORDS, "stopped"),
    ),
    # The time limit, where all but some had ended well.
    gang(
        "shell-goes-on-alone",
        "",
        2,
        4,
        code="timeout",
        command='echo "node $RANK copies"; if [ $RANK = 2 ]; then echo "waiting for the tape robot"; sleep 60; fi',
        files={},
        limit_s=3,
        wanted=("tape robot", "time limit"),
        helpful=("rank 2", "tape robot"),
        convention="process",
    ),
    gang(
        "python-goes-on-alone",
        """
import os, time
rank = int(os.environ["RANK"])
def solve(n):
    while n:
        n = n % 7 + 1
    return n
solve(rank if rank != 0 else 3) if rank == 0 else print("part", rank, "is solved")
""",
        0,
        3,
        code="timeout",
        limit_s=4,
        wanted=("solve", "time limit"),
    ),
    gang(
        "two-of-six-go-on",
        "",
        1,
        6,
        also=(4,),
        code="timeout",
        command='case $RANK in 1|4) echo "rank $RANK indexes the large shard"; sleep 60;; esac; echo done',
        files={},
        limit_s=3,
        wanted=("indexes the large shard", "time limit"),
        helpful=(r"ranks? 1", "large shard"),
        convention="process",
    ),
    gang(
        "four-at-work-at-the-limit",
        """
import os, time
rank = int(os.environ["RANK"])
for step in range(1000):
    sum(range(10000 * (rank + 1)))
    time.sleep(0.05)
    if step % 20 == 0:
        print("step", step, flush=True)
""",
        None,
        4,
        code="timeout",
        limit_s=4,
        wanted=("time limit",),
        helpful=("limits.timeout",),
    ),
    # What a launcher cannot start.
    Failure(
        name="border-torchrun-program-without-right",
        code="launcher_missing",
        also_codes=("bad_input",),
        command="torchrun --standalone --nproc-per-node 2 --no-python ./run_worker",
        files={"run_worker": "#!/bin/bash\necho hello\n"},
        wanted=("Permission denied: './run_worker'",),
        helpful=(r"run_worker", "chmod"),
        misleading=NO_NETWORK,
        rank=None,
        also=(0, 1),
        convention="torchrun",
        num_ranks=2,
    ),
    Failure(
        name="border-torchrun-program-without-shebang",
        code="launcher_missing",
        also_codes=("bad_input", "exception"),
        command="python -m torch.distributed.run --standalone --nproc-per-node 3 --no-python ./start.sh",
        files={"start.sh": "echo worker $RANK\n"},
        wanted=("Exec format error: './start.sh'",),
        helpful=(r"start\.sh", "#!"),
        misleading=NO_NETWORK,
        rank=None,
        also=(0, 1, 2),
        convention="torchrun",
        num_ranks=3,
    ),
    Failure(
        name="border-script-starts-missing-tool",
        code="exception",
        also_codes=("launcher_missing",),
        command="python convert.py",
        files={"convert.py": 'import subprocess\nsubprocess.run(["flacdec", "-d", "a.flac"], check=True)\n'},
        wanted=("No such file or directory: 'flacdec'",),
        helpful=(r"flacdec", r"convert\.py"),
        misleading=NO_NETWORK,
    ),
    # What a thread raised, and the program noticed.
    Failure(
        name="border-thread-died-own-code",
        code="exception",
        also_codes=("exit_code",),
        command="python serve.py",
        files={
            "serve.py": """\
import os, threading, time

def decode():
    frames = [b"ok", b"\\xff\\xfe"]
    for frame in frames:
        frame.decode("ascii")

thread = threading.Thread(target=decode, name="decoder")
thread.start()
thread.join()
print("main: the decoder died, giving up", flush=True)
os._exit(4)
"""
        },
        wanted=("UnicodeDecodeError: 'ascii' codec can't decode byte 0xff",),
        helpful=(r"serve\.py",),
        misleading=NO_NETWORK,
    ),
    Failure(
        name="border-own-folder-called-inputs",
        code="exception",
        command="python read.py",
        files={"read.py": 'with open("data/inputs/labels.csv") as file:\n    print(file.read())\n'},
        wanted=("No such file or directory: 'data/inputs/labels.csv'",),
        helpful=(r"labels\.csv", r"read\.py"),
        misleading=NO_NETWORK,
    ),
    # Ranks that built other models.
    gang(
        "model-of-the-last-of-4",
        TORCH
        + """
from torch.nn.parallel import DistributedDataParallel
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3 if rank == 3 else 2)])
DistributedDataParallel(model)
""",
        3,
        4,
        code="exception",
        also_codes=("collective",),
        wanted=("DDP expects same model across all ranks",),
        helpful=(r"job\.py", "same model", "rank 3"),
    ),
    gang(
        "settings-differ-on-one-of-5",
        TORCH
        + """
vocabulary = 32000 if rank != 2 else 32064
seen = [None] * world
dist.all_gather_object(seen, vocabulary)
for other, size in enumerate(seen):
    if size != vocabulary:
        raise ValueError(f"rank {rank} has a vocabulary of {vocabulary}, rank {other} one of {size}")
""",
        2,
        5,
        code="exception",
        also_codes=("collective",),
        wanted=("a vocabulary of 32064", "one of 32064"),
    ),
    gang(
        "versions-as-a-list-of-4",
        TORCH
        + """
version = {1: "1.9"}.get(rank, "2.0")
found = [None] * world
dist.all_gather_object(found, version)
if len(set(found)) > 1:
    raise RuntimeError(f"library versions differ between ranks: {found}")
""",
        1,
        4,
        code="exception",
        also_codes=("collective", "environment"),
        wanted=("library versions differ",),
    ),
    gang(
        "digests-as-a-mapping-of-3",
        FILES
        + """
import hashlib
text = "blocks: 12" if rank != 0 else "blocks: 24"
(here / str(rank)).write_text(hashlib.sha1(text.encode()).hexdigest()[:8])
while len(list(here.iterdir())) < world or not all(p.read_text() for p in here.iterdir()):
    time.sleep(0.05)
seen = {r: (here / str(r)).read_text() for r in range(world)}
if len(set(seen.values())) != 1:
    print(f"FATAL: the configurations do not match: {seen}", file=sys.stderr, flush=True)
    sys.exit(4)
""",
        0,
        3,
        code="exit_code",
        also_codes=("collective",),
        wanted=("the configurations do not match",),
        helpful=(),
    ),
    # Heartbeats that stop, with nothing but a number for the one that sent them.
    gang(
        "heartbeat-with-a-bare-number",
        FILES
        + """
def spin():
    while True:
        sum(range(1000))

for beat in range(200):
    if rank == 1 and beat == 5:
        spin()
    (here / str(rank)).write_text(str(beat))
    time.sleep(0.1)
    for path in here.iterdir():
        if time.time() - path.stat().st_mtime > 3:
            print(f"lost heartbeat of {path.name}, aborting", file=sys.stderr, flush=True)
            sys.exit(75)
""",
        1,
        3,
        wanted=(*WORDS, "spin"),
    ),
    # mpirun passes on a code without a word; the rank had said who it is.
    Failure(
        name="border-mpirun-quiet-code",
        code="exit_code",
        command="mpirun --allow-run-as-root --oversubscribe -n 3 python solve.py",
        files={
            "solve.py": "import sys\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
            "if rank == 1:\n    sys.exit('rank 1: the grid is too coarse')\n"
        },
        wanted="the grid is too coarse",
        misleading=NO_NETWORK,
        rank=1,
        convention="mpirun",
        num_ranks=3,
    ),
    # Devices that the node does not have.
    Failure(
        name="border-torchrun-nccl-on-cpu",
        code="exception",
        command="torchrun --standalone --nproc-per-node 2 main.py",
        files={"main.py": 'import torch.distributed as dist\n\ndist.init_process_group(backend="nccl")\n'},
        wanted=("Distributed package doesn't have NCCL built in", "ProcessGroupNCCL is only supported with GPUs"),
        helpful=("gloo", "GPU"),
        misleading=(*NO_NETWORK, "NCCL_DEBUG"),
        rank=0,
        also=(1,),
        convention="torchrun",
        num_ranks=2,
    ),
    Failure(
        name="border-new-group-nccl-on-cpu",
        code="exception",
        command="python -u job.py",
        files={
            "job.py": TORCH
            + """
fast = dist.new_group(backend="nccl")
dist.all_reduce(torch.ones(2), group=fast)
"""
        },
        wanted=("Distributed package doesn't have NCCL built in", "ProcessGroupNCCL is only supported with GPUs"),
        helpful=("gloo", "GPU"),
        misleading=(*NO_NETWORK, "NCCL_DEBUG"),
        rank=0,
        also=(1,),
        convention="process",
        processes=2,
    ),
    # Arguments that a program rejects in its own way.
    usage(
        "fire-unknown-flag",
        "python tune.py --learning_rat=0.1",
        "Could not consume arg: --learning_rat=0.1",
        files={"tune.py": "import fire\n\ndef tune(lr=0.1, steps=3):\n    print(lr, steps)\n\nfire.Fire(tune)\n"},
        helpful=(r"--learning_rat", "--lr"),
        venv="extra",
    ),
    usage(
        "fire-lacks-an-argument",
        "python tune.py",
        "The function received no value for the required argument: data",
        files={"tune.py": "import fire\n\ndef tune(data, steps=3):\n    print(data, steps)\n\nfire.Fire(tune)\n"},
        helpful=("data",),
        venv="extra",
    ),
    usage(
        "docopt-usage",
        "python sync.py upload",
        "Usage:",
        files={
            "sync.py": '"""Sync.\n\nUsage:\n  sync.py push <folder> [--dry-run]\n  sync.py pull <folder>\n"""\n'
            "from docopt import docopt\n\nprint(docopt(__doc__))\n"
        },
        also_codes=("exit_code",),
        helpful=(r"sync\.py", "command|argument"),
        venv="extra",
    ),
    usage(
        "jsonargparse-wrong-type",
        "python cli.py --steps many",
        "Got value: many",
        files={"cli.py": "from jsonargparse import CLI\n\ndef train(steps: int):\n    print(steps)\n\nCLI(train)\n"},
        helpful=("steps",),
        venv="extra",
    ),
    usage(
        "typer-missing-argument",
        "python app.py",
        "Missing argument",
        files={
            "app.py": "import typer\n\ndef main(corpus: str, shards: int = 2):\n    print(corpus)\n\ntyper.run(main)\n"
        },
        helpful=("corpus",),
    ),
    usage(
        "click-in-all-of-3",
        "python -m app.train --epochs ten",
        "Invalid value for '--epochs'",
        files={
            "app/__init__.py": "",
            "app/train.py": "import click\n\n@click.command()\n@click.option('--epochs', type=int)\n"
            "def main(epochs):\n    print(epochs)\n\nmain()\n",
        },
        helpful=("--epochs",),
        rank=0,
        also=(1, 2),
        convention="process",
        processes=3,
    ),
    usage(
        "argparse-below-mpirun",
        "mpirun --allow-run-as-root --oversubscribe -n 2 python solve.py --tolerance tiny",
        "argument --tolerance: invalid float value: 'tiny'",
        files={
            "solve.py": "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--tolerance', type=float)\nprint(parser.parse_args())\n"
        },
        helpful=("--tolerance",),
        also_codes=("exit_code",),
        rank=0,
        also=(1,),
        convention="mpirun",
        num_ranks=2,
    ),
    usage(
        "mpirun-option-unknown",
        "mpirun --allow-run-as-root --bogus-option -n 2 python solve.py",
        ("--bogus-option", "unrecognized option"),
        files={"solve.py": "print(1)\n"},
        helpful=("--bogus-option", "mpirun --help"),
        rank=None,
        also=(0, 1),
        convention="mpirun",
        num_ranks=2,
    ),
    usage(
        "mpirun-hostfile-missing",
        "mpirun --allow-run-as-root --hostfile nodes.txt -n 2 python solve.py",
        "nodes.txt",
        files={"solve.py": "print(1)\n"},
        also_codes=("exit_code",),
        helpful=(r"nodes\.txt", "hostfile"),
        rank=None,
        also=(0, 1),
        convention="mpirun",
        num_ranks=2,
    ),
    usage(
        "mpirun-map-by-bogus",
        "mpirun --allow-run-as-root --oversubscribe --map-by blade -n 3 python solve.py",
        ("Directive: blade", "blade"),
        files={"solve.py": "print(1)\n"},
        helpful=("blade", "map-by", "mpirun --help"),
        rank=None,
        also=(0, 1, 2),
        convention="mpirun",
        num_ranks=3,
    ),
    usage(
        "absl-unknown-flag",
        "python tune.py --stepz=4",
        "Unknown command line flag 'stepz'",
        files={
            "tune.py": "from absl import app, flags\n\nflags.DEFINE_integer('steps', 3, 'steps')\n"
            "app.run(lambda _: print(flags.FLAGS.steps))\n"
        },
        also_codes=("exit_code",),
        helpful=("stepz|steps",),
    ),
    Failure(
        name="border-hook-of-its-own",
        code="exception",
        also_codes=("exit_code",),
        command="python main.py",
        files={
            "main.py": "import sys\n\ndef hook(kind, error, _):\n"
            "    print(f'[fatal] {kind.__name__}: {error}', file=sys.stderr)\n\n"
            "sys.excepthook = hook\nprint([1, 2][5])\n"
        },
        wanted="IndexError: list index out of range",
        misleading=NO_NETWORK,
    ),
    usage(
        "absl-value-of-a-flag",
        "python tune.py --steps=many",
        "flag --steps=many: invalid literal for int()",
        files={
            "tune.py": "from absl import app, flags\n\nflags.DEFINE_integer('steps', 3, 'steps')\n"
            "app.run(lambda _: print(flags.FLAGS.steps))\n"
        },
        also_codes=("exit_code",),
        helpful=("--steps",),
    ),
    usage(
        "hydra-override-not-closed",
        "python main.py 'widths=[1,2'",
        "no viable alternative at input",
        files={
            "main.py": "import hydra\n\n@hydra.main(version_base=None, config_path=None)\ndef main(config):\n"
            "    print(config)\n\nmain()\n"
        },
        also_codes=("exit_code",),
        helpful=("bracket|quote|override", "widths"),
        misleading=("HYDRA_FULL_ERROR",),
        venv="extra",
    ),
    Failure(
        name="border-torchrun-count-in-words",
        code="exception",
        also_codes=("bad_input",),
        command="torchrun --standalone --nproc-per-node two train.py",
        files={"train.py": "print(1)\n"},
        wanted="Unsupported nproc_per_node value: two",
        misleading=NO_NETWORK,
        rank=None,
        convention="torchrun",
        num_ranks=2,
    ),
    usage(
        "bash-usage-64",
        "bash launch.sh",
        "usage: launch.sh DATA OUT",
        files={"launch.sh": '[ $# -eq 2 ] || { echo "usage: launch.sh DATA OUT" >&2; exit 64; }\n'},
        also_codes=("exit_code",),
        helpful=("DATA|argument|usage",),
        convention="shell",
    ),
    usage(
        "getopts-illegal-option",
        "./fetch.sh -z 3",
        "illegal option -- z",
        files={
            "fetch.sh": "#!/bin/bash\nwhile getopts 'd:n:' o; do case $o in d) D=$OPTARG;; n) N=$OPTARG;;\n"
            '  *) echo "Usage: $0 -d DIR [-n COUNT]" >&2; exit 2;; esac; done\n'
        },
        helpful=("-z|-d|option",),
        convention="shell",
    ),
    usage(
        "perl-getopt-long",
        "perl clean.pl --langage de corpus.txt",
        "Unknown option: langage",
        files={
            "clean.pl": 'use strict; use Getopt::Long;\nmy $language = "en";\n'
            'GetOptions("language=s" => \\$language) or do { print STDERR "Usage: clean.pl [--language L] FILE\\n";'
            " exit 2 };\nprint $language;\n"
        },
        helpful=("langage|--language",),
        convention="shell",
    ),
    usage(
        "grep-unknown-option",
        "set -e; printf 'a\\nb\\n' > list.txt; grep --onyl a list.txt; echo done",
        "grep: unrecognized option '--onyl'",
        also_codes=("exit_code",),
        helpful=("--onyl",),
        convention="shell",
    ),
    usage(
        "go-like-flag-set",
        "java Main.java -rate abc",
        "invalid value",
        files={
            "Main.java": "public class Main { public static void main(String[] a) {\n"
            'System.err.println("invalid value \\"" + a[1] + "\\" for flag -rate: parse error");\n'
            'System.err.println("Usage of Main:\\n  -rate float\\n    \\tlearning rate"); System.exit(2); } }\n'
        },
        helpful=("-rate",),
        convention="shell",
    ),
]
