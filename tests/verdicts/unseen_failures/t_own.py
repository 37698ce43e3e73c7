"""Gangs that talk over transports of their own: sockets, zmq, gRPC, HTTP, files, Java, Node."""

from functools import partial

from recorder import Failure

ZMQ = r'''import os, sys, time, zmq
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
context = zmq.Context()


def serve(rounds, wait_ms=5000):
    """Rank 0 collects a number from everybody in each round."""
    router = context.socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{PORT}")
    for n in range(rounds):
        got = {}
        while len(got) < WORLD - 1:
            if not router.poll(wait_ms):
                missing = [r for r in range(1, WORLD) if r not in {int(i) for i in got}]
                raise TimeoutError(f"round {n}: no gradient from workers {missing} within {wait_ms} ms")
            who, _, value = router.recv_multipart()
            got[who] = value
        for who in got:
            router.send_multipart([who, b"", b"go"])
        print(f"[server] round {n} complete", flush=True)


def worker():
    socket = context.socket(zmq.REQ)
    socket.setsockopt(zmq.IDENTITY, str(RANK).encode())
    socket.connect(f"tcp://127.0.0.1:{PORT}")
    return socket


def send(socket, value):
    socket.send(str(value).encode())
    return socket.recv()
'''

GRPC = r"""import os, sys, time
from concurrent import futures
import grpc
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])


def serve(handler, seconds):
    server = grpc.server(futures.ThreadPoolExecutor(8))
    method = grpc.unary_unary_rpc_method_handler(handler)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Params", {"Push": method}),))
    server.add_insecure_port(f"127.0.0.1:{PORT}")
    server.start()
    server.wait_for_termination(seconds)
    return server


def push(data, timeout=20):
    channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")
    return channel.unary_unary("/Params/Push")(data, timeout=timeout, wait_for_ready=True)
"""

own = partial(Failure, convention="process", command="python -u node.py", misleading=(r"memory|disk|firewall",))


def zmq(body: str) -> dict[str, str]:
    return {"ring.py": ZMQ, "node.py": "from ring import *\n" + body}


def grpc(body: str) -> dict[str, str]:
    return {"params.py": GRPC, "node.py": "from params import *\n" + body}


FAILURES = [
    own(
        name="t-zmq-worker-hangs",
        code="collective",
        way="one worker never sends; the server gives up",
        processes=4,
        files=zmq("""
def slow_augment():
    while True:
        time.sleep(1)

if RANK == 0:
    serve(5)
else:
    s = worker()
    for i in range(5):
        if RANK == 3 and i == 2:
            slow_augment()
        send(s, i)
"""),
        wanted=("no gradient from workers [3]", "slow_augment", "did not"),
        helpful=(r"node\.py|slow_augment|rank 3|worker",),
        rank=3,
    ),
    own(
        name="t-zmq-worker-raises",
        code="exception",
        way="one worker raises, the server waits",
        processes=3,
        files=zmq("""
if RANK == 0:
    serve(5, 20000)
else:
    s = worker()
    for i in range(5):
        send(s, 1 / (2 - i) if RANK == 2 else i)
"""),
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"node\.py",),
        rank=2,
    ),
    own(
        name="t-zmq-worker-leaves",
        code="collective",
        way="one worker has less to do and leaves with code 0",
        processes=5,
        files=zmq("""
if RANK == 0:
    serve(6, 3000)
else:
    s = worker()
    for i in range(6 if RANK != 4 else 4):
        send(s, i)
    print(f"worker {RANK} finished", flush=True)
"""),
        wanted=("no gradient from workers [4]", "worker 4 finished", "code 0"),
        helpful=(r"node\.py|rank 4|worker",),
        rank=4,
    ),
    own(
        name="t-zmq-port-taken",
        code="port_trouble",
        way="two ranks bind the same address",
        processes=3,
        files=zmq("""
if RANK in (0, 1):
    time.sleep(RANK)
    serve(1, 9000)
else:
    send(worker(), 1)
"""),
        also_codes=("exception",),
        wanted="Address already in use",
        helpful=(r"node\.py|\bport\b|rank 1",),
        rank=1,
    ),
    own(
        name="t-zmq-server-killed",
        code="signal",
        way="the server is killed; workers wait",
        processes=3,
        files=zmq("""
if RANK == 0:
    serve(2)
    os.kill(os.getpid(), 9)
s = worker()
for i in range(5):
    send(s, i)
"""),
        wanted=("SIGKILL", "Killed", "signal 9"),
        helpful=(r"kill|outside|dmesg|memory",),
        misleading=(r"firewall|disk",),
        rank=0,
    ),
    own(
        name="t-grpc-server-handler-raises",
        code="exception",
        way="the server's handler raises; the clients see an unknown error",
        processes=3,
        files=grpc("""
def handle(data, context):
    parts = data.decode().split(":")
    return str(float(parts[1])).encode()

if RANK == 0:
    serve(handle, 10)
else:
    push(b"grad:0.5")
    push(b"grad;0.7" if RANK == 2 else b"grad:0.1")
    time.sleep(3)
"""),
        wanted=("Exception calling application: list index out of range", "IndexError: list index out of range"),
        helpful=(r"node\.py|handle|grad",),
        rank=2,
        also=(0,),
    ),
    own(
        name="t-grpc-server-vanishes",
        code="collective",
        way="the parameter server leaves with code 0 before the workers are done",
        processes=4,
        files=grpc("""
if RANK == 0:
    serve(lambda data, context: data, 3)
    print("parameter server: idle for 3 s, shutting down", flush=True)
    sys.exit(0)
for i in range(30):
    push(b"x" * 10)
    time.sleep(0.3)
    channel_timeout = 2
    push(b"y", timeout=channel_timeout)
"""),
        wanted=("shutting down", "Deadline Exceeded", "DEADLINE_EXCEEDED", "UNAVAILABLE", "code 0"),
        helpful=(r"node\.py|server|rank 0|shut",),
        rank=0,
    ),
    own(
        name="t-grpc-server-too-slow",
        code="collective",
        also_codes=("exception",),
        way="the server's handler blocks; a client's deadline passes",
        processes=3,
        files=grpc("""
def handle(data, context):
    if data == b"merge":
        time.sleep(60)
    return b"ok"

if RANK == 0:
    serve(handle, 30)
else:
    push(b"hello")
    push(b"merge", timeout=3)
"""),
        wanted=("Deadline Exceeded", "DEADLINE_EXCEEDED", "time.sleep(60)"),
        helpful=(r"node\.py|handle|rank 0|timeout|deadline",),
        rank=0,
    ),
    own(
        name="t-files-barrier-one-missing",
        code="collective",
        also_codes=("exception", "rendezvous", "exit_code"),
        way="a barrier of files; one rank waits for its input (in Spanish)",
        processes=4,
        nodes=2,
        files={
            "node.py": r"""import os, time, pathlib, sys
rango, total = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def barrera(nombre, espera=4):
    pathlib.Path(f"{nombre}.{rango}").touch()
    fin = time.time() + espera
    while True:
        faltan = [r for r in range(total) if not os.path.exists(f"{nombre}.{r}")]
        if not faltan:
            return
        if time.time() > fin:
            sys.exit(f"ERROR: la barrera '{nombre}' expiró; faltan los procesos {faltan}")
        time.sleep(0.05)

barrera("inicio", 20)
if rango == 1:
    print("esperando el fichero pesos.bin", flush=True)
    while not os.path.exists("pesos.bin"):
        time.sleep(0.1)
barrera("fin")
"""
        },
        wanted=("faltan los procesos [1]", "esperando el fichero pesos.bin", "did not"),
        helpful=(r"pesos\.bin|node\.py|rank 1",),
        rank=1,
    ),
    own(
        name="t-http-coordinator-peer-raises",
        code="exception",
        way="ranks report to an HTTP coordinator; one fails to parse its answer",
        processes=3,
        files={
            "node.py": r"""import http.server, json, os, threading, time, urllib.request
rank, world, port = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "MASTER_PORT"))

class Tasks(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"null" if self.path == "/task/2" else json.dumps({"start": 0, "stop": 10}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)

if rank == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Tasks).serve_forever()
time.sleep(1.5)
task = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/task/{rank}"))
print("task", task, flush=True)
for i in range(task["start"], task["stop"]):
    time.sleep(0.5)
"""
        },
        wanted="TypeError: 'NoneType' object is not subscriptable",
        helpful=(r"node\.py|task",),
        rank=2,
    ),
    own(
        name="t-java-worker-null",
        code="exception",
        way="a Java worker fails on one rank",
        processes=3,
        command="java Worker.java",
        files={
            "Worker.java": r"""import java.util.*;
public class Worker {
    static Map<String, Integer> shards = new HashMap<>();
    static int size(String name) { return shards.get(name); }
    public static void main(String[] a) throws Exception {
        int rank = Integer.parseInt(System.getenv("RANK"));
        for (int i = 0; i < 2; i++) shards.put("shard-" + i, 100 * i);
        System.out.println("worker " + rank + " started");
        Thread.sleep(500);
        System.out.println("rows: " + size("shard-" + rank));
        Thread.sleep(9000);
    }
}
"""
        },
        wanted="NullPointerException",
        helpful=(r"Worker\.java|shard",),
        rank=2,
    ),
    own(
        name="t-node-peer-rejects",
        code="exception",
        way="a Node worker's promise is rejected on one rank",
        processes=3,
        command="node worker.js",
        files={
            "worker.js": r"""const rank = Number(process.env.RANK);
async function load(part) {
  if (part === 1) throw new Error(`checksum of part ${part} differs: expected 9f2c, got 11aa`);
  return part;
}
setTimeout(() => {}, 9000);
load(rank).then((p) => console.log("loaded", p));
"""
        },
        wanted="checksum of part 1 differs",
        helpful=(r"worker\.js|checksum|part",),
        rank=1,
    ),
    own(
        name="t-perl-worker-dies",
        code="exit_code",
        also_codes=("exception",),
        way="a Perl worker dies on one rank",
        processes=4,
        command="perl map.pl",
        files={
            "map.pl": 'my $r = $ENV{RANK}; $| = 1; print "mapper $r\\n"; sleep 1;\n'
            'open(my $f, "<", "part-$r.txt") or die "cannot open part-$r.txt: $!" if $r == 3;\nsleep 9;\n'
        },
        wanted="cannot open part-3.txt: No such file or directory",
        helpful=(r"part-3|map\.pl",),
        rank=3,
    ),
]
