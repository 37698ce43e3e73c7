"""Gangs of many kinds: other languages, limits, signals, large worlds."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-node-js-dials-other-port",
        code="rendezvous",
        way="rank 0 listens elsewhere than the others dial",
        convention="process",
        processes=3,
        command="node gang.js",
        files={
            "gang.js": r"""const net = require("net");
const rank = Number(process.env.RANK);
if (rank === 0) {
  const port = Number(process.env.PORT || 41999);
  net.createServer(() => {}).listen(port, "127.0.0.1", () => console.log(`coordinator listens on ${port}`));
} else {
  let tries = 0;
  const dial = () => {
    const s = net.connect(Number(process.env.MASTER_PORT), "127.0.0.1");
    s.on("error", (e) => {
      if (++tries === 8) throw e;
      setTimeout(dial, 300);
    });
    s.on("connect", () => console.log(`rank ${rank} joined`));
  };
  dial();
}
""",
        },
        wanted="connect ECONNREFUSED 127.0.0.1",
        helpful=(r"MASTER_PORT|PORT|gang\.js|listen",),
        misleading=(r"memory|firewall",),
        rank=0,
        also=(1, 2),
        also_codes=("exception", "collective"),
    ),
    Failure(
        name="s-yaml-country-no",
        code="exception",
        convention="process",
        processes=6,
        nodes=3,
        command="python -u locale_data.py",
        files={
            "nodes.yaml": "- {country: de, hours: 24}\n- {country: se, hours: 24}\n- {country: no, hours: 24}\n",
            "locale_data.py": r"""import os, time
import yaml

mine = yaml.safe_load(open("nodes.yaml"))[int(os.environ["NODE_RANK"])]
print("serving", mine, flush=True)
table = mine["country"].upper() + "_prices"
print("table", table, flush=True)
time.sleep(30)
""",
        },
        wanted="AttributeError: 'bool' object has no attribute 'upper'",
        helpful=(r"nodes\.yaml|country|quote|locale_data\.py",),
        misleading=(r"network|memory",),
        rank=4,
        also=(5,),
    ),
    Failure(
        name="s-german-message",
        code="exit_code",
        convention="process",
        processes=3,
        command="python -u pruefen.py",
        files={
            "pruefen.py": r"""import os, sys, time

rang = int(os.environ["RANK"])
print(f"Rang {rang}: lese Messwerte", flush=True)
werte = [1.0, 2.0, 3.0] if rang != 1 else [1.0, -2.0, 3.0]
for i, w in enumerate(werte):
    if w < 0:
        sys.exit(f"Rang {rang}: Messwert {i} ist negativ ({w}), breche ab")
time.sleep(25)
""",
        },
        wanted="Messwert 1 ist negativ (-2.0), breche ab",
        helpful=(r"Messwert|pruefen\.py|negativ",),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-chinese-log-exit",
        code="exit_code",
        convention="process",
        processes=4,
        command="python -u xunlian.py",
        files={
            "xunlian.py": r"""import logging, os, sys, time

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(message)s")
rank = int(os.environ["RANK"])
logging.info("进程 %d 开始训练", rank)
time.sleep(0.5)
if rank == 2:
    logging.error("词表大小不一致: 期望 21128, 实际 21130")
    sys.exit(1)
time.sleep(25)
""",
        },
        wanted="词表大小不一致: 期望 21128, 实际 21130",
        helpful=(r"xunlian\.py|词表|21128",),
        misleading=(r"network|memory",),
        rank=2,
    ),
    Failure(
        name="s-cpp-out-of-range",
        code="signal",
        convention="process",
        processes=3,
        command="g++ -O0 -o bpe.$RANK bpe.cpp && exec ./bpe.$RANK",
        files={
            "bpe.cpp": r"""#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <unistd.h>

int main()
{
    int rank = std::atoi(std::getenv("RANK"));
    std::map<std::string, int> ids{{"the", 1}, {"cat", 2}};
    std::string word = rank == 2 ? "dog" : "cat";
    std::cout << "rank " << rank << " looks up " << word << std::endl;
    std::cout << ids.at(word) << std::endl;
    sleep(30);
}
""",
        },
        wanted=("terminate called after throwing an instance of 'std::out_of_range'", "map::at"),
        helpful=(r"bpe|map::at|out_of_range|dog",),
        misleading=(r"network|out of memory",),
        rank=2,
        also_codes=("exception",),
    ),
    Failure(
        name="s-bash-worker-copies",
        code="exit_code",
        convention="process",
        processes=4,
        command="./stage_and_train.sh",
        files={
            "in/0.bin": "a",
            "in/1.bin": "b",
            "in/2.bin": "c",
            "stage_and_train.sh": (
                "#!/usr/bin/env bash\nset -Eeuo pipefail\n"
                "trap 'echo \"[stage] line $LINENO failed (rank $RANK)\" >&2' ERR\n"
                'mkdir -p "out/$RANK"\ncp "in/$RANK.bin" "out/$RANK/"\necho "[stage] rank $RANK staged"\nsleep 25\n'
            ),
        },
        wanted="cp: cannot stat 'in/3.bin': No such file or directory",
        helpful=(r"in/3\.bin|stage_and_train\.sh",),
        misleading=(r"network|memory",),
        rank=3,
    ),
    Failure(
        name="s-metrics-port-same-for-all",
        code="port_trouble",
        convention="process",
        processes=2,
        command="python -u exporter.py",
        files={
            "exporter.py": r"""import http.server, os, pathlib, threading, time

rank = int(os.environ["RANK"])
if rank == 1:
    while not pathlib.Path("up").exists():
        time.sleep(0.1)
print(f"rank {rank}: metrics on :38108", flush=True)
server = http.server.HTTPServer(("127.0.0.1", 38108), http.server.BaseHTTPRequestHandler)
pathlib.Path("up").touch()
threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(25)
""",
        },
        wanted="OSError: [Errno 98] Address already in use",
        helpful=(r"38108|\bport\b|exporter\.py",),
        misleading=(r"memory|firewall",),
        rank=1,
        also_codes=("exception",),
    ),
    Failure(
        name="s-alarm-of-own-making",
        code="signal",
        convention="process",
        processes=3,
        command="python -u alarmed.py",
        files={
            "alarmed.py": r"""import os, signal, time

rank = int(os.environ["RANK"])
signal.signal(signal.SIGALRM, signal.SIG_DFL)
for step in range(100):
    signal.alarm(4)  # a step takes no longer
    print(f"rank {rank} step {step}", flush=True)
    time.sleep(0.5 if (rank, step) != (1, 5) else 60)
""",
        },
        wanted=("SIGALRM", "Alarm clock", "signal 14"),
        helpful=(r"alarm|alarmed\.py|SIGALRM",),
        misleading=(r"firewall|out of memory",),
        rank=1,
    ),
    Failure(
        name="s-cpu-seconds-used-up",
        code="signal",
        convention="process",
        processes=2,
        command='[ "$RANK" = 1 ] && ulimit -S -t 2; exec python -u burn.py',
        files={
            "burn.py": r"""import os, time

rank = int(os.environ["RANK"])
print(f"rank {rank}: hyperparameter grid", flush=True)
if rank == 0:
    time.sleep(120)
n = 0
while True:
    n += 1
""",
        },
        wanted=("SIGXCPU", "CPU time limit exceeded", "signal 24"),
        helpful=(r"CPU|ulimit|limit",),
        misleading=(r"firewall|pip install",),
        rank=1,
    ),
    Failure(
        name="s-mmap-file-shortened",
        code="signal",
        convention="process",
        processes=3,
        command="python -u mapped.py",
        files={
            "mapped.py": r"""import os, pathlib, time
import numpy as np

rank = int(os.environ["RANK"])
path = pathlib.Path(f"tokens.{rank}.bin")
np.arange(1_000_000, dtype=np.int32).tofile(path)
tokens = np.memmap(path, dtype=np.int32, mode="r")
print(f"rank {rank}: {len(tokens)} tokens", flush=True)
if rank == 1:
    os.truncate(path, 4096)  # the copy was started again
for epoch in range(50):
    print(f"rank {rank} epoch {epoch} sum {int(tokens[::1000].sum())}", flush=True)
    time.sleep(0.3)
""",
        },
        wanted=("Bus error", "SIGBUS", "signal 7"),
        helpful=(r"FAULTHANDLER|native|memmap|mapped\.py|tokens",),
        misleading=(r"firewall|network",),
        rank=1,
    ),
    Failure(
        name="s-sixteen-ranks-one-assert",
        code="exception",
        convention="process",
        processes=16,
        nodes=4,
        command="python -u -S shardsum.py",
        files={
            "shardsum.py": r"""import os, time

rank = int(os.environ["RANK"])
first, last = rank * 1000, rank * 1000 + (999 if rank != 11 else 989)
print(f"rank {rank}: samples {first}..{last}", flush=True)
assert last - first + 1 == 1000, f"shard {rank} has {last - first + 1} samples instead of 1000"
time.sleep(40)
""",
        },
        wanted="AssertionError: shard 11 has 990 samples instead of 1000",
        helpful=(r"shardsum\.py|shard 11|990",),
        misleading=(r"network|memory",),
        rank=11,
    ),
    Failure(
        name="s-twelve-wait-for-the-idle-one",
        code="timeout",
        way="one rank of twelve had nothing to do and left; the others wait until the limit",
        convention="process",
        processes=12,
        nodes=3,
        command="python -u rendez.py",
        limit_s=20,
        files={
            "rendez.py": r"""import os, pathlib, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
box = pathlib.Path("done")
box.mkdir(exist_ok=True)
samples = 10 if rank != 7 else 0
if not samples:
    print(f"rank {rank}: no samples, nothing to do", flush=True)
    sys.exit(0)
(box / str(rank)).touch()
while len(list(box.iterdir())) < world:
    time.sleep(0.5)
print("all done")
""",
        },
        wanted=("rank 7: no samples, nothing to do", "box.iterdir", "code 0"),
        helpful=(r"rank 7|rendez\.py|samples",),
        misleading=(r"memory|firewall",),
        rank=7,
        also_codes=("collective",),
    ),
    Failure(
        name="s-old-numpy-name",
        code="exception",
        convention="process",
        processes=2,
        command="python -u oldnames.py",
        files={"oldnames.py": "import numpy as np\n\nx = np.zeros(4, dtype=np.float)\nprint(x)\n"},
        wanted="AttributeError: module 'numpy' has no attribute 'float'",
        helpful=(r"np\.float|numpy|oldnames\.py",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
        also_codes=("environment",),
    ),
    Failure(
        name="s-plugin-path-on-one-node",
        code="environment",
        convention="process",
        processes=4,
        nodes=2,
        command='[ "$NODE_RANK" = 0 ] && export PYTHONPATH=$PYTHONPATH:$PWD/plugins; exec python -u pluggable.py',
        files={
            "plugins/flashy/__init__.py": "NAME = 'flashy'\n",
            "pluggable.py": r"""import importlib, os, time

for name in ("json", "flashy"):
    module = importlib.import_module(name)
    print(f"rank {os.environ['RANK']}: plugin {module.__name__}", flush=True)
time.sleep(30)
""",
        },
        wanted="ModuleNotFoundError: No module named 'flashy'",
        helpful=(r"flashy|PYTHONPATH|plugins",),
        misleading=(r"network|memory",),
        rank=2,
        also=(3,),
    ),
    Failure(
        name="s-structlog-json-error",
        code="exception",
        way="the traceback stands in a field of a JSON line",
        convention="process",
        processes=3,
        command="python -u jsonlogs.py",
        files={
            "jsonlogs.py": r"""import os, sys, time
import structlog

structlog.configure(processors=[
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(),
])
rank = int(os.environ["RANK"])
log = structlog.get_logger().bind(rank=rank)
try:
    for epoch in range(5):
        log.info("epoch", epoch=epoch, lr=0.1 / (epoch + 1))
        time.sleep(0.2)
        if rank == 2 and epoch == 3:
            "0.1;0.2".split(",")[1]
    time.sleep(25)
except Exception:
    log.exception("training failed")
    sys.exit(70)
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"jsonlogs\.py|split|index",),
        misleading=(r"network|memory",),
        rank=2,
        also_codes=("exit_code",),
    ),
    Failure(
        name="s-child-loader-of-rank-one",
        code="exception",
        way="a child of one rank fails, and its parent says so",
        convention="process",
        processes=3,
        command="python -u nested.py",
        files={
            "nested.py": r"""import multiprocessing as mp
import os, time

rank = int(os.environ["RANK"])


def load(path):
    header = open(path, "rb").read(4)
    if header != b"TFRC":
        raise ValueError(f"{path}: bad magic {header!r}, expected b'TFRC'")
    time.sleep(30)


if __name__ == "__main__":
    path = f"records.{rank}"
    with open(path, "wb") as f:
        f.write(b"TFRC" if rank != 1 else b"PK\x03\x04")
    p = mp.get_context("fork").Process(target=load, args=(path,), name="loader")
    p.start()
    p.join()
    if p.exitcode:
        raise RuntimeError(f"loader process ended with code {p.exitcode}")
""",
        },
        wanted="ValueError: records.1: bad magic b'PK\\x03\\x04', expected b'TFRC'",
        helpful=(r"records\.1|nested\.py|magic",),
        misleading=(r"network|memory",),
        rank=1,
    ),
    Failure(
        name="s-hash-of-data-differs",
        code="exception",
        way="rank 0 finds that another rank has other data",
        convention="process",
        processes=4,
        command="python -u checksum.py",
        files={
            "checksum.py": r"""import hashlib, os, pathlib, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
text = "the quick brown fox" if rank != 3 else "the quick brown f0x"
digest = hashlib.sha256(text.encode()).hexdigest()[:12]
pathlib.Path(f"sum.{rank}.tmp").write_text(digest)
os.rename(f"sum.{rank}.tmp", f"sum.{rank}")
print(f"rank {rank}: data set {digest}", flush=True)
if rank == 0:
    for peer in range(1, world):
        while not pathlib.Path(f"sum.{peer}").exists():
            time.sleep(0.1)
        other = pathlib.Path(f"sum.{peer}").read_text()
        if other != digest:
            raise RuntimeError(f"rank {peer} has a different data set: {other} instead of {digest}")
time.sleep(30)
""",
        },
        wanted="RuntimeError: rank 3 has a different data set",
        helpful=(r"rank 3|data set|checksum\.py|copy",),
        misleading=(r"network|out of memory",),
        rank=3,
    ),
    Failure(
        name="s-devices-string-empty",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command="DEVICES=$(cat devices.$NODE_RANK) python -u pick.py",
        files={
            "devices.0": "0,1",
            "devices.1": "0,",
            "pick.py": r"""import os, time

devices = [int(d) for d in os.environ["DEVICES"].split(",")]
mine = devices[int(os.environ["LOCAL_RANK"])]
print(f"rank {os.environ['RANK']} takes device {mine}", flush=True)
time.sleep(25)
""",
        },
        wanted="ValueError: invalid literal for int() with base 10: ''",
        helpful=(r"DEVICES|devices\.1|pick\.py",),
        misleading=(r"network|memory",),
        rank=2,
        also=(3,),
    ),
]
