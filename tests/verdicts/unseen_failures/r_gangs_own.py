"""Gangs that talk to each other by means of their own: sockets, HTTP, gRPC, files, databases."""

from recorder import Failure

WRONG_WAY = r"pip install|smaller batch|disk"
HEAD = """import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])

def log(*words):
    print(f"[{time.strftime('%H:%M:%S')}] worker {rank}:", *words, flush=True)

def connect(address, patience=6):
    give_up = time.time() + patience
    while True:
        try:
            return socket.create_connection(address, timeout=patience)
        except ConnectionRefusedError:
            if time.time() > give_up:
                raise
            time.sleep(0.1)
"""
BARRIER = """
from pathlib import Path

def meet(tag, patience=5):
    Path("sync").mkdir(exist_ok=True)
    Path(f"sync/{tag}.{rank}").touch()
    began = time.time()
    while True:
        there = {int(p.name.split(".")[-1]) for p in Path("sync").glob(f"{tag}.*")}
        if len(there) == world:
            return
        if time.time() - began > patience:
            raise TimeoutError(COMPLAINT)
        time.sleep(0.05)
"""


def gang(name: str, source: str, ranks: int, **labels: object) -> Failure:
    labels = {"command": "python run.py", "files": {"run.py": HEAD + source}, "misleading": (WRONG_WAY,)} | labels
    return Failure(name=name, convention="process", processes=ranks, **labels)  # type: ignore[arg-type]


FAILURES = [
    gang(
        "r-own-tcp-worker-raises",
        """
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    peers = [server.accept()[0] for _ in range(world - 1)]
    for step in range(5):
        for peer in peers:
            data = peer.recv(64)
            if not data:
                raise ConnectionError("a worker hung up in the middle of step %d" % step)
        for peer in peers:
            peer.sendall(b"go")
else:
    s = connect(("127.0.0.1", port))
    for step in range(5):
        lr = 0.1 / (step - 2) if rank == 2 else 0.1
        s.sendall(b"%f" % lr)
        s.recv(2)
""",
        3,
        code="exception",
        rank=2,
        wanted="ZeroDivisionError",
        helpful=(r"run\.py",),
    ),
    gang(
        "r-own-tcp-server-raises",
        """
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    peers = [server.accept()[0] for _ in range(world - 1)]
    weights = {"layer1": 3}
    for peer in peers:
        peer.sendall(str(weights["layer2"]).encode())
else:
    s = connect(("127.0.0.1", port))
    if not s.recv(10):
        raise EOFError("the parameter server closed the connection")
""",
        3,
        code="exception",
        rank=0,
        wanted="KeyError: 'layer2'",
        helpful=(r"run\.py|layer2",),
    ),
    gang(
        "r-own-server-waits-for-a-file",
        """
if rank == 0:
    log("waiting for index.ready before opening the socket")
    while not os.path.exists("index.ready"):
        time.sleep(0.2)
    server = socket.create_server(("127.0.0.1", port))
else:
    log("connecting to the coordinator")
    s = connect(("127.0.0.1", port), patience=4)
""",
        3,
        code="rendezvous",
        also_codes=("collective",),
        rank=0,
        wanted=("Connection refused", "index.ready", "did not"),
        helpful=(r"index\.ready|run\.py",),
    ),
    gang(
        "r-own-one-worker-wrong-port",
        """
import json
json.dump({"1": 0, "2": 1, "3": 0}, open("offsets.json", "w"))
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(10)
    for _ in range(world - 1):
        log("joined:", server.accept()[0].recv(1))
else:
    time.sleep(0.3)
    offset = {"1": 0, "2": 1, "3": 0}[str(rank)]
    log("dialing port", port + offset)
    s = connect(("127.0.0.1", port + offset), patience=3)
    s.sendall(b"%d" % rank)
    time.sleep(8)
""",
        4,
        code="rendezvous",
        also_codes=("exception", "collective"),
        rank=2,
        wanted="Connection refused",
        helpful=(r"port|run\.py|offset",),
    ),
    gang(
        "r-own-http-server-answers-500",
        """
import http.server, json, urllib.request
if rank == 0:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                table = {"w0": [1, 2]}
                body = json.dumps(table[self.path.strip("/")]).encode()
                self.send_response(200)
            except KeyError as e:
                import traceback
                traceback.print_exc()
                body = b"internal error"
                self.send_response(500)
            self.end_headers()
            self.wfile.write(body)
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
else:
    time.sleep(1)
    for shard in range(2):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/w{shard}") as answer:
            log("shard", shard, answer.read())
""",
        2,
        code="exception",
        rank=0,
        wanted=("KeyError: 'w1'", "HTTP Error 500"),
        helpful=(r"run\.py|w1",),
    ),
    gang(
        "r-own-file-barrier-names-the-rank",
        BARRIER.replace(
            "COMPLAINT", """f"barrier {tag}: no sign of {sorted(set(range(world)) - there)} after {patience} s\""""
        )
        + """
meet("start")
log("epoch 1")
if rank == 2:
    while True:
        sum(range(10000))
meet("epoch1", patience=4)
""",
        4,
        code="collective",
        rank=2,
        wanted=("no sign of [2]", "did not", "sum(range(10000))"),
        helpful=(r"run\.py|rank 2|sum\(range",),
    ),
    gang(
        "r-own-file-barrier-one-left",
        BARRIER.replace("COMPLAINT", """f"barrier {tag}: only {len(there)} of {world} arrived\"""")
        + """
meet("start")
if rank == 1:
    log("no files in my part, nothing to do")
    sys.exit(0)
meet("epoch1", patience=3)
""",
        3,
        code="collective",
        rank=1,
        wanted=("code 0", "had ended", "nothing to do", "left"),
        helpful=(r"run\.py|rank 1|barrier|every rank|all ranks",),
    ),
    gang(
        "r-own-sqlite-locked",
        """
import sqlite3
db = sqlite3.connect("results.db", timeout=2, isolation_level=None)
if rank == 0:
    db.execute("create table if not exists r (k, v)")
    db.execute("begin exclusive")
    log("collecting results inside one transaction")
    time.sleep(12)
    db.execute("commit")
else:
    time.sleep(1 if rank == 1 else 6)
    db.execute("insert into r values (?, 1)", (rank,))
""",
        3,
        code="exception",
        rank=1,
        also=(0,),
        wanted="sqlite3.OperationalError: database is locked",
        helpful=(r"lock|timeout|results\.db|run\.py|transaction|WAL",),
    ),
    gang(
        "r-own-zmq-server-stuck",
        """
import zmq
ctx = zmq.Context()
if rank == 0:
    s = ctx.socket(zmq.REP)
    s.bind(f"tcp://127.0.0.1:{port}")
    for n in range(10):
        m = s.recv()
        if n == 3:
            log("compacting the replay buffer")
            while n:
                time.sleep(0.5)
        s.send(b"ok")
else:
    s = ctx.socket(zmq.REQ)
    s.setsockopt(zmq.RCVTIMEO, 4000)
    s.setsockopt(zmq.LINGER, 0)
    s.connect(f"tcp://127.0.0.1:{port}")
    while True:
        s.send(b"push")
        s.recv()
""",
        2,
        code="collective",
        also_codes=("exception",),
        rank=0,
        wanted=("did not", "compacting the replay buffer", "Resource temporarily unavailable", "hung"),
        helpful=(r"run\.py|compact|rank 0",),
    ),
    gang(
        "r-own-grpc-deadline",
        """
import grpc
from concurrent import futures
if rank == 0:
    def get(request, context):
        log("locking table for", request)
        time.sleep(60)
        return b""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("ps.Store", {"Get": grpc.unary_unary_rpc_method_handler(get)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()
else:
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    stub = channel.unary_unary("/ps.Store/Get")
    print(stub(b"embedding.7", timeout=5, wait_for_ready=True))
""",
        2,
        code="collective",
        also_codes=("exception",),
        rank=0,
        wanted=("Deadline Exceeded", "DEADLINE_EXCEEDED", "did not", "time.sleep(60)"),
        helpful=(r"run\.py|deadline|time\.sleep|rank 0",),
    ),
    gang(
        "r-own-authkey-differs",
        """
from multiprocessing.connection import Client, Listener
key = os.environ.get(f"JOB_KEY_{rank}", "default").encode()
if rank == 0:
    with Listener(("127.0.0.1", port), authkey=key) as listener:
        listener.accept().recv()
else:
    time.sleep(0.7)
    Client(("127.0.0.1", port), authkey=key).send("hello")
    time.sleep(3)
""",
        2,
        code="exception",
        rank=None,
        also=(0, 1),
        variables={"JOB_KEY_0": "s3cr3t"},
        wanted=("AuthenticationError: digest received was wrong", "AuthenticationError: digest sent was rejected"),
        helpful=(r"authkey|JOB_KEY|key|run\.py",),
    ),
    Failure(
        name="r-own-node-worker-throws",
        code="exception",
        convention="process",
        processes=2,
        rank=1,
        command="node worker.js",
        files={
            "worker.js": """const rank = Number(process.env.RANK);
function parse(line) {
  const fields = line.split(',');
  return fields[3].trim();
}
console.log(`worker ${rank} up`);
setTimeout(() => {
  console.log(parse(rank === 1 ? 'a,b' : 'a,b,c,d'));
  setTimeout(() => console.log('done'), 3000);
}, 300);
"""
        },
        wanted="TypeError: Cannot read properties of undefined (reading 'trim')",
        helpful=(r"worker\.js",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="r-own-c-worker-crashes",
        code="signal",
        convention="process",
        processes=3,
        rank=1,
        command="gcc -g -o work_$RANK work.c && ./work_$RANK",
        files={
            "work.c": """#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  int rank = atoi(getenv("RANK"));
  printf("worker %d starts\\n", rank); fflush(stdout);
  sleep(1);
  double *grid = rank == 1 ? NULL : malloc(80);
  grid[3] = 1.0;
  sleep(3);
  return 0;
}
"""
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"work\.c|gdb|native|core|-g|sanitize|pointer",),
        misleading=(r"pip install|PYTHONFAULTHANDLER",),
    ),
    Failure(
        name="r-own-script-calls-missing-tool",
        code="exit_code",
        also_codes=("launcher_missing", "exception"),
        convention="process",
        processes=3,
        rank=2,
        command="bash stage.sh",
        files={
            "stage.sh": """set -e
echo "staging part $RANK"
if [ "$RANK" = 2 ]; then
  zstdcat-parallel part2.zst > part2
fi
sleep 2
"""
        },
        wanted="zstdcat-parallel: command not found",
        helpful=(r"zstdcat-parallel|stage\.sh|install",),
        misleading=(r"smaller batch|firewall",),
    ),
    gang(
        "r-own-config-hash-differs",
        """
from pathlib import Path
digest = "8f31aa" if rank == 1 else "1c07be"
Path(f"digest.{rank}").write_text(digest)
while len(list(Path(".").glob("digest.*"))) < world:
    time.sleep(0.05)
time.sleep(0.3)
all_ = [Path(f"digest.{r}").read_text() for r in range(world)]
if len(set(all_)) > 1:
    log(f"my config is {digest}, the others have {all_[:rank] + all_[rank + 1:]}")
    log("FATAL configurations differ between workers")
    sys.exit(3)
""",
        3,
        code="exit_code",
        rank=1,
        wanted=("8f31aa", "FATAL configurations differ between workers"),
        helpful=(r"config|rank 1|run\.py|8f31aa",),
    ),
    gang(
        "r-own-limit-worker-left-early",
        """
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    peers = [server.accept()[0] for _ in range(world - 1)]
    log("waiting for all results")
    import select
    results = set()
    while len(results) < world - 1:
        for peer in select.select(peers, [], [], 1)[0]:
            data = peer.recv(10)
            if data:
                results.add(data)
            else:
                peers.remove(peer)
else:
    s = connect(("127.0.0.1", port))
    if rank == 2:
        log("queue is empty, leaving")
        sys.exit(0)
    s.sendall(b"result%d" % rank)
    log("sent my result")
""",
        3,
        code="timeout",
        rank=2,
        also=(0,),
        limit_s=7,
        wanted=("limit", "waiting for all results", "queue is empty, leaving"),
        helpful=(r"run\.py|rank 2|rank 0|select",),
    ),
    gang(
        "r-own-missed-heartbeats",
        """
import threading
if rank == 0:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", port))
    s.settimeout(0.3)
    seen = {r: time.time() + 1.5 for r in range(1, world)}
    while True:
        try:
            seen[int(s.recv(4))] = time.time()
        except TimeoutError:
            pass
        for r, at in seen.items():
            if time.time() - at > 2.5:
                log(f"worker {r} missed 5 heartbeats, giving up")
                sys.exit(1)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for beat in range(100):
        s.sendto(b"%d" % rank, ("127.0.0.1", port))
        if rank == 3 and beat == 2:
            log("merging embeddings")
            threading.Event().wait()
        time.sleep(0.4)
""",
        4,
        code="collective",
        also_codes=("exit_code",),
        rank=3,
        wanted=("worker 3 missed 5 heartbeats", "did not"),
        helpful=(r"run\.py|worker 3|rank 3|Event|merging",),
    ),
    Failure(
        name="r-own-argument-wrong-for-last",
        code="bad_input",
        convention="process",
        processes=4,
        rank=3,
        command="python run.py --shard $RANK --epochs 2",
        files={
            "run.py": """import argparse, time
p = argparse.ArgumentParser()
p.add_argument("--shard", type=int, choices=[0, 1, 2], required=True)
p.add_argument("--epochs", type=int)
a = p.parse_args()
time.sleep(3)
"""
        },
        wanted="argument --shard: invalid choice: 3",
        helpful=(r"--shard",),
        misleading=(WRONG_WAY, r"firewall"),
    ),
    Failure(
        name="r-own-ulimit-on-one",
        code="host_oom",
        convention="process",
        processes=2,
        rank=1,
        command="[ $RANK = 0 ] || ulimit -v 600000; python run.py",
        files={
            "run.py": """import time
rows = []
for n in range(40):
    rows.append(bytearray(20_000_000))
    print("loaded", n, flush=True)
time.sleep(3)
"""
        },
        wanted="MemoryError",
        helpful=(r"memory|run\.py|ulimit|rows",),
        misleading=(r"firewall|pip install",),
    ),
    gang(
        "r-own-name-of-server-unknown",
        """
host = "ps-0.jobs.invalid"
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(8)
    server.accept()
else:
    log("looking for", host)
    s = connect((host, port))
""",
        3,
        code="exception",
        also_codes=("rendezvous",),
        rank=1,
        also=(2,),
        wanted=(
            "socket.gaierror",
            "Name or service not known",
            "Temporary failure in name resolution",
            "No address associated",
        ),
        helpful=(r"ps-0\.jobs\.invalid|MASTER_ADDR|name|run\.py|DNS",),
    ),
    gang(
        "r-own-asyncio-wait-for-peer",
        """
import asyncio

async def main():
    if rank == 0:
        done = asyncio.Queue()
        async def serve(reader, writer):
            await done.put(int(await reader.readline()))
        await asyncio.start_server(serve, "127.0.0.1", port)
        got = set()
        while len(got) < world - 1:
            got.add(await asyncio.wait_for(done.get(), timeout=4))
            log("have", sorted(got))
    else:
        await asyncio.sleep(0.5 * rank)
        if rank == 2:
            log("reading the image cache")
            await asyncio.Event().wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\\n" % rank)
        await writer.drain()
        await asyncio.sleep(8)

asyncio.run(main())
""",
        3,
        code="collective",
        also_codes=("exception",),
        rank=2,
        wanted=("TimeoutError", "reading the image cache", "did not"),
        helpful=(r"run\.py|rank 2|Event",),
    ),
    gang(
        "r-own-xmlrpc-fault",
        """
import xmlrpc.client, xmlrpc.server
if rank == 0:
    def lease(worker):
        free = {1: "gpu-a"}
        return free.pop(worker)
    server = xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", port), logRequests=False)
    server.register_function(lease)
    server.serve_forever()
else:
    time.sleep(0.8)
    log("lease", xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}").lease(rank))
    time.sleep(2)
""",
        3,
        code="exception",
        rank=2,
        also=(0,),
        wanted="xmlrpc.client.Fault: <Fault 1: \"<class 'KeyError'>:2\">",
        helpful=(r"run\.py|lease|KeyError",),
    ),
    gang(
        "r-own-shared-memory-gone",
        """
from multiprocessing import shared_memory
name = f"muster_r_{port}"
if rank == 0:
    block = shared_memory.SharedMemory(name, create=True, size=1000)
    log("created the block")
    block.close()
    block.unlink()
    time.sleep(4)
else:
    time.sleep(1)
    block = shared_memory.SharedMemory(name)
""",
        2,
        code="exception",
        rank=1,
        also=(0,),
        wanted="FileNotFoundError: [Errno 2] No such file or directory: '/muster_r_",
        helpful=(r"unlink|run\.py|shared_memory|created",),
        misleading=(r"pip install|smaller batch|shm_size",),
    ),
    gang(
        "r-own-rank2-truncated-npz",
        """
import numpy as np
name = f"features-{rank}.npz"
np.savez(name, x=np.arange(5000))
if rank == 2:
    data = open(name, "rb").read()
    open(name, "wb").write(data[: len(data) // 2])
x = np.load(name)["x"]
log("mean", x.mean())
time.sleep(2)
""",
        4,
        code="exception",
        rank=2,
        wanted="zipfile.BadZipFile: File is not a zip file",
        helpful=(r"features-2|truncat|corrupt|again|run\.py",),
        misleading=(r"pip install|firewall",),
    ),
    gang(
        "r-own-perl-and-python-disagree",
        """
import subprocess
log("normalising with perl")
script = "my $n = shift; die \\"cannot normalise: mean of part $n is zero\\\\n\\" if $n == 1; sleep 2;"
subprocess.run(["perl", "-e", script, str(rank)], check=True)
""",
        3,
        code="exception",
        rank=1,
        wanted=("cannot normalise: mean of part 1 is zero",),
        helpful=(r"run\.py|part 1|perl",),
    ),
    gang(
        "r-own-coordinator-rejects-version",
        """
if rank == 0:
    server = socket.create_server(("127.0.0.1", port))
    for _ in range(world - 1):
        peer = server.accept()[0]
        hello = peer.recv(64).decode()
        ok = hello.endswith("v3")
        log("hello from", hello, "accepted" if ok else "REJECTED")
        peer.sendall(b"ok" if ok else b"protocol v3 needed")
    time.sleep(3)
else:
    s = connect(("127.0.0.1", port))
    s.sendall(f"worker {rank} {'v2' if rank == 3 else 'v3'}".encode())
    answer = s.recv(64).decode()
    if answer != "ok":
        log("coordinator says:", answer)
        sys.exit(4)
    time.sleep(3)
""",
        4,
        code="exit_code",
        rank=3,
        wanted="protocol v3 needed",
        helpful=(r"v3|v2|protocol|version|rank 3|run\.py",),
    ),
    gang(
        "r-own-lock-file-left-over",
        """
import filelock
lock = filelock.FileLock("weights.lock", timeout=3)
if rank == 0:
    with lock:
        log("converting weights")
        time.sleep(30)
else:
    time.sleep(0.5)
    with lock:
        log("weights are there")
""",
        2,
        code="exception",
        also_codes=("collective",),
        rank=0,
        also=(1,),
        wanted=("The file lock 'weights.lock' could not be acquired", "converting weights"),
        helpful=(r"lock|run\.py|timeout",),
    ),
    gang(
        "r-own-two-coordinators",
        """
if rank in (0, 1):
    server = socket.create_server(("127.0.0.1", port))
    log("I am the coordinator")
    time.sleep(4)
else:
    s = connect(("127.0.0.1", port))
    time.sleep(4)
""",
        3,
        code="port_trouble",
        also_codes=("exception",),
        rank=1,
        also=(0,),
        wanted="Address already in use",
        helpful=(r"port|run\.py|coordinator",),
    ),
]
