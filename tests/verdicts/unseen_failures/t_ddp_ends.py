"""Gangs over gloo: signals, exits, full disks, ports, imports, and errors that ranks tell each other."""

from functools import partial

from recorder import Failure

HELPERS = r"""import os, sys, time, traceback
from datetime import timedelta
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"]); world = int(os.environ["WORLD_SIZE"])
def info(msg): print(f'{{"rank": {rank}, "level": "info", "msg": "{msg}"}}', flush=True)
def init(s=20): dist.init_process_group("gloo", timeout=timedelta(seconds=s)); info("process group ready")
def sync(n=1):
    for _ in range(n): dist.all_reduce(torch.ones(64))
"""

end = partial(Failure, convention="process", command="python job.py", misleading=(r"firewall|network",))


def files(job: str, **more: str) -> dict[str, str]:
    return {
        "helpers.py": HELPERS,
        "job.py": "from helpers import *\n" + job,
        **{k.replace("__", "."): v for k, v in more.items()},
    }


FAILURES = [
    end(
        name="t-end-segfault-in-extension",
        code="signal",
        way="native code of one rank touches memory that is not its own",
        processes=4,
        files=files(r"""
import ctypes
init(); sync(3)
if rank == 2:
    info("calling fused kernel")
    ctypes.memset(0x10, 1, 4096)
sync(3)
"""),
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"native|faulthandler|job\.py|ctypes|kernel",),
        rank=2,
    ),
    end(
        name="t-end-killed-from-outside",
        code="signal",
        way="something on the node kills one rank",
        processes=4,
        nodes=2,
        command="bash guard.sh",
        files=files(
            "init(); info('training')\nfor i in range(200): sync(); time.sleep(0.05)\n",
            guard__sh='python job.py &\npid=$!\n(sleep 5; [ "$RANK" = 3 ] && kill -9 $pid) &\nwait $pid\n',
        ),
        wanted=("SIGKILL", "Killed", "137", "signal 9"),
        helpful=(r"kill|outside|dmesg|memory|node",),
        rank=3,
    ),
    end(
        name="t-end-sigterm-to-one",
        code="signal",
        also_codes=("exit_code",),
        way="an administrator's SIGTERM to one rank, which is told in its log",
        processes=3,
        files=files(r"""
import signal
def stop(number, frame):
    info("caught SIGTERM, saving state and leaving")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
init()
for i in range(60):
    sync(); time.sleep(0.05)
    if rank == 1 and i == 20: os.kill(os.getpid(), signal.SIGTERM)
"""),
        wanted=("caught SIGTERM", "143", "SIGTERM"),
        helpful=(r"SIGTERM|outside|job\.py|node",),
        rank=1,
    ),
    end(
        name="t-end-native-assertion",
        code="signal",
        way="an assertion in a C++ library on one rank",
        processes=3,
        command="bash build_and_run.sh",
        files=files(
            r"""
import ctypes
lib = ctypes.CDLL(f"./libpack{rank}.so")
init(); sync(2)
lib.pack(8 if rank else 9)
sync(2)
""",
            pack__cpp='#include <cassert>\nextern "C" int pack(int width) { assert(width % 8 == 0 && "width must be a '
            'multiple of 8"); return width / 8; }\n',
            build_and_run__sh="g++ -shared -fPIC -o libpack$RANK.so pack.cpp && exec python job.py\n",
        ),
        wanted="Assertion `width % 8 == 0",
        helpful=(r"pack\.cpp|width|assert",),
        rank=0,
    ),
    end(
        name="t-end-cgroup-oom",
        code="host_oom",
        way="one rank keeps everything that it reads and is ended by the memory limit",
        processes=3,
        command="bash limited.sh",
        files=files(
            r"""
init(); sync(2)
kept = []
for i in range(40):
    if rank == 1:
        kept.append(bytearray(os.urandom(1 << 20)) * 40)
        info(f"cached {len(kept) * 40} MiB")
    sync()
""",
            limited__sh=r"""if [ "$RANK" = 1 ]; then
  g=/sys/fs/cgroup/memory/t-cases-$$; mkdir $g
  echo 700M > $g/memory.limit_in_bytes; echo $$ > $g/cgroup.procs
fi
exec python job.py
""",
        ),
        wanted=("SIGKILL", "Killed", "memory", "cached"),
        helpful=(r"memory|batch|cache|job\.py",),
        misleading=(r"firewall|network|\bport\b",),
        rank=1,
    ),
    end(
        name="t-end-memory-error-rlimit",
        code="host_oom",
        also_codes=("exception",),
        way="an array that does not fit below ulimit -v, on one rank",
        processes=4,
        command='[ "$RANK" != 0 ] || ulimit -v 9000000; exec python job.py',
        files=files(r"""
import numpy as np
init(); sync()
table = np.ones((200_000, 40_000) if rank == 0 else (20, 40))
sync()
"""),
        wanted=("Unable to allocate 59.6 GiB", "ArrayMemoryError"),
        helpful=(r"memory|job\.py|dtype|table|ulimit",),
        rank=0,
    ),
    end(
        name="t-end-disk-full-on-one",
        code="disk_full",
        way="the scratch disk of one node is full when it saves",
        processes=2,
        nodes=2,
        command="unshare -m bash prepare.sh",
        files=files(
            r"""
init(); sync()
out = f"scratch{os.environ['NODE_RANK']}/model.pt"
os.makedirs(os.path.dirname(out), exist_ok=True)
torch.save({"w": torch.randn(1_500_000)}, out)
info(f"saved {out}")
dist.barrier()
""",
            prepare__sh="mkdir -p scratch$NODE_RANK\n"
            '[ "$NODE_RANK" = 1 ] && mount -t tmpfs -o size=2m tmpfs scratch1\nexec python job.py\n',
        ),
        wanted=("No space left on device", "PytorchStreamWriter failed writing file", "unexpected pos"),
        helpful=(r"space|disk|scratch",),
        rank=1,
    ),
    end(
        name="t-end-read-only-output",
        code="exception",
        way="the output folder is mounted read-only on one node",
        processes=4,
        nodes=2,
        command="unshare -m bash prepare.sh",
        files=files(
            r"""
init(); sync()
with open(f"out{os.environ['NODE_RANK']}/metrics-{rank}.csv", "w") as f:
    f.write("step,loss\n")
sync()
""",
            prepare__sh="mkdir -p out0 out1\n"
            '[ "$NODE_RANK" = 1 ] && mount -t tmpfs -o size=1m,ro tmpfs out1\nexec python job.py\n',
        ),
        wanted="Read-only file system: 'out1/metrics-",
        helpful=(r"out1|read-only|job\.py|mount",),
        rank=2,
        also=(3,),
    ),
    end(
        name="t-end-permission-on-one",
        code="exception",
        way="one rank may not read its shard",
        processes=3,
        command="exec setpriv --bounding-set=-dac_override,-dac_read_search python job.py",
        files=files(r"""
path = f"shard.{rank}"
with open(path, "w") as f: f.write("1 2 3")
if rank == 2: os.chmod(path, 0o000)
init(); sync()
values = [float(v) for v in open(path).read().split()]
sync()
"""),
        wanted="PermissionError: [Errno 13] Permission denied: 'shard.2'",
        helpful=(r"shard\.2|permission|chmod|job\.py",),
        rank=2,
    ),
    end(
        name="t-end-port-taken-by-own-dashboard",
        code="port_trouble",
        way="rank 0 serves its dashboard on the port of the rendezvous",
        processes=3,
        files=files(r"""
import http.server, threading
if rank == 0:
    board = http.server.ThreadingHTTPServer(("", int(os.environ["MASTER_PORT"])), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=board.serve_forever, daemon=True).start()
    info("dashboard up")
    time.sleep(0.5)
init(6); sync()
"""),
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"\bport\b|dashboard|job\.py|MASTER_PORT",),
        misleading=(r"firewall|memory",),
        rank=0,
    ),
    end(
        name="t-end-port-fixed-in-script",
        code="port_trouble",
        way="the script fixes a port that another program has",
        processes=2,
        command="bash start.sh",
        files=files(
            'os.environ["MASTER_PORT"] = "23456"\ninit(6)\nsync()\n',
            start__sh='[ "$RANK" = 0 ] && (timeout 12 python -m http.server 23456 --bind 0.0.0.0 > /dev/null 2>&1 &)\n'
            "sleep 1.5\nexec python job.py\n",
        ),
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"23456|MASTER_PORT|job\.py",),
        misleading=(r"firewall|memory",),
        rank=0,
    ),
    end(
        name="t-end-module-missing-on-one",
        code="environment",
        way="one node lacks a package",
        processes=4,
        nodes=2,
        files=files(r"""
init()
if os.environ["NODE_RANK"] == "1":
    import sentencepiece_fast as tokenizer
sync()
"""),
        wanted="No module named 'sentencepiece_fast'",
        helpful=(r"sentencepiece_fast|install|environment",),
        rank=2,
        also=(3,),
    ),
    end(
        name="t-end-library-missing-on-one",
        code="environment",
        also_codes=("exception",),
        way="a shared library is not on one rank's machine",
        processes=3,
        files=files(r"""
import ctypes
init(); sync()
if rank == 1:
    ctypes.CDLL("libnvcodec_image.so.2")
sync()
"""),
        wanted="libnvcodec_image.so.2: cannot open shared object file",
        helpful=(r"libnvcodec_image|install|LD_LIBRARY_PATH|image",),
        rank=1,
    ),
    end(
        name="t-end-flag-then-all-raise",
        code="exception",
        way="a flag tells all ranks that one failed, and all raise",
        processes=4,
        files=files(r"""
def work(i):
    if rank == 1 and i == 3:
        return [10, 20][i]
    return i
init()
for i in range(5):
    bad = torch.zeros(1)
    try:
        work(i)
    except Exception:
        traceback.print_exc()
        bad[0] = 1
    dist.all_reduce(bad)
    if bad.item():
        raise RuntimeError(f"step {i}: at least one rank failed, aborting")
"""),
        wanted="IndexError: list index out of range",
        helpful=(r"job\.py|work",),
        rank=1,
    ),
    end(
        name="t-end-gathered-errors",
        code="exception",
        way="ranks gather each other's errors as text, and all raise (in French)",
        processes=5,
        files=files(r"""
def lire(chemin):
    with open(chemin, encoding="utf-8") as f: return f.read()
open(f"corpus{rank}.txt", "wb").write(b"caf\xe9" if rank == 3 else "café".encode())
init()
erreur = None
try:
    lire(f"corpus{rank}.txt")
except Exception as e:
    erreur = f"{type(e).__name__}: {e}"
    info("échec de la lecture")
toutes = [None] * world
dist.all_gather_object(toutes, erreur)
if any(toutes):
    sys.exit("ERREUR: " + "; ".join(f"rang {i}: {e}" for i, e in enumerate(toutes) if e))
"""),
        also_codes=("exit_code",),
        wanted=("rang 3: UnicodeDecodeError", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9"),
        helpful=(r"corpus3|encoding|utf|job\.py",),
        rank=3,
    ),
    end(
        name="t-end-all-log-one-raises",
        code="exception",
        way="every rank logs a traceback that it handles; one raises another",
        processes=4,
        files=files(r"""
import logging
logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s")
try:
    import apex_cpu
except ImportError:
    logging.exception("fused optimizer not available, using the plain one")
init(); sync(2)
schedule = {"warmup": 10, "total": 10 if rank == 0 else 50}
for s in range(12):
    progress = (s - schedule["warmup"]) / (schedule["total"] - schedule["warmup"])
    sync()
"""),
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"job\.py|schedule|warmup",),
        misleading=(r"apex_cpu|install|network",),
        rank=0,
    ),
    end(
        name="t-end-exit-7-without-a-word",
        code="exit_code",
        way="one rank leaves with code 7 and says nothing",
        processes=5,
        files=files("init(); sync(3)\nif rank == 3: os._exit(7)\nsync(3)\n"),
        wanted=("code 7", "exit code 7", "exited with 7"),
        helpful=(r"rank 3|job\.py|os\._exit",),
        rank=3,
    ),
    end(
        name="t-end-sys-exit-message",
        code="exit_code",
        way="one rank checks its data and leaves with a message (in Portuguese)",
        processes=3,
        files=files(r"""
init(); sync()
amostras = 0 if rank == 2 else 512
if amostras == 0:
    sys.exit("erro: nenhuma amostra encontrada na partição 2, verifique o manifesto")
sync()
"""),
        wanted="erro: nenhuma amostra encontrada",
        helpful=(r"parti|manifest|amostra|job\.py",),
        rank=2,
    ),
    end(
        name="t-end-logger-flood-after-error",
        code="exception",
        way="the traceback stands before thousands of lines of another thread",
        processes=2,
        files=files(r"""
import threading
init(); sync()
def flood():
    for i in range(9000): print(f"[metrics] gpu0_util=0.00 host_mem={i} queue_depth={i % 7} ok", flush=False)
if rank == 1:
    t = threading.Thread(target=flood)
    try:
        {}["embedding_dim"]
    except KeyError:
        traceback.print_exc(); sys.stderr.flush()
        t.start(); t.join()
        os._exit(1)
sync()
"""),
        wanted="KeyError: 'embedding_dim'",
        helpful=(r"job\.py|embedding_dim",),
        rank=1,
    ),
]
