"""A second round of gangs, written after the rules had been mended with the first: other words, other ways to meet."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended", "needed it")
SET_UP = """\
import asyncio, collections, concurrent.futures, ctypes, csv, hashlib, http.client, http.server, json, logging, os, pathlib
import pickle, queue, random, resource, select, selectors, signal, socket, socketserver, struct, subprocess, sys, tempfile
import threading, time, traceback, urllib.request
ME, ALL, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

"""


def gang(name: str, script: str, rank: int | None, count: int = 4, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"again-{name}",
        "code": "exception",
        "also_codes": (),
        "command": "python -u job.py",
        "files": {"job.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


JSON_LINES = """\
class Line:
    def __init__(self, sock):
        self.sock, self.file = sock, sock.makefile("rw")
    def say(self, **what):
        self.file.write(json.dumps(what) + "\\n")
        self.file.flush()
    def hear(self):
        text = self.file.readline()
        if not text:
            raise ConnectionError("the other side hung up")
        return json.loads(text)

def to_head():
    for _ in range(200):
        try:
            return Line(socket.create_connection(("127.0.0.1", PORT)))
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit("head node never opened its port")

def all_lines():
    server = socket.create_server(("127.0.0.1", PORT))
    found = {}
    while len(found) < ALL - 1:
        line = Line(server.accept()[0])
        found[line.hear()["me"]] = line
    return found

"""

STEP_SKEW = (
    JSON_LINES
    + """\
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
if ME == 0:
    lines = all_lines()
    while True:
        at = {n: line.hear()["step"] for n, line in sorted(lines.items())}
        logging.info("progress %s", at)
        if max(at.values()) - min(at.values()) > 3:
            slow = min(at, key=at.get)
            logging.critical("straggler: %d is %d steps behind", slow, max(at.values()) - min(at.values()))
            sys.exit(70)
        for line in lines.values():
            line.say(go=True)
line = to_head()
line.say(me=ME)
step = 0
for tick in range(100):
    if ME != 2 or tick % 2:
        step += 1
    line.say(step=step)
    line.hear()
"""
)

QUORUM = """\
votes = pathlib.Path("votes")
votes.mkdir(exist_ok=True)
if ME == 1:
    logging.warning("no checkpoint in /scratch, voting for a fresh start")
(votes / f"{ME}.vote").write_text("fresh" if ME == 1 else "resume:1200")
while len(list(votes.iterdir())) < ALL:
    time.sleep(0.05)
time.sleep(0.3)
all_votes = {int(p.stem): p.read_text() for p in votes.iterdir()}
choice = collections.Counter(all_votes.values()).most_common()
if len(choice) > 1:
    raise RuntimeError(f"no agreement where to start: {dict(sorted(all_votes.items()))}")
"""

SELECT_LOOP = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    chosen = selectors.DefaultSelector()
    for n, line in lines.items():
        chosen.register(line.sock, selectors.EVENT_READ, n)
    last = dict.fromkeys(lines, time.monotonic())
    while True:
        for key, _ in chosen.select(0.5):
            lines[key.data].hear()
            last[key.data] = time.monotonic()
        quiet = [n for n, t in last.items() if time.monotonic() - t > 4]
        if quiet:
            print("quiet for 4 s:", *quiet, file=sys.stderr)
            os._exit(1)
line = to_head()
line.say(me=ME)
for k in range(500):
    line.say(k=k)
    if (ME, k) == (3, 6):
        subprocess.Popen(["sleep", "100"]).wait()
    time.sleep(0.2)
"""
)

HTTP_CHIEF = """\
class Chief(http.server.BaseHTTPRequestHandler):
    seen = {}
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["epoch"] != self.seen.setdefault("epoch", body["epoch"]):
            self.send_error(409, f"epoch {body['epoch']}, the others are at {self.seen['epoch']}")
            return
        self.send_response(200)
        self.end_headers()
    def log_message(self, *a):
        pass
if ME == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Chief).serve_forever()
time.sleep(1 + ME * 0.2)
body = json.dumps({"epoch": 7 if ME == 3 else 6}).encode()
print(f"trainer {ME} resumes")
urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/", body), timeout=10)
time.sleep(60)
"""

UNPICKLE = (
    JSON_LINES
    + """\
import base64
class Old:
    pass
if ME == 0:
    lines = all_lines()
    del Old
    for n, line in sorted(lines.items()):
        try:
            pickle.loads(base64.b64decode(line.hear()["blob"]))
        except AttributeError as error:
            raise TypeError(f"cannot read the state that {n} sent") from error
line = to_head()
line.say(me=ME)
line.say(blob=base64.b64encode(pickle.dumps(Old() if ME == 2 else {})).decode())
line.hear()
"""
)

LEASE = """\
lease = pathlib.Path("leader.json")
if ME == 0:
    for k in range(6):
        tmp = pathlib.Path(f"leader.{k}.tmp")
        tmp.write_text(json.dumps({"leader": 0, "until": time.time() + 2}))
        tmp.rename(lease)
        time.sleep(0.5)
    print("flushing metrics to the archive")
    time.sleep(500)
time.sleep(1)
while True:
    time.sleep(0.3 + ME / 10)
    left = json.loads(lease.read_text())["until"] - time.time()
    if left < -2:
        raise SystemExit("the leader's lease ran out 2 s ago and nobody renewed it")
"""

BARRIER_COUNT = """\
import fcntl
def arrive(name):
    with open(name, "a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write(f"{ME}\\n")
    deadline = time.time() + 5
    while True:
        here = open(name).read().split()
        if len(here) >= ALL:
            return
        if time.time() > deadline:
            print(f"barrier {name!r}: {len(here)} of {ALL} present ({' '.join(sorted(here))})")
            sys.exit(11)
        time.sleep(0.1)
arrive("warmup")
if ME == 1:
    while True:
        random.random()
arrive("epoch0")
"""

FUTURES = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = {pool.submit(line.hear): n for n, line in lines.items()}
        done, waiting = concurrent.futures.wait(jobs, timeout=5)
        if waiting:
            print("unfinished:", [jobs[j] for j in waiting])
            os._exit(4)
line = to_head()
line.say(me=ME)
if ME == 3:
    signal.sigwait([signal.SIGUSR1])
line.say(ok=1)
time.sleep(50)
"""
)

CHECKSUMS = """\
here = pathlib.Path("sums")
here.mkdir(exist_ok=True)
weights = bytes(1000) if ME != 2 else bytes(999) + b"x"
(here / f"r{ME}").write_text(hashlib.md5(weights).hexdigest()[:8])
while len(list(here.iterdir())) < ALL:
    time.sleep(0.05)
time.sleep(0.4)
sums = [(here / f"r{n}").read_text() for n in range(ALL)]
assert all(s == sums[0] for s in sums), "weights out of sync: " + " ".join(f"r{n}={s}" for n, s in enumerate(sums))
"""

PEER_VANISHES = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    for k in range(30):
        for n, line in lines.items():
            try:
                line.hear()
            except ConnectionError:
                print(f"peer {n} dropped the connection in round {k}")
                raise SystemExit(2)
        for line in lines.values():
            line.say(k=k)
line = to_head()
line.say(me=ME)
for k in range(30):
    line.say(k=k)
    line.hear()
    if (ME, k) == (1, 4):
        print("reached the last batch of my list")
        sys.exit(0)
"""
)

WRITER_MISSING = """\
out = pathlib.Path("ckpt")
out.mkdir(exist_ok=True)
if ME == 3 and not os.environ.get("WRITE_SHARDS"):
    print("WRITE_SHARDS is not set, nothing is written")
else:
    (out / f"shard{ME}of{ALL}.bin").write_bytes(b"x")
time.sleep(1)
if ME == 0:
    missing = [n for n in range(ALL) if not (out / f"shard{n}of{ALL}.bin").exists()]
    if missing:
        raise SystemExit(f"checkpoint is incomplete, shards missing: {missing}")
time.sleep(20)
"""

BIG_ENDIAN = """\
def connect():
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", PORT))
        except OSError:
            time.sleep(0.1)
if ME == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    for _ in range(ALL - 1):
        c, _a = server.accept()
        who, length = struct.unpack("!II", c.recv(8))
        if length > 1 << 20:
            raise MemoryError(f"frame of {length} bytes announced by {who}")
    sys.exit()
c = connect()
time.sleep(ME * 0.2)
c.sendall(struct.pack("!I", ME) + struct.pack("<I" if ME == 2 else "!I", 77))
time.sleep(30)
"""

RAISES_IN_CALLBACK = (
    JSON_LINES
    + """\
def on_batch(n):
    if (ME, n) == (2, 7):
        raise LookupError("augmentation 'cutmix' is not registered")
if ME == 0:
    lines = all_lines()
    while True:
        for line in lines.values():
            line.hear()
        for line in lines.values():
            line.say(go=1)
line = to_head()
line.say(me=ME)
for n in range(20):
    try:
        on_batch(n)
    finally:
        line.say(n=n)
        line.hear()
"""
)

ULIMIT = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    while True:
        for line in lines.values():
            line.hear()
line = to_head()
line.say(me=ME)
for k in range(20):
    if (ME, k) == (3, 4):
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
        cache = bytearray(3 << 30)
    line.say(k=k)
    time.sleep(0.1)
"""
)

EXIT_ALL_ONE_REASON = """\
flag = pathlib.Path("STOP")
def check():
    if flag.exists():
        print("stop flag found, leaving:", flag.read_text())
        sys.exit(40)
for step in range(100):
    check()
    if (ME, step) == (2, 5):
        flag.write_text("validation loss went up three times")
        print("early stopping was triggered here")
    time.sleep(0.1)
"""

REPLY_MISMATCH = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    for k in range(5):
        got = {n: line.hear()["shape"] for n, line in sorted(lines.items())}
        kinds = {tuple(s) for s in got.values()}
        if len(kinds) > 1:
            raise ValueError("cannot stack: " + "; ".join(f"{n} gave {tuple(s)}" for n, s in got.items()))
line = to_head()
line.say(me=ME)
for k in range(5):
    line.say(shape=[32, 10] if ME != 3 or k < 2 else [31, 10])
    time.sleep(0.1)
line.hear()
"""
)

TIME_LIMIT_RECV = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    for n, line in sorted(lines.items()):
        line.hear()
    print("all are here")
    sys.exit()
line = to_head()
line.say(me=ME)
if ME == 2:
    with open("/dev/zero", "rb") as f:
        while f.read(1 << 16):
            pass
line.say(ok=1)
line.hear()
"""
)

SOCKET_SERVER = """\
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        want = self.rfile.readline().decode().strip()
        table = {"alpha": 1, "beta": 2}
        self.wfile.write(f"{table[want]}\\n".encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
if ME == 0:
    Server(("127.0.0.1", PORT), Handler).serve_forever()
time.sleep(1)
with socket.create_connection(("127.0.0.1", PORT)) as c:
    c.sendall(f"{'gamma' if ME == 1 else 'alpha'}\\n".encode())
    value = int(c.makefile().readline())
time.sleep(20)
"""

TWO_REASONS = (
    JSON_LINES
    + """\
if ME == 0:
    lines = all_lines()
    try:
        while True:
            for line in lines.values():
                line.hear()
    except Exception as error:
        traceback.print_exc()
        print("coordinator: shutting everybody down")
        raise SystemExit(1)
line = to_head()
line.say(me=ME)
for k in range(50):
    if (ME, k) == (3, 5):
        raise ValueError("tokenizer.json: unexpected key 'added_tokens_v2'")
    line.say(k=k)
    time.sleep(0.05)
"""
)

WAIT_FOR_KEY = """\
import sqlite3
db = sqlite3.connect("kv.db", timeout=30, isolation_level=None)
db.execute("create table if not exists kv (k text primary key, v text)")
def put(k, v):
    db.execute("insert or replace into kv values (?, ?)", (k, v))
def get(k, patience=5):
    until = time.time() + patience
    while time.time() < until:
        row = db.execute("select v from kv where k = ?", (k,)).fetchone()
        if row:
            return row[0]
        time.sleep(0.1)
    raise KeyError(f"key {k} was not set in {patience} s")
put(f"addr/{ME}" if ME != 1 else "adr/1", f"10.0.0.{ME}")
for n in range(ALL):
    get(f"addr/{n}")
"""

DEADLOCK_LOCKS = """\
a, b = threading.Lock(), threading.Lock()
done = pathlib.Path("fin")
done.mkdir(exist_ok=True)
def first():
    with a:
        time.sleep(0.3)
        with b:
            pass
def second():
    with b:
        time.sleep(0.3)
        with a:
            pass
if ME == 2:
    t = [threading.Thread(target=f) for f in (first, second)]
    [x.start() for x in t]
    [x.join() for x in t]
(done / str(ME)).touch()
t0 = time.time()
while len(os.listdir(done)) < ALL:
    if time.time() - t0 > 5:
        raise TimeoutError("not everybody is done")
    time.sleep(0.1)
"""

FAILURES = [
    gang("step-skew", STEP_SKEW, 2, code="exit_code", wanted="straggler: 2 is 4 steps behind"),
    gang("quorum", QUORUM, 1, wanted="no agreement where to start"),
    gang(
        "select-loop", SELECT_LOOP, 3, code="collective", also_codes=("exit_code",), wanted=("quiet for 4 s: 3", *HUNG)
    ),
    gang("http-conflict", HTTP_CHIEF, 3, wanted=("409", "epoch 7, the others are at 6")),
    gang("unpickle", UNPICKLE, 2, wanted=("cannot read the state that 2 sent", "Can't get attribute 'Old'"), also=(0,)),
    gang("lease", LEASE, 0, code="collective", also_codes=("exit_code",), wanted=("lease ran out", *HUNG)),
    gang(
        "barrier-count",
        BARRIER_COUNT,
        1,
        code="collective",
        also_codes=("exit_code",),
        wanted=("3 of 4 present (0 2 3)", *HUNG),
    ),
    gang("futures", FUTURES, 3, code="collective", also_codes=("exit_code",), wanted=("unfinished: [3]", *HUNG)),
    gang("checksums", CHECKSUMS, 2, 5, wanted="weights out of sync"),
    gang(
        "peer-vanishes",
        PEER_VANISHES,
        1,
        code="collective",
        also_codes=("exit_code",),
        wanted=("peer 1 dropped the connection", "reached the last batch", *HUNG),
    ),
    gang(
        "writer-missing",
        WRITER_MISSING,
        3,
        code="exit_code",
        also_codes=("collective",),
        wanted=("shards missing: [3]", "WRITE_SHARDS is not set"),
    ),
    gang("big-endian", BIG_ENDIAN, 2, code="exception", also_codes=("host_oom",), wanted="bytes announced by 2"),
    gang("callback-finally", RAISES_IN_CALLBACK, 2, wanted="augmentation 'cutmix' is not registered"),
    gang("ulimit", ULIMIT, 3, 5, code="host_oom", wanted="MemoryError", helpful=(r"memory", r"job\.py")),
    gang(
        "stop-flag",
        EXIT_ALL_ONE_REASON,
        2,
        code="exit_code",
        also_codes=("exception",),
        wanted="validation loss went up three times",
    ),
    gang("stack-shapes", REPLY_MISMATCH, 3, wanted="3 gave (31, 10)"),
    gang("limit-recv", TIME_LIMIT_RECV, 2, code="timeout", limit_s=7.0, wanted=("limit",)),
    gang("socket-server", SOCKET_SERVER, 0, 3, also=(1,), wanted=("KeyError: 'gamma'", "invalid literal for int()")),
    gang("two-reasons", TWO_REASONS, 3, 5, wanted="unexpected key 'added_tokens_v2'"),
    gang("key-misspelt", WAIT_FOR_KEY, 1, also_codes=("collective",), wanted="key addr/1 was not set in 5 s"),
    gang("deadlock", DEADLOCK_LOCKS, 2, code="collective", also_codes=("exception",)),
]
