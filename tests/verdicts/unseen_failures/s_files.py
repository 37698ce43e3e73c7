"""Gangs without torch whose ranks differ by data, files, limits, environment and language."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-json-config-of-node-one",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command="python -u start.py",
        files={
            "config/node0.json": '{"batch": 32, "workers": 4}\n',
            "config/node1.json": '{"batch": 32, "workers": 4,}\n',
            "start.py": r"""import json, os, pathlib, time

node = os.environ["NODE_RANK"]
print(f"[{os.environ['RANK']}] reading config of node {node}", flush=True)
config = json.loads(pathlib.Path(f"config/node{node}.json").read_text())
print("batch", config["batch"], flush=True)
time.sleep(30)
""",
        },
        wanted="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        helpful=(r"node1\.json|start\.py|comma|json",),
        misleading=(r"network|memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-dotenv-lacks-on-second-node",
        code="exception",
        convention="process",
        processes=6,
        nodes=3,
        command="python -u boot.py",
        files={
            "env/0.env": "DATA_ROOT=/srv/data\nSEED=1\n",
            "env/1.env": "DATAROOT=/srv/data\nSEED=1\n",
            "env/2.env": "DATA_ROOT=/srv/data\nSEED=1\n",
            "boot.py": r"""import os, time
from dotenv import load_dotenv

load_dotenv(f"env/{os.environ['NODE_RANK']}.env")
root, seed = os.environ["DATA_ROOT"], int(os.environ["SEED"])
print(f"rank {os.environ['RANK']}: {root} seed {seed}", flush=True)
time.sleep(30)
""",
        },
        wanted="KeyError: 'DATA_ROOT'",
        helpful=(r"DATA_ROOT|env/1\.env|boot\.py",),
        misleading=(r"network|memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-needs-eight-has-six",
        code="exception",
        convention="process",
        processes=6,
        command="python -u topo.py",
        files={
            "topo.py": r"""import os

world = int(os.environ["WORLD_SIZE"])
TP, PP = 2, 4
assert world % (TP * PP) == 0, f"world size {world} is not divisible by tensor_parallel*pipeline_parallel={TP * PP}"
print("data parallel", world // (TP * PP))
""",
        },
        wanted="AssertionError: world size 6 is not divisible by tensor_parallel*pipeline_parallel=8",
        helpful=(r"topo\.py|world|processes|parallel",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1, 2, 3, 4, 5),
    ),
    Failure(
        name="s-scratch-of-rank-three-full",
        code="disk_full",
        convention="process",
        processes=4,
        command="bash node_scratch.sh && true",
        files={
            "node_scratch.sh": (
                "mkdir -p scratch/$RANK\n"
                'if [ "$RANK" = 3 ]; then exec unshare -m bash -c '
                "'mount -t tmpfs -o size=2m t scratch/3 && exec python -u cachefill.py'; fi\nexec python -u cachefill.py\n"  # noqa: E501
            ),
            "cachefill.py": r"""import os, shelve, time
import numpy as np

rank = os.environ["RANK"]
for i in range(40):
    np.savez(f"scratch/{rank}/features_{i:03d}.npz", x=np.random.rand(10_000))
    if i % 10 == 0:
        print(f"rank {rank}: {i} feature files", flush=True)
print("cache complete", flush=True)
time.sleep(30)
""",
        },
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|scratch",),
        misleading=(r"network|firewall",),
        rank=3,
    ),
    Failure(
        name="s-shards-never-closed",
        code="exception",
        convention="process",
        processes=4,
        command="ulimit -n 64; python -u shards.py",
        files={
            "shards.py": r"""import os, pathlib, time

rank = int(os.environ["RANK"])
folder = pathlib.Path("shards") / str(rank)
folder.mkdir(parents=True)
count = {0: 20, 1: 24, 2: 90, 3: 22}[rank]
handles = []
for i in range(count):
    handles.append(open(folder / f"{i:04d}.bin", "wb"))
    handles[-1].write(b"0" * 16)
print(f"rank {rank}: {count} shards open", flush=True)
time.sleep(30)
""",
        },
        wanted="OSError: [Errno 24] Too many open files",
        helpful=(r"open files|ulimit|close|shards\.py",),
        misleading=(r"network|memory|disk",),
        rank=2,
    ),
    Failure(
        name="s-rank-one-only-unpack-memory",
        code="host_oom",
        convention="process",
        processes=3,
        command="bash limits.sh",
        files={
            "limits.sh": (
                "# rank 1 shares its node with the data service\n"
                'if [ "$RANK" = 1 ]; then ulimit -v 900000; fi\nexec python -u unpack.py\n'
            ),
            "unpack.py": r"""import os, time, zlib

rank = int(os.environ["RANK"])
packed = zlib.compress(b"\0" * (64 << 20))
print(f"rank {rank}: unpacking {len(packed)} bytes", flush=True)
blocks = [zlib.decompress(packed) for _ in range(20 if rank == 1 else 2)]
print(f"rank {rank}: {sum(map(len, blocks)) >> 20} MiB", flush=True)
time.sleep(40)
""",
        },
        wanted="MemoryError",
        helpful=(r"memory|limits\.sh|ulimit|unpack\.py|fewer",),
        misleading=(r"network|gpu",),
        rank=1,
        also_codes=("exception",),
    ),
    Failure(
        name="s-cgroup-kills-one",
        code="host_oom",
        convention="process",
        processes=3,
        command="bash confined.sh",
        files={
            "confined.sh": (
                'if [ "$RANK" = 2 ]; then\n  g=/sys/fs/cgroup/memory/s-confined; mkdir -p $g\n'
                "  echo 150M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs\nfi\nexec python -u graph.py\n"
            ),
            "graph.py": r"""import os, time

rank = int(os.environ["RANK"])
edges = []
for part in range(30):
    edges.append(bytearray(os.urandom(1 << 20)) * 10)
    print(f"rank {rank}: part {part}, {len(edges) * 10} MiB of edges", flush=True)
    if rank != 2 and part == 5:
        break
time.sleep(40)
""",
        },
        wanted=("out of memory", "killed", "SIGKILL", "MiB of edges"),
        helpful=(r"memory",),
        misleading=(r"network|firewall",),
        rank=2,
    ),
    Failure(
        name="s-mkdir-race",
        code="exception",
        convention="process",
        processes=4,
        command="python -u setup_run.py",
        files={
            "setup_run.py": r"""import os, time
from datetime import date

run = os.path.join("runs", f"{date.today():%Y-%m-%d}")
if not os.path.exists(run):
    time.sleep(1.5)  # asks the tracker for a name
    os.makedirs(run)
print("writing to", run, flush=True)
time.sleep(20)
""",
        },
        wanted="FileExistsError: [Errno 17] File exists: 'runs/",
        helpful=(r"exist_ok|setup_run\.py|rank 0|race",),
        misleading=(r"network|memory|disk is full",),
        rank=0,
        also=(1, 2, 3),
    ),
    Failure(
        name="s-gzip-cut-on-rank-five",
        code="exception",
        convention="process",
        processes=8,
        command="python -u readgz.py",
        files={
            "readgz.py": r"""import gzip, os, pathlib, time

rank = int(os.environ["RANK"])
path = pathlib.Path(f"part-{rank}.jsonl.gz")
path.write_bytes(gzip.compress(b'{"text": "some words"}\n' * 5000))
if rank == 5:
    path.write_bytes(path.read_bytes()[:-60])
n = 0
with gzip.open(path, "rt") as lines:
    for line in lines:
        n += 1
print(f"{path}: {n} lines", flush=True)
time.sleep(30)
""",
        },
        wanted="EOFError: Compressed file ended before the end-of-stream marker was reached",
        helpful=(r"part-5|readgz\.py|gz|truncated|again",),
        misleading=(r"network|memory",),
        rank=5,
    ),
    Failure(
        name="s-click-flag-for-rank-zero-only",
        code="bad_input",
        convention="process",
        processes=3,
        command="./wrap.sh --epochs 2",
        files={
            "wrap.sh": (
                '#!/bin/bash\nextra=()\nif [ "$RANK" -eq 0 ]; then extra+=(--wandb-project demo); fi\n'
                'exec python -u cli.py "$@" "${extra[@]}"\n'
            ),
            "cli.py": r"""import time
import click


@click.command()
@click.option("--epochs", type=int, default=1)
@click.option("--tracker", type=click.Choice(["none", "mlflow"]), default="none")
def main(epochs, tracker):
    click.echo(f"training {epochs} epochs, tracker {tracker}")
    time.sleep(30)


main()
""",
        },
        wanted="No such option '--wandb-project'",
        helpful=(r"wandb-project|wrap\.sh|option",),
        misleading=(r"network|memory|pip install",),
        rank=0,
    ),
    Failure(
        name="s-tenacity-tries-and-fails",
        code="exception",
        convention="process",
        processes=4,
        command="python -u pull.py",
        files={
            "pull.py": r"""import logging, os, time, urllib.request
from tenacity import before_sleep_log, retry, stop_after_attempt, wait_fixed

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("pull")
rank = int(os.environ["RANK"])


@retry(stop=stop_after_attempt(3), wait=wait_fixed(0.5), before_sleep=before_sleep_log(log, logging.WARNING))
def pull(name):
    if rank != 1:
        return b"x" * 100
    return urllib.request.urlopen(f"http://127.0.0.1:9/{name}", timeout=5).read()


data = pull(f"shard-{rank}.tar")
log.info("got %d bytes", len(data))
time.sleep(30)
""",
        },
        wanted=("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "Connection refused"),
        helpful=(r"pull\.py|127\.0\.0\.1|server|shard-1|storage|address",),
        misleading=(r"memory|MASTER_PORT",),
        rank=1,
        also_codes=("data_unavailable",),
    ),
    Failure(
        name="s-harmless-tracebacks-of-others",
        code="exception",
        convention="process",
        processes=4,
        command="python -u crawl.py",
        files={
            "crawl.py": r"""import logging, os, random, time

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
rank = int(os.environ["RANK"])
random.seed(rank)


def parse(doc):
    if doc % 7 == 3:
        raise ValueError(f"document {doc}: malformed markup")
    return doc


def flush(batch):
    lengths = [len(str(d)) for d in batch]
    return sum(lengths) / len(lengths)


for start in range(0, 60, 10):
    good = []
    for doc in range(start, start + 10):
        try:
            good.append(parse(doc))
        except ValueError:
            logging.exception("skipping document %d", doc)
    if rank == 3 and start == 30:
        good = [None][:0]
    logging.info("mean length %.2f", flush(good))
    time.sleep(0.1)
time.sleep(30)
""",
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"crawl\.py|flush|empty",),
        misleading=(r"markup|malformed|network|memory",),
        rank=3,
    ),
    Failure(
        name="s-overwrite-question",
        code="exception",
        convention="process",
        processes=2,
        command="python -u export.py --out model.onnx",
        files={
            "model.onnx": "old\n",
            "export.py": r"""import argparse, os, time

p = argparse.ArgumentParser()
p.add_argument("--out")
p.add_argument("--yes", action="store_true")
a = p.parse_args()
if os.environ["RANK"] == "0" and os.path.exists(a.out) and not a.yes:
    if input(f"{a.out} exists. Overwrite? [y/N] ").lower() != "y":
        raise SystemExit("not overwritten")
time.sleep(30)
""",
        },
        wanted="EOFError: EOF when reading a line",
        helpful=(r"export\.py|--yes|input|standard input|stdin|ask",),
        misleading=(r"network|memory",),
        rank=0,
    ),
    Failure(
        name="s-early-stop-hard-exit",
        code="exit_code",
        convention="process",
        processes=3,
        command="python -u callbacks.py",
        files={
            "callbacks.py": r"""import os, sys, time

rank = int(os.environ["RANK"])
best, patience = 9e9, 0
for epoch in range(30):
    val = 1.0 / (epoch + 1) if epoch < 5 else 0.21
    print(f"epoch {epoch} val_loss {val:.4f}", flush=True)
    if rank == 0:
        best, patience = (val, 0) if val < best else (best, patience + 1)
        if patience >= 4:
            print("EarlyStopping: val_loss did not improve for 4 epochs, stopping the job", flush=True)
            os._exit(17)
    time.sleep(0.15)
time.sleep(30)
""",
        },
        wanted="EarlyStopping: val_loss did not improve for 4 epochs, stopping the job",
        helpful=(r"callbacks\.py|EarlyStopping|early|patience",),
        misleading=(r"network|memory",),
        rank=0,
    ),
    Failure(
        name="s-java-worker-index",
        code="exception",
        convention="process",
        processes=3,
        command="java -Xshare:auto -XX:TieredStopAtLevel=1 Worker.java",
        files={
            "Worker.java": r"""import java.util.Arrays;

public class Worker {
    static int[] buckets(int rank) {
        return new int[rank == 1 ? 4 : 16];
    }

    public static void main(String[] args) throws Exception {
        int rank = Integer.parseInt(System.getenv("RANK"));
        int[] counts = buckets(rank);
        for (int i = 0; i < 100; i++) {
            counts[(i * 7) % 16]++;
        }
        System.out.println("rank " + rank + " " + Arrays.toString(counts));
        Thread.sleep(40000);
    }
}
""",
        },
        wanted="java.lang.ArrayIndexOutOfBoundsException: Index 7 out of bounds for length 4",
        helpful=(r"Worker\.java|buckets|index",),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-c-reader-trusts-header",
        code="signal",
        convention="process",
        processes=4,
        command="gcc -O1 -o reader.$RANK reader.c && ./reader.$RANK headers/$RANK",
        files={
            "headers/0": "4",
            "headers/1": "4",
            "headers/2": "400000000",
            "headers/3": "4",
            "reader.c": r"""#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    FILE *f = fopen(argv[1], "r");
    long n = 0;
    if (fscanf(f, "%ld", &n) != 1)
        return 3;
    printf("%s: %ld records\n", argv[1], n);
    fflush(stdout);
    float *x = malloc(4 * sizeof *x);
    for (volatile long i = 0; i < n; i++)
        x[i * 64 % (n * 64)] = 1.0f;
    sleep(30);
    return x[0] > 2;
}
""",
        },
        wanted=("Segmentation fault", "SIGSEGV", "signal 11", "400000000 records"),
        helpful=(r"native|reader|headers/2|gdb|core dump|FAULTHANDLER|debug",),
        misleading=(r"network|firewall",),
        rank=2,
    ),
]
