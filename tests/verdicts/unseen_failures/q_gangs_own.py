"""Ranks that Muster starts itself and that talk in their own way: sockets, files, queues, shells; or not at all."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|submit again|pip install"
RING = """import os, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])

def recv_exact(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise ConnectionError(f"peer closed the connection after {len(data)} of {n} bytes")
        data += part
    return data

def connect():
    if rank == 0:
        srv = socket.create_server(("127.0.0.1", port), backlog=64)
        peers = {}
        while len(peers) < world - 1:
            c, _ = srv.accept()
            peers[struct.unpack("i", recv_exact(c, 4))[0]] = c
        return peers
    end = time.time() + 10
    while True:
        try:
            c = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            if time.time() > end:
                raise
            time.sleep(0.05)
    c.sendall(struct.pack("i", rank))
    return {0: c}

def allreduce(peers, value):
    if rank == 0:
        total = value + sum(struct.unpack("d", recv_exact(p, 8))[0] for _, p in sorted(peers.items()))
        for p in peers.values():
            p.sendall(struct.pack("d", total))
        return total
    peers[0].sendall(struct.pack("d", value))
    return struct.unpack("d", recv_exact(peers[0], 8))[0]
"""


def ring(body: str) -> dict[str, str]:
    return {"comm.py": RING, "train.py": "from comm import *\n" + body}


FAILURES = [
    Failure(
        name="q-own-ring-worker-raises",
        code="exception",
        convention="process",
        processes=8,
        nodes=2,
        command="python train.py",
        rank=5,
        files=ring("""
peers = connect()
for step in range(6):
    g = 1.0 / (3 - step) if rank == 5 else 1.0
    print(step, allreduce(peers, g), flush=True)
"""),
        wanted="ZeroDivisionError: float division by zero",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-ring-worker-exits-zero",
        code="collective",
        convention="process",
        processes=4,
        command="python train.py",
        rank=2,
        files=ring("""
peers = connect()
steps = 5 if rank != 2 else 3
for step in range(steps):
    allreduce(peers, 1.0)
    print("step", step, flush=True)
print("worker", rank, "all done", flush=True)
"""),
        wanted=(
            "worker 2 all done",
            "code 0",
            "had exited",
            "had ended",
            "had finished",
            "ended early",
            "exited early",
        ),
        helpful=(r"rank 2", r"same number", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-own-ring-worker-killed",
        code="signal",
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        files=ring("""
import signal
peers = connect()
for step in range(50):
    allreduce(peers, float(step))
    if rank == 1 and step == 20:
        os.kill(os.getpid(), signal.SIGKILL)
"""),
        wanted=("SIGKILL", "signal 9"),
        helpful=(r"dmesg|kill|memory",),
        misleading=(r"firewall|interface|pip install",),
    ),
    Failure(
        name="q-own-ring-recv-timeout",
        code="collective",
        convention="process",
        processes=4,
        command="python train.py",
        rank=3,
        files=ring("""
import logging
logging.basicConfig(level=logging.INFO, format=f"[%(levelname).1s rank={rank}] %(message)s")
peers = connect()
for p in peers.values():
    p.settimeout(1.5)
for step in range(5):
    logging.info("step %d", step)
    if rank == 3 and step == 2:
        logging.info("compacting the shuffle buffer")
        time.sleep(120)
    allreduce(peers, 1.0)
"""),
        wanted=("did not", "hung", "time.sleep", "stuck", "compacting the shuffle buffer", "was in"),
        helpful=(r"rank 3", r"train\.py", r"sleep"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-own-no-talk-one-fails",
        code="exception",
        also_codes=("data_unavailable",),
        convention="process",
        processes=4,
        command="python embed.py",
        rank=1,
        files={
            "shards/0.txt": "a b c\n",
            "shards/2.txt": "d e\n",
            "shards/3.txt": "f\n",
            "embed.py": """import os, time, pathlib
r = int(os.environ["RANK"])
text = pathlib.Path(f"shards/{r}.txt").read_text()
for w in text.split() * 20:
    time.sleep(0.1)
print("done", r)
""",
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'shards/1.txt'",
        helpful=(r"shards/1\.txt", r"embed\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-shell-ranks-one-exit-code",
        code="exit_code",
        convention="process",
        processes=3,
        command="bash ./worker.sh",
        rank=2,
        files={
            "worker.sh": """#!/bin/bash
echo "worker $RANK of $WORLD_SIZE on node $NODE_RANK"
for i in 1 2 3 4 5 6 7 8; do
  if [ "$RANK" = 2 ] && [ $i = 3 ]; then
    echo "ERROR: checksum of chunk $i does not match the manifest" >&2
    exit 65
  fi
  sleep 0.3
done
"""
        },
        wanted="ERROR: checksum of chunk 3 does not match the manifest",
        helpful=(r"chunk|manifest|checksum", r"worker\.sh"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-command-missing-one-node",
        code="launcher_missing",
        convention="process",
        processes=2,
        nodes=2,
        command='if [ "$NODE_RANK" = 1 ]; then PATH=/nonexistent; fi; nproc_report train.py',
        rank=0,
        also=(1,),
        wanted=("nproc_report: command not found",),
        helpful=(r"nproc_report",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-script-missing-all",
        code="bad_input",
        convention="process",
        processes=4,
        command="python src/trian.py --epochs 1",
        rank=0,
        also=(1, 2, 3),
        files={"src/train.py": "print('ok')\n"},
        wanted=("can't open file", "No such file or directory"),
        helpful=(r"train\.py", r"trian"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-local-rank-only-on-node-zero",
        code="exception",
        convention="process",
        processes=4,
        nodes=2,
        command='if [ "$NODE_RANK" = 1 ]; then unset LOCAL_RANK; fi; python train.py',
        rank=2,
        also=(3,),
        files={
            "train.py": """import os, time
print("pid", os.getpid())
local = int(os.environ["LOCAL_RANK"])
time.sleep(5)
"""
        },
        wanted="KeyError: 'LOCAL_RANK'",
        helpful=(r"LOCAL_RANK", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-disk-full-one-rank",
        code="disk_full",
        convention="process",
        processes=3,
        command="bash ./go.sh",
        rank=1,
        files={
            "go.sh": """#!/bin/bash
mkdir -p scratch_$RANK
if [ $RANK = 1 ]; then
  exec unshare -m bash -c 'mount -t tmpfs -o size=1m none scratch_1 && exec python work.py'
fi
exec python work.py
""",
            "work.py": """import os, time
r = os.environ["RANK"]
with open(f"scratch_{r}/cache.bin", "wb") as f:
    for i in range(40):
        f.write(b"x" * 100_000)
        f.flush()
        time.sleep(0.05)
""",
        },
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|muster rm", r"scratch"),
        misleading=(r"firewall|network|pip install|smaller batch",),
    ),
    Failure(
        name="q-own-zmq-address-in-use",
        code="port_trouble",
        convention="process",
        processes=2,
        command="python ps.py",
        rank=1,
        also=(0,),
        files={
            "ps.py": """import os, time, zmq
ctx = zmq.Context()
# every rank is a server here
s = ctx.socket(zmq.REP)
if os.environ["RANK"] == "1":
    time.sleep(0.5)
s.bind("tcp://127.0.0.1:" + os.environ["MASTER_PORT"])
print("parameter server up", flush=True)
time.sleep(20)
"""
        },
        wanted="zmq.error.ZMQError: Address already in use",
        helpful=(r"MASTER_PORT|port", r"ps\.py", r"rank 0"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    Failure(
        name="q-own-file-barrier-gives-up",
        code="rendezvous",
        also_codes=("collective",),
        convention="process",
        processes=3,
        command="python run.py",
        rank=0,
        files={
            "run.py": """import os, sys, time, pathlib
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def prepare():
    if rank == 0:
        time.sleep(90)

prepare()
pathlib.Path(f"ready.{rank}").touch()
t0 = time.time()
while True:
    missing = [r for r in range(world) if not pathlib.Path(f"ready.{r}").exists()]
    if not missing:
        break
    if time.time() - t0 > 2:
        raise TimeoutError(f"ranks {missing} did not arrive at the start line within 2 s")
    time.sleep(0.1)
"""
        },
        wanted=("ranks [0] did not arrive", "did not", "time.sleep"),
        helpful=(r"rank 0", r"run\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-own-connection-refused-master-died",
        code="exception",
        convention="process",
        processes=3,
        command="python main.py",
        rank=0,
        files={
            "main.py": """import os, socket, time, json
rank = int(os.environ["RANK"])
addr = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    conf = json.loads('{"lr": 0.1,}')
    socket.create_server(addr)
else:
    for attempt in range(8):
        try:
            socket.create_connection(addr)
            break
        except OSError as e:
            print(f"attempt {attempt}: {e}", flush=True)
            time.sleep(0.05)
    else:
        raise SystemExit("could not reach the coordinator")
"""
        },
        wanted=("json.decoder.JSONDecodeError: Illegal trailing comma", "json.decoder.JSONDecodeError"),
        helpful=(r"main\.py", r"comma|JSON"),
        misleading=(WRONG_WAY, r"network|MASTER_ADDR"),
    ),
    Failure(
        name="q-own-sigterm-handled-by-victims",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=0,
        files={
            "train.py": """import os, signal, sys, time
rank = int(os.environ["RANK"])

def on_term(sig, frame):
    print(f"rank {rank}: got signal {sig}, writing emergency checkpoint", flush=True)
    print("Traceback (most recent call last): <not a real one>", flush=True)
    sys.exit(1)

signal.signal(signal.SIGTERM, on_term)
schedule = [0.1, 0.05]
for epoch in range(200):
    if rank == 0:
        lr = schedule[epoch]
    time.sleep(0.1)
"""
        },
        wanted="IndexError: list index out of range",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|preempt"),
    ),
    Failure(
        name="q-own-rank-abort-native",
        code="signal",
        convention="process",
        processes=2,
        command="bash ./build_and_run.sh",
        rank=1,
        files={
            "worker.cpp": """#include <cstdio>
#include <cstdlib>
#include <vector>
#include <unistd.h>
#include <cassert>
int main() {
  int rank = atoi(getenv("RANK"));
  std::vector<int> v(3);
  printf("rank %d up\\n", rank); fflush(stdout);
  usleep(200000);
  size_t want = rank == 1 ? 5 : 3;
  assert(v.size() == want && "buffer must match the header");
  sleep(5);
}
""",
            "build_and_run.sh": "#!/bin/bash\nset -e\ng++ -o worker_$RANK worker.cpp\nexec ./worker_$RANK\n",
        },
        also_codes=("exception",),
        wanted=("Assertion `v.size() == want",),
        helpful=(r"worker\.cpp", r"assert"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-java-gang-one-npe",
        code="exception",
        convention="process",
        processes=2,
        command="java Worker.java",
        rank=1,
        files={
            "Worker.java": """import java.util.*;

public class Worker {
    static Map<String, String> table = new HashMap<>();

    static int width(String key) {
        return table.get(key).length();
    }

    public static void main(String[] args) throws Exception {
        int rank = Integer.parseInt(System.getenv("RANK"));
        System.out.println("INFO worker " + rank + " ready");
        table.put("0", "abc");
        try {
            System.out.println(width(Integer.toString(rank)));
        } catch (NullPointerException e) {
            throw new IllegalStateException("partition cannot be opened", e);
        }
        Thread.sleep(15000);
    }
}
"""
        },
        wanted=("NullPointerException",),
        helpful=(r"Worker\.java",),
        misleading=(WRONG_WAY, r"network|pip"),
    ),
    Failure(
        name="q-own-timeout-one-rank-raised-in-thread",
        code="exception",
        convention="process",
        processes=2,
        command="python train.py",
        rank=1,
        limit_s=5,
        files={
            "train.py": """import os, queue, threading, time
rank = int(os.environ["RANK"])
q = queue.Queue()

def producer():
    for i in range(100):
        if rank == 1 and i == 4:
            raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "invalid start byte")
        q.put(i)
        time.sleep(0.02)
    q.put(None)

threading.Thread(target=producer, name="producer").start()
while True:
    item = q.get()
    if item is None:
        break
print("rank", rank, "complete", flush=True)
"""
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        helpful=(r"train\.py", r"encoding|thread"),
        misleading=(r"raise `?limits|longer|--timeout", r"firewall|pip install"),
    ),
    Failure(
        name="q-own-timeout-shells-stuck",
        code="timeout",
        convention="process",
        processes=3,
        command='if [ $RANK = 1 ]; then echo "waiting for licence server"; sleep 100; fi; echo rank $RANK finished',
        rank=1,
        limit_s=3,
        wanted=("waiting for licence server", "3 s", "time limit"),
        helpful=(r"rank 1", r"licence"),
        misleading=(r"firewall|pip install|smaller batch",),
    ),
    Failure(
        name="q-own-permission-on-node-one",
        code="exception",
        also_codes=("data_unavailable",),
        convention="process",
        processes=4,
        nodes=2,
        command="bash ./go.sh",
        rank=2,
        also=(3,),
        files={
            "data/train.bin": "x" * 100,
            "go.sh": """#!/bin/bash
cp data/train.bin node_$RANK.bin
if [ "$NODE_RANK" = 1 ]; then
  chmod 000 node_$RANK.bin
  chmod 777 . ..
  exec setpriv --reuid 65534 --regid 65534 --clear-groups python3 read.py
fi
exec python3 read.py
""",
            "read.py": """import os, time
name = f"node_{os.environ['RANK']}.bin"
data = open(name, "rb").read()
time.sleep(5)
""",
        },
        wanted=("PermissionError: [Errno 13] Permission denied",),
        helpful=(r"node_2\.bin|node_3\.bin|node_", r"chmod|permission|may not read"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-own-seed-out-of-range",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files={
            "train.py": """import os, time, warnings
warnings.warn("this API is deprecated and will be removed", DeprecationWarning)
rank = int(os.environ["RANK"])
def seed_everything(seed):
    import random
    random.seed(seed)
    if rank == 2:
        import numpy as np
        np.random.seed(seed - 1)
seed_everything(0)
time.sleep(4)
"""
        },
        wanted="ValueError: Seed must be between 0 and 2**32 - 1",
        helpful=(r"train\.py", r"seed"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-own-queue-manager-peer-gone",
        code="exit_code",
        convention="process",
        processes=3,
        command="python farm.py",
        rank=0,
        files={
            "farm.py": """import os, sys, time, queue
from multiprocessing.managers import BaseManager
rank = int(os.environ["RANK"])
port = int(os.environ["MASTER_PORT"])
class M(BaseManager):
    pass
q = queue.Queue()
if rank == 0:
    M.register("jobs", callable=lambda: q)
    m = M(("127.0.0.1", port), b"k")
    m.start()
    for i in range(10):
        m.jobs().put(i)
    time.sleep(1.2)
    print("coordinator: budget of 10 tasks is used up; this tier allows no more", file=sys.stderr, flush=True)
    m.shutdown()
    sys.exit(9)
M.register("jobs")
m = M(("127.0.0.1", port), b"k")
while True:
    try:
        m.connect()
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
jobs = m.jobs()
while True:
    print(rank, "got", jobs.get(), flush=True)
"""
        },
        wanted="coordinator: budget of 10 tasks is used up",
        helpful=(r"budget|tier", r"farm\.py"),
        misleading=(WRONG_WAY, r"interface|network"),
    ),
    Failure(
        name="q-own-rank-stopped-by-sigstop",
        code="collective",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files=ring("""
import signal
peers = connect()
for p in peers.values():
    p.settimeout(2)
for step in range(5):
    if rank == 2 and step == 1:
        print("rank 2 pauses", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    allreduce(peers, 1.0)
"""),
        wanted=("did not", "hung", "stuck", "stopped", "rank 2 pauses"),
        helpful=(r"rank 2",),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-own-fd-limit-rank",
        code="exception",
        convention="process",
        processes=2,
        command="if [ $RANK = 0 ]; then ulimit -n 40; fi; python cache.py",
        rank=0,
        files={
            "cache.py": """import os, time
keep = []
for i in range(60):
    keep.append(open(f"/tmp/.q_{os.getpid()}_{i}", "w"))
    os.unlink(keep[-1].name)
    time.sleep(0.01)
time.sleep(5)
"""
        },
        wanted="OSError: [Errno 24] Too many open files",
        helpful=(r"ulimit|close|file descriptors", r"cache\.py"),
        misleading=(r"firewall|pip install|smaller batch|disk",),
    ),
]
