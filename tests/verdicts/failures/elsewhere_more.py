"""A second round of gangs with one rank elsewhere, written after the rules had been mended with the first."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended", "needed it", "had not ended")
TORCH = """\
import datetime, os, sys, time
import torch, torch.distributed as dist
me, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
soon = datetime.timedelta(seconds=8)

"""
PLAIN = """\
import http.server, json, logging, multiprocessing, os, pathlib, random, signal, socket, subprocess, sys, threading, time
import urllib.request
me, world, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""


def gang(name: str, script: str, rank: int | None, count: int = 4, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"apart-{name}",
        "code": "timeout",
        "also_codes": (),
        "command": "python -u fit.py",
        "files": {"fit.py": script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"fit\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def torchrun(name: str, script: str, rank: int | None, **more: object) -> Failure:
    command = "torchrun --standalone --nproc-per-node 4 fit.py"
    given: dict[str, object] = {"num_ranks": 4, "convention": "torchrun", "command": command}
    return gang(name, script, rank, 1, **{**given, **more})


WORLD_DIFFERS = (
    TORCH
    + """\
n = world + 1 if me == 2 else world
print(f"init {me}/{n}")
dist.init_process_group("gloo", rank=me, world_size=n, timeout=soon)
dist.barrier()
"""
)
FILE_STORE = (
    TORCH
    + """\
path = os.path.abspath("store-b" if me == 1 else "store-a")
print("init file", os.path.basename(path))
dist.init_process_group("gloo", init_method=f"file://{path}", rank=me, world_size=world, timeout=soon)
"""
)
KEY_NOT_SET = (
    TORCH
    + """\
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, me == 0, timeout=soon)
if me == 2:
    print("no vocabulary here")
else:
    store.set(f"vocab/{me}", "x")
for k in range(world):
    store.get(f"vocab/{k}")
print("merged")
"""
)
TORCH_SLEEPS = (
    TORCH
    + """\
dist.init_process_group("gloo")
for step in range(20):
    if me == 1 and step == 3:
        time.sleep(500)
    dist.all_reduce(torch.ones(1))
"""
)
TORCH_BROADCAST = (
    TORCH
    + """\
dist.init_process_group("gloo", timeout=soon)
t = torch.zeros(2)
for step in range(4):
    dist.all_reduce(t)
    if step == 2:
        dist.broadcast(t, src=0) if me == 2 else dist.barrier()
print("over")
"""
)
TORCHRUN_HANGS = (
    TORCH
    + """\
dist.init_process_group("gloo", timeout=soon)
def find_best():
    best = 0
    while me == 2:
        best = best * 31 % 1009
    return best
find_best()
dist.barrier()
"""
)
MPI_RECV = """\
from mpi4py import MPI
import time
comm = MPI.COMM_WORLD
me = comm.rank
for k in range(5):
    print("block", k, flush=True)
    if me == 2 and k == 3:
        time.sleep(300)
    comm.sendrecv(k, dest=(me + 1) % comm.size, source=(me - 1) % comm.size)
"""
MPI_TAG = """\
from mpi4py import MPI
comm = MPI.COMM_WORLD
me = comm.rank
if me == 0:
    for other in range(1, comm.size):
        comm.recv(source=other, tag=7)
        print("got", other, flush=True)
else:
    comm.ssend("part", dest=0, tag=8 if me == 2 else 7)
comm.Barrier()
"""
TAKES_PORT = (
    PLAIN
    + """\
if me == 2:
    board = socket.create_server(("127.0.0.1", port))
    print(f"progress page on http://127.0.0.1:{port}/", flush=True)
time.sleep(1 if me != 2 else 0)
if me == 0:
    hub = socket.create_server(("127.0.0.1", port))
time.sleep(15)
"""
)
ALL_ONE_PORT = (
    PLAIN
    + """\
time.sleep(me * 0.3)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port + 100 + me % 3), http.server.SimpleHTTPRequestHandler)
print("profiler is up")
time.sleep(15)
"""
)
WAITS_FOR_CHILD = (
    PLAIN
    + """\
def augment(k):
    if me == 1 and k == 5:
        while True:
            pass
def step_barrier(k):
    open(f"s{k}-{me}", "w").close()
    while sum(os.path.exists(f"s{k}-{other}") for other in range(world)) < world:
        time.sleep(0.03)
if __name__ == "__main__":
    for k in range(8):
        child = multiprocessing.Process(target=augment, args=(k,), daemon=True)
        child.start()
        child.join()
        step_barrier(k)
"""
)
TWO_LEADERS = (
    PLAIN
    + """\
if me in (0, 3):
    desk = socket.create_server(("127.0.0.1", port if me == 0 else 0))
    guests = [desk.accept() for _ in range(world - 1)]
else:
    while True:
        try:
            desk = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.05)
    desk.recv(10)
"""
)
NODE_WAITS = """\
const net = require('net');
const me = +process.env.RANK, world = +process.env.WORLD_SIZE, port = +process.env.MASTER_PORT;
console.log(`peer ${me} starts`);
if (me === 0) {
  let n = 0;
  net.createServer(c => { n++; c.on('error', () => {}); }).listen(port, '127.0.0.1');
  setTimeout(() => {
    if (n < world - 1) { console.error(`quorum not reached: ${n + 1}/${world}`); process.exit(9); }
  }, 3000);
} else if (me === 2) {
  console.log('reading the manifest from stdin');
  setInterval(() => {}, 1000);
} else {
  setTimeout(() => net.connect(port, '127.0.0.1').on('error', () => {}), 500);
  setInterval(() => {}, 1000);
}
"""
BASH_STAR = r"""#!/bin/bash
mkdir -p inbox
if [ "$RANK" = 0 ]; then
  for turn in $(seq 1 30); do
    have=$(ls inbox | wc -l)
    [ "$have" -ge $((WORLD_SIZE - 1)) ] && exit 0
    sleep 0.1
  done
  echo "collector: $(ls inbox | tr '\n' ' ')- too few, stopping" >&2
  exit 4
fi
if [ "$RANK" = 3 ]; then
  echo "md5 of part 3 does not fit, not delivered"
  sleep 60
fi
echo ok > "inbox/part-$RANK"
sleep 60
"""
PERL_LEAVES = r"""
use IO::Socket::INET;
$| = 1;
my ($me, $n, $port) = @ENV{qw(RANK WORLD_SIZE MASTER_PORT)};
if ($me == 0) {
  my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 9, ReuseAddr => 1) or die;
  my @kids;
  push @kids, scalar $s->accept for 1 .. $n - 1;
  for my $round (1 .. 50) {
    for my $k (@kids) { my $line = <$k>; defined $line or die "client gone in round $round\n"; }
    print "round $round\n";
  }
} else {
  my $c;
  for (1 .. 60) { $c = IO::Socket::INET->new("127.0.0.1:$port") and last; select undef, undef, undef, 0.1; }
  for my $round (1 .. 50) {
    if ($me == 2 && $round == 5) { print "bad checksum in block 5\n"; exit 0 }
    print $c "x\n";
    print "sent $round\n";
    select undef, undef, undef, 0.1;
  }
}
"""
ELECTS = (
    PLAIN
    + """\
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
chief = 2 if me == 1 else 0
logging.info("chief is %d", chief)
pathlib.Path("in").mkdir(exist_ok=True)
if me == chief:
    end = time.monotonic() + 3
    while len(list(pathlib.Path("in").glob(f"to{me}-*"))) < world - 1:
        if time.monotonic() > end:
            logging.error("not everybody reported")
            sys.exit(1)
        time.sleep(0.05)
else:
    pathlib.Path(f"in/to{chief}-{me}").touch()
    time.sleep(30)
"""
)
HANDLER_SLEEPS = (
    PLAIN
    + """\
class Board(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/weights":
            time.sleep(60)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *args):
        pass
if me == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Board).serve_forever()
time.sleep(1)
print("status", urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=3).read())
print("weights", len(urllib.request.urlopen(f"http://127.0.0.1:{port}/weights", timeout=3).read()))
"""
)
ZMQ_PULL = (
    PLAIN
    + """\
import zmq
context = zmq.Context()
if me == 0:
    sink = context.socket(zmq.PULL)
    sink.bind(f"tcp://127.0.0.1:{port}")
    sink.setsockopt(zmq.RCVTIMEO, 3000)
    parts = {}
    while len(parts) < world - 1:
        who, value = sink.recv_pyobj()
        parts[who] = value
        print("part of", who)
else:
    out = context.socket(zmq.PUSH)
    out.connect(f"tcp://127.0.0.1:{port if me != 2 else port + 2}")
    out.send_pyobj((me, me * me))
    time.sleep(20)
"""
)
ZMQ_KIND = (
    PLAIN
    + """\
import zmq
context = zmq.Context()
if me == 0:
    sink = context.socket(zmq.PULL)
    sink.bind(f"tcp://127.0.0.1:{port}")
    total = 0
    for _ in range(world - 1):
        part = sink.recv_json()
        total += part["grad"]
else:
    out = context.socket(zmq.PUSH)
    out.connect(f"tcp://127.0.0.1:{port}")
    grad = [0.5] if me == 3 else 0.5
    print(f"grad {grad}")
    out.send_json({"from": me, "grad": grad})
    time.sleep(20)
"""
)
STATUS_ROW = (
    PLAIN
    + """\
def fetch():
    if me == 1:
        print("quota of the bucket is used up", file=sys.stderr)
        return 1
    return 0
pathlib.Path(f"rc.{me}").write_text(str(fetch()))
while len(list(pathlib.Path(".").glob("rc.*"))) < world:
    time.sleep(0.05)
time.sleep(0.2)
codes = [pathlib.Path(f"rc.{k}").read_text() for k in range(world)]
if any(code != "0" for code in codes):
    print("fetch status", " ".join(codes))
    sys.exit(5)
"""
)
LOSS_DIFFERS = (
    PLAIN
    + """\
value = 0.25 if me != 2 else 0.75
print(f"initial loss {value}")
pathlib.Path(f"loss.{me}").write_text(str(value))
while len(list(pathlib.Path(".").glob("loss.*"))) < world:
    time.sleep(0.05)
time.sleep(0.2)
all_of = [float(pathlib.Path(f"loss.{k}").read_text()) for k in range(world)]
assert len(set(all_of)) == 1, all_of
"""
)
MEETS = """\
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
"""
OTHER_ID = (
    'torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id "trial-$((7 + NODE_RANK))" '
    '--rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" fit.py'
)
MPIRUN = "mpirun --allow-run-as-root --oversubscribe -np 4 python -u fit.py"
MET = ("rendezvous",)
FAILURES = [
    gang("world-differs", WORLD_DIFFERS, 2, code="rendezvous", also_codes=("collective",), wanted=("init 2/5", *HUNG)),
    gang("file-store", FILE_STORE, 1, code="rendezvous", wanted=("store-b", *HUNG)),
    gang("key-not-set", KEY_NOT_SET, 2, 3, code="collective", also_codes=MET, wanted=("no vocabulary here", "vocab/2")),
    gang("torch-sleeps", TORCH_SLEEPS, 1, 3, limit_s=15),
    gang("torch-broadcast", TORCH_BROADCAST, 2, code="collective", wanted=("broadcast", *HUNG)),
    torchrun("torchrun-hangs", TORCHRUN_HANGS, 2, code="collective", also_codes=("timeout",)),
    torchrun("torchrun-limit", TORCHRUN_HANGS.replace("=soon", "=None"), 2, limit_s=20),
    gang(
        "torchrun-other-id",
        MEETS,
        None,
        2,
        nodes=2,
        num_ranks=4,
        also=(0, 1, 2, 3),
        code="rendezvous",
        also_codes=("timeout",),
        convention="torchrun",
        limit_s=15,
        wanted=("time limit", *HUNG),
        command=OTHER_ID,
        helpful=("rdzv", "rendezvous"),
    ),
    gang("mpi-ring-sleeps", MPI_RECV, 2, convention="mpi", limit_s=10),
    gang("mpi-other-tag", MPI_TAG, 2, convention="mpi", limit_s=10, also_codes=("collective",)),
    gang("mpirun-ring-sleeps", MPI_RECV, 2, 1, num_ranks=4, convention="mpirun", limit_s=10, command=MPIRUN),
    gang("takes-port", TAKES_PORT, 2, code="port_trouble", wanted="Address already in use"),
    gang("all-one-port", ALL_ONE_PORT, 3, code="port_trouble", wanted="Address already in use"),
    gang("waits-for-child", WAITS_FOR_CHILD, 1, limit_s=5),
    gang("two-leaders", TWO_LEADERS, 3, limit_s=5, also_codes=MET),
    gang(
        "node-quorum",
        "",
        2,
        code="rendezvous",
        also_codes=("exit_code",),
        command="node peers.js",
        files={"peers.js": NODE_WAITS},
        wanted=("quorum not reached", "manifest"),
    ),
    gang(
        "bash-collector",
        "",
        3,
        code="exit_code",
        also_codes=("collective",),
        command="./star.sh",
        files={"star.sh": BASH_STAR},
        wanted=("md5 of part 3 does not fit", "too few"),
    ),
    gang(
        "perl-client-leaves",
        "",
        2,
        code="collective",
        also_codes=("exit_code",),
        command="perl round.pl",
        files={"round.pl": PERL_LEAVES},
        wanted=("bad checksum in block 5", *HUNG),
        helpful=("rank 2", "checksum"),
    ),
    gang(
        "elects",
        ELECTS,
        1,
        code="exit_code",
        also_codes=("collective", "rendezvous"),
        wanted=("not everybody reported", "chief is 2"),
    ),
    gang("handler-sleeps", HANDLER_SLEEPS, 0, 3, code="collective", also_codes=("exception", "timeout")),
    gang(
        "zmq-other-port",
        ZMQ_PULL,
        2,
        code="rendezvous",
        also_codes=("collective", "exception"),
        wanted=("Again", *HUNG),
    ),
    gang("zmq-list-sent", ZMQ_KIND, 3, code="exception", wanted="TypeError: unsupported operand"),
    gang("status-row", STATUS_ROW, 1, code="exit_code", wanted=("quota of the bucket is used up", "status 0 1 0 0")),
    gang("loss-differs", LOSS_DIFFERS, 2, code="exception", wanted="AssertionError"),
]
