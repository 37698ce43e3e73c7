"""Gangs in which one rank is somewhere else: at a time limit, at another address, in another call, or gone."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended", "needed it", "had not ended")
SET_UP = """\
import asyncio, fcntl, http.client, http.server, json, logging, mmap, os, pathlib, pickle, queue, re, select, signal
import socket, sqlite3, struct, subprocess, sys, threading, time, urllib.error, urllib.request
from multiprocessing.managers import BaseManager
R, N, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""
HUB = """\
def lines(conn):
    return conn.makefile("rwb", buffering=0)

def open_hub(port=PORT, seconds=None):
    door = socket.create_server(("127.0.0.1", port))
    door.settimeout(seconds)
    seats = {}
    while len(seats) < N - 1:
        pipe = lines(door.accept()[0])
        seats[int(pipe.readline())] = pipe
    return seats

def dial(port=PORT, host="127.0.0.1", tries=100):
    for left in range(tries, 0, -1):
        try:
            pipe = lines(socket.create_connection((host, port)))
            pipe.write(b"%d\\n" % R)
            return pipe
        except ConnectionRefusedError:
            if left == 1:
                raise
            time.sleep(0.05)

"""
MARKS = """\
def everybody(tag):
    box = pathlib.Path("marks")
    box.mkdir(exist_ok=True)
    (box / f"{tag}.{R}").touch()
    while len(list(box.glob(f"{tag}.*"))) < N:
        time.sleep(0.05)

"""


def gang(name: str, script: str, rank: int | None, count: int = 4, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"elsewhere-{name}",
        "code": "timeout",
        "also_codes": (),
        "command": "python -u work.py",
        "files": {"work.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"work\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


def late(name: str, script: str, rank: int | None, count: int = 4, **more: object) -> Failure:
    return gang(name, script, rank, count, **{"limit_s": 4, **more})


LOCKED = """\
handle = open("cache.lock", "w")
if R != 2:
    time.sleep(0.5)
fcntl.flock(handle, fcntl.LOCK_EX)
print("tokenising", flush=True)
if R == 2:
    while not os.path.exists("vocab.bin"):
        time.sleep(0.1)
fcntl.flock(handle, fcntl.LOCK_UN)
"""
EMPTY_QUEUE = (
    MARKS
    + """\
def batches():
    box = queue.Queue()
    for k in range(6 if R != 1 else 5):
        box.put(k)
    for _ in range(6):
        yield box.get()

for batch in batches():
    print(f"[{R}] batch {batch}")
    everybody(f"b{batch}")
"""
)
BACKTRACKS = (
    MARKS
    + """\
line = "a" * 40 + "!" if R == 3 else "aaaa"
everybody("begin")
def clean(text):
    return re.match(r"(a+)+$", text)
clean(line)
everybody("cleaned")
"""
)
NO_ADVANCE = (
    HUB
    + """\
def parse(blob):
    at, found = 0, []
    while at < len(blob):
        size = blob[at]
        found.append(blob[at + 1 : at + size])
        at += size
    return found

if R == 0:
    seats = open_hub()
    head = parse(bytes([3, 1, 2, 0, 9]))
    for pipe in seats.values():
        pipe.write(b"go\\n")
else:
    pipe = dial()
    print("asking for the header")
    assert pipe.readline() == b"go\\n"
"""
)
METADATA = """\
quiet = socket.create_server(("127.0.0.1", 0))
def zone():
    with socket.create_connection(quiet.getsockname()) as conn:
        conn.sendall(b"GET /zone\\r\\n\\r\\n")
        return conn.recv(100)

print("node check")
if R == 2:
    zone()
pathlib.Path(f"ok-{R}").touch()
for other in range(N):
    while not os.path.exists(f"ok-{other}"):
        time.sleep(0.1)
"""
FIFO = (
    MARKS
    + """\
print(f"{R}: setting up")
if R == 1:
    os.mkfifo("answers")
    with open("answers") as given:
        choice = given.read()
everybody("set-up")
"""
)
BACKS_OFF = (
    HUB
    + """\
def upload(part):
    pause = 1
    while True:
        if part != 3:
            return
        print(f"upload of part {part} refused with 429, next in {pause} s")
        time.sleep(pause)
        pause *= 4

if R == 0:
    seats = open_hub()
    upload(0)
    print("collecting")
    done = [pipe.readline() for pipe in seats.values()]
else:
    pipe = dial()
    upload(R)
    pipe.write(b"done\\n")
    pipe.readline()
"""
)
CHILD = """\
if R == 0:
    print("compiling the kernels")
    subprocess.run(["sleep", "300"], check=True)
    os.rename("kernels.tmp", "kernels.so")
while not os.path.exists("kernels.so"):
    time.sleep(0.2)
"""
THREAD = (
    MARKS
    + """\
stop = threading.Event()
writer = threading.Thread(target=stop.wait, daemon=True)
writer.start()
everybody("eval")
if R != 2:
    stop.set()
writer.join()
everybody("end")
"""
)
TWO_LOCKS = (
    MARKS
    + """\
first, second = threading.Lock(), threading.Lock()
def flush():
    with second:
        time.sleep(0.2)
        with first:
            pass
def log():
    with first:
        time.sleep(0.2 if R == 1 else 0)
        with second:
            pass
for step in range(3):
    print("step", step)
    if R == 1 and step == 1:
        threading.Thread(target=flush, daemon=True).start()
        time.sleep(0.05)
    log()
    everybody(f"s{step}")
"""
)
ALL_WORK = """\
k = 0
while True:
    k += 1
    sum(range(100_000))
    if k % 50 == 0:
        print("iteration", k)
"""
ONE_SLOW = """\
for epoch in range(1, 6):
    time.sleep(0.05 if R != 2 else 2.5)
    print(f"epoch {epoch} done")
"""
SHELL_WAITS = r"""#!/bin/bash
echo "worker $RANK up"
if [ "$RANK" = 2 ]; then
  echo "copying the index"
  sleep 300
fi
touch "ready.$RANK"
until [ "$(ls ready.* 2>/dev/null | wc -l)" -eq "$WORLD_SIZE" ]; do sleep 0.1; done
echo "all here"
"""
WORLD_OF_FIVE = (
    HUB
    + """\
size = 5 if R == 2 else N
print(f"joining as {R} of {size}")
if R == 0:
    seats = open_hub()
    sizes = {seat: int(pipe.readline()) for seat, pipe in sorted(seats.items())}
    if set(sizes.values()) != {N}:
        raise RuntimeError(f"cannot form a group of {N}: {sizes}")
pipe = dial()
pipe.write(b"%d\\n" % size)
pipe.readline()
"""
)
PORT_ABOVE = (
    HUB
    + """\
port = PORT + 1 if R == 1 else PORT
if R == 0:
    seats = open_hub(seconds=3)
pipe = dial(port, tries=2000)
pipe.readline()
"""
)
OTHER_INTERFACE = (
    HUB
    + """\
hosts = json.loads(pathlib.Path("hosts.json").read_text())
print("head node:", hosts[R])
if R == 0:
    seats = open_hub()
    for pipe in seats.values():
        pipe.write(b"start\\n")
else:
    assert dial(host=hosts[R], tries=40).readline() == b"start\\n"
"""
)
SAME_SEAT = (
    HUB
    + """\
def seat():
    return 1 if R == 2 else R
print("seat", seat())
if R == 0:
    door = socket.create_server(("127.0.0.1", PORT))
    taken = {}
    for _ in range(N - 1):
        pipe = lines(door.accept()[0])
        pipe.readline()
        number = int(pipe.readline())
        if number in taken:
            raise SystemExit(f"seat {number} asked for a second time")
        taken[number] = pipe
pipe = dial()
pipe.write(b"%d\\n" % seat())
pipe.readline()
"""
)
HUB_ELSEWHERE = (
    HUB
    + """\
if R == 0:
    seats = open_hub(PORT + 7)
    print("everybody is here")
else:
    dial(tries=30).readline()
"""
)
LEADER_LEAVES = (
    HUB
    + """\
rounds = 3 if R == 0 else 8
if R == 0:
    seats = open_hub()
    for k in range(rounds):
        total = sum(int(pipe.readline()) for pipe in seats.values())
        for pipe in seats.values():
            pipe.write(b"%d\\n" % total)
    print("schedule finished")
else:
    pipe = dial()
    for k in range(rounds):
        pipe.write(b"%d\\n" % k)
        print("round", k, "mean", int(pipe.readline()) / N)
"""
)
HANDLER_FAILS = """\
class Desk(http.server.BaseHTTPRequestHandler):
    plan = {"1": [1, 2], "2": [3]}
    def do_GET(self):
        share = json.dumps(self.plan[self.path.strip("/")]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(share)))
        self.end_headers()
        self.wfile.write(share)
    def log_message(self, *args):
        pass

if R == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Desk).serve_forever()
time.sleep(1)
with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{R}") as answer:
    print("my share:", json.load(answer))
time.sleep(20)
"""
BAD_REQUEST = """\
class Desk(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            json.loads(body)["loss"]
            self.send_response(204)
        except KeyError:
            self.send_response(422)
        self.end_headers()
    def log_message(self, text, *args):
        print(text % args, flush=True)

if R == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Desk).serve_forever()
time.sleep(1)
for k in range(40):
    report = {"los": 1.0} if R == 2 and k == 4 else {"loss": 1.0}
    urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", json.dumps(report).encode())
    time.sleep(0.1)
"""
SHORT_SHARD = (
    HUB
    + """\
rows = 7 if R == 3 else 10
if R == 0:
    seats = open_hub()
    for k in range(rows):
        said = {seat: pipe.readline().decode().strip() for seat, pipe in seats.items()}
        for seat, word in said.items():
            if not word.startswith("grad"):
                raise RuntimeError(f"wanted grad {k} from every worker, {seat} sent {word!r}")
        for pipe in seats.values():
            pipe.write(b"ok\\n")
else:
    pipe = dial()
    for k in range(rows):
        pipe.write(b"grad %d\\n" % k)
        pipe.readline()
    pipe.write(b"validate\\n")
    pipe.readline()
"""
)
OTHER_CALL = (
    HUB
    + """\
def call(pipe, op):
    pipe.write(op.encode() + b"\\n")
    return pipe.readline()
if R == 0:
    seats = open_hub()
    while True:
        ops = {0: "reduce"} | {seat: pipe.readline().decode().strip() for seat, pipe in seats.items()}
        if len(set(ops.values())) > 1:
            groups = {op: sorted(s for s in ops if ops[s] == op) for op in set(ops.values())}
            raise RuntimeError(f"collectives out of order: {dict(sorted(groups.items()))}")
        for pipe in seats.values():
            pipe.write(b"0\\n")
pipe = dial()
for k in range(9):
    call(pipe, "reduce")
    if R == 1 and k == 4:
        call(pipe, "bcast")
"""
)
SMALL_FRAME = (
    HUB
    + """\
kind = "<f" if R == 2 else "<d"
print("sending", struct.calcsize(kind), "bytes each step")
if R == 0:
    seats = open_hub()
    for k in range(5):
        values = [struct.unpack("<d", pipe.read(8))[0] for seat, pipe in sorted(seats.items())]
        print("mean", sum(values) / N)
        for pipe in seats.values():
            pipe.write(b"ok\\n")
else:
    pipe = dial()
    for k in range(5):
        pipe.write(struct.pack(kind, k))
        pipe.readline()
"""
)
RING_SKIPS = """\
door = socket.create_server(("127.0.0.1", PORT + 10 + R))
time.sleep(0.6)
ahead = socket.create_connection(("127.0.0.1", PORT + 10 + (R + 1) % N))
behind, _ = door.accept()
for lap in range(6):
    if R == 0:
        ahead.sendall(b"x")
    behind.recv(1)
    print("lap", lap)
    if R == 2 and lap == 3:
        print("loss is nan, nothing to pass on")
    elif R:
        ahead.sendall(b"x")
"""
STAGE_ENDS = """\
door = socket.create_server(("127.0.0.1", PORT + 20 + R))
time.sleep(0.6)
onward = socket.create_connection(("127.0.0.1", PORT + 20 + R + 1)) if R < N - 1 else None
source = door.accept()[0].makefile("rb") if R else None
for micro in range(40):
    data = source.readline() if source else b"act\\n"
    if R == 1 and micro == 5:
        sys.exit()
    if not data:
        raise EOFError(f"stage {R}: input ended at microbatch {micro}")
    if onward:
        onward.sendall(data)
    time.sleep(0.1)
"""
OTHER_FOLDER = """\
box = pathlib.Path("sync/run-7" if R != 1 else "sync/run-1")
print("meeting in", box)
box.mkdir(parents=True, exist_ok=True)
(box / str(R)).touch()
end = time.monotonic() + (3 if R != 1 else 60)
while len(found := sorted(p.name for p in box.iterdir())) < N:
    if time.monotonic() > end:
        raise TimeoutError(f"start-up: {len(found)} marks, needed {N}")
    time.sleep(0.05)
"""
WRONG_KEY = """\
class Board(BaseManager):
    pass
jobs = queue.Queue()
Board.register("jobs", callable=lambda: jobs)
key = b"secret" if R != 3 else b"secert"
if R == 0:
    Board(("127.0.0.1", PORT), key).get_server().serve_forever()
time.sleep(1)
board = Board(("127.0.0.1", PORT), key)
board.connect()
board.jobs().get()
"""
TRANSACTION = """\
book = sqlite3.connect("trials.db", timeout=2 if R != 2 else 30, isolation_level=None)
if R == 2:
    book.execute("create table trials (n)")
    book.execute("begin exclusive")
    print("tuning the first trial before it is written")
    time.sleep(100)
time.sleep(1)
book.execute("insert into trials values (?)", (R,))
"""
GOES_IDLE = (
    MARKS
    + """\
def everybody_within(tag, seconds):
    box = pathlib.Path("marks")
    box.mkdir(exist_ok=True)
    (box / f"{tag}.{R}").touch()
    end = time.monotonic() + seconds
    while len(list(box.glob(f"{tag}.*"))) < N:
        if time.monotonic() > end:
            sys.exit(f"gave up at {tag}")
        time.sleep(0.05)

everybody("load")
try:
    labels = {"cat": 0}["dog" if R == 2 else "cat"]
except KeyError as error:
    print(f"labels: {error!r}, this worker stays idle")
    time.sleep(100)
everybody_within("labels", 3)
"""
)
NOTHING_TO_DO = (
    MARKS.replace("while len", "end = time.monotonic() + 3\n    while len").replace(
        "time.sleep(0.05)",
        "time.sleep(0.05)\n        if time.monotonic() > end:\n            raise TimeoutError(tag)",
    )
    + """\
everybody("plan")
mine = list(range(R, 3, N))
if not mine:
    print("no files for me")
    os._exit(0)
everybody("after")
"""
)
STOPPED = (
    HUB
    + """\
if R == 0:
    door = socket.create_server(("127.0.0.1", PORT))
    door.settimeout(20)
    seats = [door.accept()[0] for _ in range(N - 1)]
    for k in range(100):
        for conn in seats:
            conn.settimeout(2)
            conn.recv(1)
else:
    for _ in range(100):
        try:
            conn = socket.create_connection(("127.0.0.1", PORT))
            break
        except OSError:
            time.sleep(0.05)
    for k in range(100):
        if R == 3 and k == 10:
            os.kill(os.getpid(), signal.SIGSTOP)
        conn.sendall(b"x")
        time.sleep(0.1)
"""
)
SLOW_EXIT = (
    HUB
    + """\
if R == 0:
    seats = open_hub()
    while True:
        for seat, pipe in seats.items():
            if not pipe.readline():
                raise ConnectionError("a worker hung up")
pipe = dial()
for k in range(30):
    pipe.write(b"tick\\n")
    if R == 2 and k == 6:
        print("checkpoint dir is read-only, giving up", file=sys.stderr)
        pipe.close()
        del pipe
        import gc; gc.collect()
        time.sleep(0.3)
        sys.exit(3)
    time.sleep(0.1)
"""
)
METRICS_PORT = """\
if R == 1:
    time.sleep(0.5)
listener = socket.create_server(("127.0.0.1", PORT + 50 + (0 if R in (0, 1) else R)))
print(f"metrics at {listener.getsockname()[1]}")
time.sleep(20)
"""
THREAD_DIES = (
    MARKS
    + """\
ready = queue.Queue(2)
def produce():
    for k in range(10):
        ready.put([1, 2, 3][k % 3 if R != 1 or k < 5 else 7])
threading.Thread(target=produce, daemon=True).start()
for k in range(10):
    ready.get()
    everybody(f"k{k}")
"""
)
HALF_WRITTEN = """\
def write(path):
    try:
        rows = [1 / (R - 2) for _ in range(3)] if R == 2 else [1, 2]
        path.write_text(json.dumps(rows))
    except ArithmeticError as error:
        print(f"part {R} not computed: {error}")
        path.write_text("")

write(pathlib.Path(f"part_{R}.json"))
if R:
    time.sleep(20)
time.sleep(1)
parts = [json.loads(pathlib.Path(f"part_{k}.json").read_text()) for k in range(N)]
"""
ALARM = (
    HUB
    + """\
if R == 0:
    seats = open_hub()
    while all(pipe.readline() for pipe in seats.values()):
        pass
    raise EOFError("one of the clients is gone")
pipe = dial()
if R == 1:
    signal.setitimer(signal.ITIMER_REAL, 1)
for k in range(60):
    pipe.write(b"k\\n")
    time.sleep(0.1)
"""
)
BEACON = """\
box = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if R == 0:
    box.bind(("127.0.0.1", PORT))
    box.settimeout(3)
    heard = set()
    try:
        while len(heard) < N - 1:
            heard.add(int(box.recv(20)))
    except TimeoutError:
        sys.exit(f"discovery is over, beacons of {sorted(heard)}")
for _ in range(100):
    box.sendto(b"%d" % R, ("127.0.0.1", PORT if R != 2 else PORT - 1))
    time.sleep(0.1)
"""
OLD_PROTOCOL = (
    HUB
    + """\
if R == 0:
    door = socket.create_server(("127.0.0.1", PORT))
    door.settimeout(3)
    seats = {}
    while len(seats) < N - 1:
        conn, source = door.accept()
        pipe = lines(conn)
        number, version = int(pipe.readline()), pipe.readline().strip()
        if version != b"3":
            print("dropping a client with protocol", version.decode())
            conn.close(); pipe.close()
            continue
        seats[number] = pipe
pipe = dial()
version = 2 if R == 3 else 3
print("client speaks protocol", version)
pipe.write(b"%d\\n" % version)
if not pipe.readline():
    time.sleep(30)
"""
)
EVENT = """\
async def main():
    go = asyncio.Event()
    async def ready():
        if R == 1:
            await go.wait()
        pathlib.Path(f"r{R}").touch()
        while not all(os.path.exists(f"r{k}") for k in range(N)):
            await asyncio.sleep(0.05)
    await (ready() if R == 1 else asyncio.wait_for(ready(), 3))
asyncio.run(main())
"""
COUNTER = """\
with open("count.bin", "ab") as f:
    pass
if os.path.getsize("count.bin") < 64:
    with open("count.bin", "wb") as f:
        f.write(bytes(64))
time.sleep(0.5)
board = mmap.mmap(os.open("count.bin", os.O_RDWR), 64)
def wait_all(phase, needed):
    board[phase * 8 + R] = 1
    while sum(board[phase * 8 : phase * 8 + 8]) < needed:
        time.sleep(0.02)
wait_all(0, N)
print(f"phase 0 over, {N if R != 2 else N + 1} in the group")
wait_all(1, N if R != 2 else N + 1)
wait_all(2, N)
"""
POOL = (
    MARKS
    + """\
from concurrent.futures import ThreadPoolExecutor
def fetch(k):
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.accept() if R == 0 and k == 3 else k
with ThreadPoolExecutor(4) as pool:
    got = list(pool.map(fetch, range(6)))
everybody("fetched")
"""
)
FAILURES = [
    late("file-lock", LOCKED, 2),
    late("empty-queue", EMPTY_QUEUE, 1),
    late("backtracking", BACKTRACKS, 3),
    late("no-advance", NO_ADVANCE, 0),
    late("metadata-service", METADATA, 2),
    late("fifo", FIFO, 1, 3),
    late("backs-off", BACKS_OFF, 3),
    late("child-of-first", CHILD, 0),
    late("thread-not-joined", THREAD, 2),
    late("two-locks", TWO_LOCKS, 1),
    late("all-work", ALL_WORK, None, 3, wanted=("time limit",), helpful=("timeout", "longer")),
    late("one-slow", ONE_SLOW, 2),
    late("shell-copies", "", 2, command="./go.sh", files={"go.sh": SHELL_WAITS}, helpful=(r"rank 2\b", r"copying")),
    gang("world-of-five", WORLD_OF_FIVE, 2, code="rendezvous", also_codes=("exception",), wanted="cannot form a group"),
    gang("port-above", PORT_ABOVE, 1, code="rendezvous", wanted=("timed out", *HUNG)),
    gang(
        "other-interface",
        OTHER_INTERFACE,
        3,
        code="rendezvous",
        also_codes=("exception",),
        wanted=("Connection refused", "127.0.0.9"),
        files={
            "work.py": SET_UP + OTHER_INTERFACE,
            "hosts.json": '["127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.9"]',
        },
    ),
    gang(
        "same-seat",
        SAME_SEAT,
        2,
        code="rendezvous",
        also_codes=("exit_code", "exception"),
        wanted="asked for a second time",
    ),
    gang("hub-elsewhere", HUB_ELSEWHERE, 0, code="rendezvous", also_codes=("exception",), wanted="Connection refused"),
    gang("leader-leaves", LEADER_LEAVES, 0, code="collective", also_codes=("exception",), wanted=HUNG),
    gang("handler-fails", HANDLER_FAILS, 0, code="exception", wanted="KeyError: '3'"),
    gang("bad-request", BAD_REQUEST, 2, code="exception", wanted="HTTP Error 422"),
    gang("short-shard", SHORT_SHARD, 3, code="collective", also_codes=("exception",), wanted="3 sent 'validate'"),
    gang("other-call", OTHER_CALL, 1, code="collective", also_codes=("exception",), wanted="collectives out of order"),
    gang("small-frame", SMALL_FRAME, 2, code="exception", wanted="unpack requires a buffer of 8 bytes"),
    late("ring-skips", RING_SKIPS, 2, also_codes=("collective",), wanted=("nothing to pass on", *HUNG)),
    gang("stage-ends", STAGE_ENDS, 1, code="collective", also_codes=("exception",)),
    gang("other-folder", OTHER_FOLDER, 1, code="rendezvous", wanted=("3 marks, needed 4", "sync/run-1")),
    gang("wrong-key", WRONG_KEY, 3, code="exception", wanted="AuthenticationError"),
    gang("transaction", TRANSACTION, 2, code="exception", wanted="database is locked"),
    gang("goes-idle", GOES_IDLE, 2, code="exception", also_codes=("collective",), wanted="KeyError('dog')"),
    gang("nothing-to-do", NOTHING_TO_DO, 3, code="collective", wanted=HUNG),
    gang("stopped", STOPPED, 3, code="collective", wanted=HUNG),
    gang("slow-exit", SLOW_EXIT, 2, code="exit_code", wanted="checkpoint dir is read-only"),
    gang("metrics-port", METRICS_PORT, 1, code="port_trouble", wanted="Address already in use"),
    late("thread-dies", THREAD_DIES, 1, code="exception", wanted="IndexError: list index out of range"),
    gang("half-written", HALF_WRITTEN, 2, code="exception", wanted=("part 2 not computed", "division by zero")),
    gang("alarm", ALARM, 1, code="signal", wanted=("SIGALRM",)),
    gang("beacon", BEACON, 2, code="rendezvous", also_codes=("exit_code",), wanted=("beacons of [1, 3]", *HUNG)),
    gang("old-protocol", OLD_PROTOCOL, 3, code="rendezvous", wanted=("protocol 2", *HUNG)),
    gang("event-never-set", EVENT, 1, code="collective", also_codes=("timeout",), wanted=HUNG),
    late("counter", COUNTER, 2, wanted=("5 in the group", *HUNG)),
    late("pool", POOL, 0),
]
