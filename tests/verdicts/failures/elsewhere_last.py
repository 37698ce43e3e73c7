"""A third round of gangs with one rank elsewhere: names instead of numbers, nodes that differ, hangs without a word."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended", "needed it", "had not ended")
BEGIN = """\
import atexit, json, os, pathlib, select, signal, socket, subprocess, sys, threading, time
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
NODE = int(os.environ["NODE_RANK"])

def reach(port=PORT, host="127.0.0.1", seconds=10.0):
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), 1)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)

"""


def gang(name: str, script: str, rank: int | None, count: int = 4, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"astray-{name}",
        "code": "timeout",
        "also_codes": (),
        "command": "python -u job.py",
        "files": {"job.py": BEGIN + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}\b", r"job\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


TABLE = """\
if RANK == 0:
    room = socket.create_server(("127.0.0.1", PORT))
    room.settimeout(3)
    seated = []
    try:
        while len(seated) < WORLD - 1:
            seated.append(room.accept()[0])
    except TimeoutError:
        sys.exit(f"{len(seated) + 1} of {WORLD} at the table")
"""
OTHER_NODE = (
    TABLE
    + """\
door = int(os.environ.get("DOOR") or PORT) + NODE
reach(door, seconds=60).recv(1)
"""
)
LATE_NODE = (
    TABLE
    + """\
if NODE == 1:
    print("waiting for the image to be pulled")
    time.sleep(60)
reach().recv(1)
"""
)
FULL_PIPE = """\
def flag(name):
    pathlib.Path(f"{name}.{RANK}").touch()
    while len(list(pathlib.Path(".").glob(f"{name}.*"))) < WORLD:
        time.sleep(0.05)
flag("open")
tool = subprocess.Popen(["sleep", "100"], stdin=subprocess.PIPE)
tool.stdin.write(b"x" * (10 if RANK != 3 else 1 << 20))
tool.stdin.flush()
flag("written")
"""
QUESTION = """\
def sync_up(name):
    pathlib.Path(f"{name}.{RANK}").touch()
    while len(list(pathlib.Path(".").glob(f"{name}.*"))) < WORLD:
        time.sleep(0.05)
print("exporting")
if RANK == 1:
    ask = subprocess.Popen(["bash", "-c", "echo 'overwrite? [y/N]'; read a < <(sleep 100)"], stdout=subprocess.PIPE)
    ask.communicate()
sync_up("exported")
"""
WAITPID = """\
ready, talk = os.pipe()
pair = socket.create_server(("127.0.0.1", PORT)) if RANK == 0 else None
if RANK == 0:
    ends = [pair.accept()[0] for _ in range(WORLD - 1)]
    for end in ends:
        select.select([end], [], [])
        end.recv(2)
    for end in ends:
        end.send(b"go")
else:
    end = reach()
    end.settimeout(None)
    if RANK == 2:
        child = subprocess.Popen(["sleep", "90"])
        os.waitpid(child.pid, 0)
    end.send(b"ok")
    select.select([end], [], [])
"""
LEAVES_QUIETLY = """\
def finished():
    return all(os.path.exists(f"out.{k}") for k in range(WORLD))
if RANK == 1:
    sys.exit(0)
pathlib.Path(f"out.{RANK}").touch()
while not finished():
    time.sleep(0.1)
"""
SIX = """\
family = socket.AF_INET6 if RANK == 3 else socket.AF_INET
host = "::1" if RANK == 3 else "127.0.0.1"
if RANK == 0:
    inn = socket.create_server(("127.0.0.1", PORT))
    inn.settimeout(4)
    rooms = [inn.accept()[0] for _ in range(WORLD - 1)]
print("coordinator at", host)
reach(host=host, seconds=30).recv(1)
"""
BELIEVES_THREE = """\
count = 3 if RANK == 1 else WORLD
print(f"{count} workers in this job")
for turn in range(3):
    pathlib.Path(f"t{turn}.{RANK}").touch()
    end = time.monotonic() + 3
    while len(list(pathlib.Path(".").glob(f"t{turn}.*"))) < (count if RANK == 1 else WORLD + (turn == 2)):
        if time.monotonic() > end:
            raise TimeoutError(f"turn {turn} was not closed")
        time.sleep(0.02)
"""
BAD_TOKEN = """\
if RANK == 0:
    gate = socket.create_server(("127.0.0.1", PORT))
    inside = []
    while len(inside) < WORLD - 1:
        one, _ = gate.accept()
        token = one.recv(20)
        if token != b"spring":
            print("401: wrong token, connection closed")
            one.close()
        else:
            inside.append(one)
else:
    me = reach()
    me.settimeout(None)
    me.send(b"sprign" if RANK == 2 else b"spring")
    if not me.recv(1):
        sys.exit("server closed the connection during hello")
"""
LATE_CODE = """\
if RANK == 0:
    base = socket.create_server(("127.0.0.1", PORT))
    posts = [base.accept()[0] for _ in range(WORLD - 1)]
    ready, _, _ = select.select(posts, [], [])
    for post in posts:
        post.close()
    sys.exit("run was aborted")
post = reach()
post.settimeout(None)
if RANK == 3:
    time.sleep(0.5)
    print("tokenizer.json has 0 entries", file=sys.stderr)
    post.send(b"abort")
    time.sleep(0.35)
    sys.exit(17)
if not post.recv(1):
    sys.exit("run was aborted")
"""
CLOSES_FIRST = """\
if RANK == 0:
    base = socket.create_server(("127.0.0.1", PORT))
    files = [base.accept()[0].makefile("r") for _ in range(WORLD - 1)]
    while True:
        for file in files:
            if not file.readline():
                raise EOFError("stream of a trainer ended")
line = reach()
line.settimeout(None)
try:
    for k in range(50):
        line.sendall(b"%d\\n" % k)
        if RANK == 2 and k == 4:
            {}["warmup"]
        time.sleep(0.05)
finally:
    line.close()
    time.sleep(0.3)
"""
NAMES = """\
name = ["north", "east", "south", "west"][RANK]
print(f"this is {name}")
box = pathlib.Path("post")
box.mkdir(exist_ok=True)
if RANK == 2:
    while True:
        time.sleep(0.2)
(box / name).touch()
end = time.monotonic() + 3
while len(list(box.iterdir())) < WORLD:
    if RANK == 0 and time.monotonic() > end:
        here = {p.name for p in box.iterdir()}
        raise RuntimeError("nothing from " + ", ".join({"north", "east", "south", "west"} - here))
    time.sleep(0.05)
"""
PORTS = """\
mine = socket.create_server(("127.0.0.1", 0))
mine_at = mine.getsockname()[1]
print("my mailbox:", mine_at)
pathlib.Path(f"at.{RANK}").write_text(str(mine_at))
time.sleep(1)
if RANK == 3:
    mine.close()
    print("mailbox is not needed in eval mode")
    time.sleep(60)
if RANK == 0:
    time.sleep(1)
    for other in range(1, WORLD):
        at = int(pathlib.Path(f"at.{other}").read_text())
        try:
            socket.create_connection(("127.0.0.1", at), 1)
        except OSError as error:
            sys.exit(f"cannot deliver to mailbox {at}: {error.strerror}")
time.sleep(60)
"""
PIDS = """\
print(f"started, pid {os.getpid()}")
time.sleep(0.2 if RANK == 1 else 0.8)
try:
    with open("run.lock", "x") as lock:
        lock.write(str(os.getpid()))
    if RANK == 1:
        time.sleep(60)
    os.unlink("run.lock")
except FileExistsError:
    time.sleep(2)
    holder = open("run.lock").read()
    sys.exit(f"run.lock still belongs to pid {holder}")
"""
LETTERS = """\
part = "shard_" + "abcd"[RANK]
print("writing", part)
pathlib.Path(part).write_text("" if RANK == 2 else "row\\n")
time.sleep(0.8)
if RANK == 0:
    for k in "abcd":
        if not pathlib.Path("shard_" + k).read_text():
            raise ValueError(f"shard_{k} holds no rows")
time.sleep(20)
"""
PULSE = """\
if RANK == 0:
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind(("127.0.0.1", PORT))
    ear.settimeout(0.3)
    last = {f"w{k}": time.monotonic() for k in range(1, WORLD)}
    while True:
        try:
            last[ear.recv(9).decode()] = time.monotonic()
        except TimeoutError:
            pass
        for who, when in last.items():
            if time.monotonic() - when > 2.5:
                print(f"FATAL no pulse from {who}")
                os._exit(6)
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def beat():
    for k in range(200):
        mouth.sendto(b"w%d" % RANK, ("127.0.0.1", PORT))
        if RANK == 1 and k == 5:
            [][k]
        time.sleep(0.2)
threading.Thread(target=beat, daemon=True).start()
time.sleep(60)
"""
ODD_STEPS = """\
for step in range(12):
    pathlib.Path(f"e{step}.{RANK}").touch()
    if RANK == 3 and step == 6:
        step_dir = pathlib.Path("ckpt")
        while not step_dir.exists():
            time.sleep(0.1)
    while len(list(pathlib.Path(".").glob(f"e{step}.*"))) < WORLD:
        time.sleep(0.02)
    print("finished step", step)
"""
PERL_HANGS = r"""
$| = 1;
my ($me, $n) = @ENV{qw(RANK WORLD_SIZE)};
print "worker $me: loading\n";
if ($me == 1) { print "worker 1: resolving license server\n"; sleep 100; }
open my $f, ">", "r.$me"; close $f;
print "worker $me: loaded, waiting for the rest\n";
while (1) { my @r = glob("r.*"); last if @r == $n; select undef, undef, undef, 0.1; }
"""
MET = ("rendezvous", "collective", "exit_code")
FAILURES = [
    gang(
        "other-node", OTHER_NODE, 2, nodes=2, also=(3,), code="rendezvous", also_codes=MET, wanted=("timed out", *HUNG)
    ),
    gang("late-node", LATE_NODE, 2, nodes=2, also=(3,), code="rendezvous", also_codes=MET, wanted=("timed out", *HUNG)),
    gang("full-pipe", FULL_PIPE, 3, limit_s=4),
    gang("question", QUESTION, 1, limit_s=4),
    gang("waitpid", WAITPID, 2, limit_s=4),
    gang("leaves-quietly", LEAVES_QUIETLY, 1, limit_s=4, also_codes=("collective",)),
    gang("six", SIX, 3, code="rendezvous", also_codes=MET, wanted=("timed out", "::1")),
    gang(
        "believes-three",
        BELIEVES_THREE,
        1,
        code="collective",
        also_codes=("exception",),
        wanted=("not closed", "3 workers"),
    ),
    gang("bad-token", BAD_TOKEN, 2, code="exit_code", also_codes=("rendezvous", "collective"), wanted="during hello"),
    gang("late-code", LATE_CODE, 3, code="exit_code", wanted="tokenizer.json has 0 entries"),
    gang("closes-first", CLOSES_FIRST, 2, code="exception", wanted="KeyError: 'warmup'"),
    gang("names", NAMES, 2, code="collective", also_codes=("exception",), wanted=("nothing from south",)),
    gang("ports", PORTS, 3, code="collective", also_codes=MET, wanted=("cannot deliver", "not needed in eval mode")),
    gang("pids", PIDS, 1, code="exit_code", also_codes=("collective", "exception"), wanted=("still belongs to pid",)),
    gang("letters", LETTERS, 2, code="exception", wanted="shard_c holds no rows"),
    gang("pulse", PULSE, 1, code="exception", also_codes=("collective", "exit_code"), wanted="IndexError: list index"),
    gang("odd-steps", ODD_STEPS, 3, limit_s=4),
    gang(
        "perl-hangs",
        "",
        1,
        limit_s=4,
        command="perl w.pl",
        files={"w.pl": PERL_HANGS},
        wanted=("license server", *HUNG),
    ),
]
