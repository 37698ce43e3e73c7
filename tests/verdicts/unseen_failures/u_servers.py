"""Gangs without a framework: parameter servers, coordinators and workers over sockets and files."""

from functools import partial

from recorder import Failure

Gang = partial(Failure, convention="process", processes=3)

LINK = r'''"""Length-prefixed JSON over TCP."""
import json
import socket
import struct
import time


def send(sock, obj):
    raw = json.dumps(obj).encode()
    sock.sendall(struct.pack("!I", len(raw)) + raw)


def _exactly(sock, n):
    buf = b""
    while len(buf) < n:
        part = sock.recv(n - len(buf))
        if not part:
            raise ConnectionError("peer closed the connection")
        buf += part
    return buf


def recv(sock):
    (n,) = struct.unpack("!I", _exactly(sock, 4))
    return json.loads(_exactly(sock, n))


def dial(host, port, seconds=20):
    end = time.time() + seconds
    while True:
        try:
            return socket.create_connection((host, port), timeout=seconds)
        except ConnectionRefusedError:
            if time.time() > end:
                raise
            time.sleep(0.2)


def listen(port, n, seconds=20):
    srv = socket.create_server(("127.0.0.1", port))
    srv.settimeout(seconds)
    return [srv.accept()[0] for _ in range(n)]
'''

FAILURES = [
    Gang(
        name="u-ps-worker-bad-key",
        way="a worker pushes a gradient for a parameter that is not there: the server raises",
        code="exception",
        rank=0,
        also=(2,),
        command="python ps.py",
        files={
            "link.py": LINK,
            "ps.py": """import os, sys
import link

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    params = {"w": 1.0, "b": 0.0}
    workers = link.listen(port, world - 1)
    for it in range(50):
        for s in workers:
            g = link.recv(s)
            for k, v in g["grad"].items():
                params[k] -= 0.1 * v
        for s in workers:
            link.send(s, params)
        print("ps: iteration", it, params, flush=True)
else:
    s = link.dial("127.0.0.1", port)
    for it in range(50):
        grad = {"w": 0.5, "b": 0.1}
        if rank == 2 and it == 9:
            grad["bias"] = grad.pop("b")
            print("worker 2 now sends", grad, flush=True)
        link.send(s, {"rank": rank, "grad": grad})
        p = link.recv(s)
""",
        },
        wanted="KeyError: 'bias'",
        helpful=(r"ps\.py", r"bias|parameter name|key"),
        misleading=(r"firewall|network|memory|port\b",),
    ),
    Gang(
        name="u-ps-server-timeout-one-slow",
        way="the server gives up on a worker that sleeps in a backoff",
        code="collective",
        also_codes=("exit_code",),
        rank=2,
        processes=4,
        command="python -u cluster.py",
        files={
            "link.py": LINK,
            "cluster.py": """import os, time, socket, link
RANK = int(os.environ['RANK']); N = int(os.environ['WORLD_SIZE']) - 1; PORT = int(os.environ['MASTER_PORT'])


def coordinator():
    peers = {}
    for s in link.listen(PORT, N):
        peers[link.recv(s)] = s
        s.settimeout(7)
    for rnd in range(20):
        for who in sorted(peers):
            try:
                link.recv(peers[who])
            except socket.timeout:
                raise SystemExit(f"coordinator: no result from worker {who} in round {rnd} after 7 s, aborting run")
        for s in peers.values():
            link.send(s, "next")


def worker():
    s = link.dial('127.0.0.1', PORT)
    link.send(s, RANK)
    for rnd in range(20):
        if RANK == 2 and rnd == 4:
            print('worker 2: 503 from object store, backing off 64 s', flush=True)
            time.sleep(64)
        link.send(s, {'round': rnd})
        link.recv(s)


worker() if RANK else coordinator()
""",
        },
        wanted=("503 from object store", "no result from worker 2"),
        helpful=(r"cluster\.py", r"object store|back.?off|503|slow"),
        misleading=(r"firewall|memory|port\b.*taken",),
    ),
    Gang(
        name="u-ps-peer-lost-after-worker-crash",
        way="one worker divides by zero, server and others see closed connections",
        code="exception",
        rank=1,
        command="python main.py",
        files={
            "link.py": LINK,
            "main.py": """import os, link, logging
logging.basicConfig(format='%(levelname)s:%(name)s:%(message)s', level=logging.DEBUG)
R = int(os.environ["RANK"])
log = logging.getLogger(f"node{R}")
if R == 0:
    conns = link.listen(int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"]) - 1)
    while True:
        got = []
        for c in conns:
            try:
                got.append(link.recv(c))
            except ConnectionError as e:
                log.error("lost a worker: %s", e)
                raise
        for c in conns:
            link.send(c, sum(got))
else:
    c = link.dial("127.0.0.1", int(os.environ["MASTER_PORT"]))
    words = [12, 7, 3, 0, 5] if R == 1 else [3, 4, 5, 6, 7]
    for w in words:
        link.send(c, 100 // w)
        log.info("average so far %s", link.recv(c))
""",
        },
        wanted=("integer division or modulo by zero", "ZeroDivisionError", "integer modulo by zero"),
        helpful=(r"main\.py", r"zero|words"),
        misleading=(r"firewall|network|lost a worker",),
    ),
    Gang(
        name="u-protocol-versions",
        way="the worker of one node speaks an older protocol, the server refuses it",
        code="exit_code",
        also_codes=("environment", "exception"),
        rank=3,
        processes=4,
        nodes=2,
        command="python agent.py",
        files={
            "link.py": LINK,
            "agent.py": """import os, sys, time, link

rank = int(os.environ["RANK"])
VERSION = "3.2" if rank != 3 else os.environ.get("AGENT_VERSION", "2.9")

if rank == 0:
    seats = link.listen(int(os.environ["MASTER_PORT"]), 3)
    hello = [link.recv(s) for s in seats]
    for s, h in zip(seats, hello):
        link.send(s, {"ok": h["version"] == VERSION, "server": VERSION})
    time.sleep(30)
else:
    s = link.dial("127.0.0.1", int(os.environ["MASTER_PORT"]))
    link.send(s, {"rank": rank, "version": VERSION})
    answer = link.recv(s)
    if not answer["ok"]:
        why = f"server speaks protocol {answer['server']}, this agent {VERSION}"
        print(f"agent {rank}: {why}: refusing to run", file=sys.stderr)
        sys.exit(4)
    link.recv(s)
""",
        },
        wanted="server speaks protocol 3.2, this agent 2.9",
        helpful=(r"version|protocol|upgrade|AGENT_VERSION", r"agent\.py"),
        misleading=(r"firewall|memory|port\b.*taken",),
    ),
    Gang(
        name="u-server-port-held",
        way="the server's fixed port is held by an old process",
        code="port_trouble",
        rank=0,
        command="bash start.sh",
        files={
            "link.py": LINK,
            "start.sh": """#!/bin/bash
if [ "$RANK" = 0 ]; then
  # what last week's run left behind
  python -c 'import socket,time; s=socket.create_server(("127.0.0.1", 28817)); time.sleep(25)' &
  sleep 1.5
else
  sleep 3
fi
exec python app.py --port 28817
""",
            "app.py": """import os, sys, link
port = int(sys.argv[2])
if os.environ["RANK"] == "0":
    print("serving parameters on", port, flush=True)
    for s in link.listen(port, 2):
        link.send(s, "hi")
else:
    s = link.dial("127.0.0.1", port)
    print(link.recv(s))
""",
        },
        wanted="Address already in use",
        helpful=(r"28817|port", r"--port|start\.sh|app\.py"),
        misleading=(r"memory|firewall",),
    ),
    Gang(
        name="u-worker-refused-server-gone",
        way="the server ended well before the last worker had dialled",
        code="exception",
        also_codes=("rendezvous", "collective"),
        rank=2,
        also=(0,),
        command="python reduce.py",
        files={
            "link.py": LINK,
            "reduce.py": """import os, time, link
rank = int(os.environ["RANK"]); port = int(os.environ["MASTER_PORT"])
if rank == 0:
    # TODO take the number of workers from the environment
    for s in link.listen(port, 1):
        print("partial sum", link.recv(s), flush=True)
    print("all partial sums received", flush=True)
else:
    if rank == 2:
        time.sleep(3)
    s = link.dial("127.0.0.1", port, seconds=5)
    link.send(s, {"rank": rank, "sum": 17 * rank})
    print("rank", rank, "sent", flush=True)
""",
        },
        wanted=("Connection refused", "Connection reset", "all partial sums received"),
        helpful=(r"reduce\.py", r"rank 0|server|listen|number of workers|port"),
        misleading=(r"memory|firewall",),
    ),
    Gang(
        name="u-file-barrier-waits",
        way="ranks meet over files; one rank writes under another name",
        code="timeout",
        rank=1,
        limit_s=20,
        command="python -u filebarrier.py",
        files={
            "filebarrier.py": """import os, pathlib, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
root = pathlib.Path("sync")
root.mkdir(exist_ok=True)


def arrive(tag):
    name = f"{tag}.{rank}" if rank != 1 else f"{tag}_{rank}"
    (root / name).touch()
    print(f"rank {rank} wrote {name}", flush=True)


def barrier(tag):
    arrive(tag)
    if rank == 1:
        return
    while True:
        missing = [r for r in range(world) if not (root / f"{tag}.{r}").exists()]
        if not missing:
            return
        print(f"barrier {tag}: waiting for {missing}", flush=True)
        time.sleep(2)


barrier("loaded")
barrier("epoch0")
""",
        },
        wanted=("barrier loaded: waiting for [1]", "waiting for [1]", "wrote loaded_1"),
        helpful=(r"filebarrier\.py", r"rank 1|loaded"),
        misleading=(r"firewall|memory|MASTER_ADDR",),
    ),
    Gang(
        name="u-json-logs-bad-tensor-name",
        way="structured JSON logs; the traceback is a field of one of them",
        code="exception",
        rank=2,
        processes=3,
        command="python svc.py",
        files={
            "link.py": LINK,
            "svc.py": """import json, os, sys, time, traceback, link

RANK = int(os.environ["RANK"])


def emit(level, event, **kw):
    print(json.dumps({"ts": round(time.time(), 3), "level": level, "rank": RANK, "event": event, **kw}), flush=True)


def rank0():
    peers = link.listen(int(os.environ["MASTER_PORT"]), 2)
    for n in range(10):
        for p in peers:
            link.recv(p)
        emit("info", "round.complete", n=n)


def peer():
    s = link.dial("127.0.0.1", int(os.environ["MASTER_PORT"]))
    table = {"embed.weight": [0.0] * 4, "proj.weight": [0.0] * 4}
    for n in range(10):
        key = "embed.weight" if n < 6 or RANK != 2 else "embedding.weight"
        link.send(s, table[key])
        emit("debug", "pushed", key=key)


try:
    rank0() if RANK == 0 else peer()
except Exception as e:
    emit("critical", "unhandled", error=repr(e), traceback=traceback.format_exc())
    sys.exit(70)
""",
        },
        wanted=("KeyError('embedding.weight')", "KeyError: 'embedding.weight'"),
        helpful=(r"svc\.py", r"embedding\.weight|key"),
        misleading=(r"firewall|network|memory",),
    ),
    Gang(
        name="u-allreduce-ring-wrong-host-list",
        way="the ring's host list is shorter than the gang",
        code="exception",
        also_codes=("bad_input",),
        rank=3,
        processes=4,
        command="python ring.py hosts.txt",
        files={
            "link.py": LINK,
            "hosts.txt": "127.0.0.1 29121\n127.0.0.1 29122\n127.0.0.1 29123\n",
            "ring.py": """import os, sys, threading, time, link

rank = int(os.environ["RANK"])
ring = [line.split() for line in open(sys.argv[1])]
host, port = ring[rank]
incoming = []
t = threading.Thread(target=lambda: incoming.extend(link.listen(int(port), 1, 30)), daemon=True)
t.start()
nxt = ring[(rank + 1) % len(ring)]
out = link.dial(nxt[0], int(nxt[1]))
t.join()
for step in range(40):
    link.send(out, [rank] * 100)
    link.recv(incoming[0])
    time.sleep(0.3)
print("ring closed")
""",
        },
        wanted="list index out of range",
        helpful=(r"ring\.py", r"hosts\.txt|host list|ranks"),
        misleading=(r"firewall|network|memory",),
    ),
    Gang(
        name="u-perl-worker-dies",
        way="ranks are Perl scripts; one meets a malformed record",
        code="exception",
        also_codes=("exit_code",),
        rank=1,
        command="perl count.pl part.$RANK.tsv",
        files={
            "part.0.tsv": "a\t1\nb\t2\n",
            "part.1.tsv": "a\t1\nb two\nc\t3\n",
            "part.2.tsv": "x\t9\n",
            "count.pl": """use strict; use warnings;
my $file = shift or die "usage: count.pl FILE\\n";
open(my $fh, '<', $file) or die "cannot open $file: $!";
my %n;
while (<$fh>) {
    chomp;
    my ($k, $v) = split /\\t/;
    die "$file: record without a count: '$_'" unless defined $v;
    $n{$k} += $v;
}
print "$_ $n{$_}\\n" for sort keys %n;
sleep 5;
""",
        },
        wanted="record without a count: 'b two'",
        helpful=(r"count\.pl|part\.1\.tsv", r"record|tab"),
        misleading=(r"firewall|network|memory",),
    ),
    Gang(
        name="u-node-worker-typeerror",
        way="ranks are Node programs; one gets undefined from its config",
        code="exception",
        rank=0,
        processes=2,
        command="node worker.js",
        files={
            "roles.json": '{"leader": {"ports": {"http": 8080}}, "1": {"listen": {"http": 8081}}, "0": {}}',
            "worker.js": """const fs = require('fs');
const rank = process.env.RANK;
const roles = JSON.parse(fs.readFileSync('roles.json', 'utf8'));
console.log(`worker ${rank} of ${process.env.WORLD_SIZE} up`);
function start(role) {
  const port = role.listen.http;
  console.log('listening on', port);
  setTimeout(() => console.log('bye'), 15000);
}
setTimeout(() => start(roles[rank]), 500);
""",
        },
        wanted="Cannot read properties of undefined (reading 'http')",
        helpful=(r"worker\.js", r"roles\.json|listen"),
        misleading=(r"firewall|network|memory",),
    ),
    Gang(
        name="u-java-shuffle-npe",
        way="ranks are Java programs; one has a null partition",
        code="exception",
        rank=1,
        processes=2,
        command="java Shuffle.java",
        files={
            "Shuffle.java": """import java.util.*;

public class Shuffle {
    static Map<Integer, int[]> partitions = new HashMap<>();

    static int total(int rank) {
        int sum = 0;
        for (int v : partitions.get(rank)) sum += v;
        return sum;
    }

    public static void main(String[] args) throws Exception {
        int rank = Integer.parseInt(System.getenv("RANK"));
        partitions.put(0, new int[]{1, 2, 3});
        partitions.put(2, new int[]{7});
        System.out.println("[shuffle-" + rank + "] " + partitions.size() + " partitions known");
        System.out.println("[shuffle-" + rank + "] total " + total(rank));
        Thread.sleep(30000);
    }
}
"""
        },
        wanted=("NullPointerException",),
        helpful=(r"Shuffle\.java", r"partition|null"),
        misleading=(r"firewall|network|memory",),
    ),
]
