"""More gangs in which ranks are told apart by what they say: of themselves, of whom they asked, of whom they miss."""

from failures.told_by_values import TORCH, gang

ONE_CLIENT_BAD = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    for _ in range(WORLD - 1):
        other, _ = server.accept()
        data = b""
        while chunk := other.recv(1000):
            data += chunk
        say(f"got {len(data)} bytes")
        message = json.loads(data)
        say(f"worker {message['rank']} is done")
    sys.exit()
time.sleep(RANK)
link = connect()
text = json.dumps({"rank": RANK, "loss": 0.5})
say("sending my result")
link.sendall((text if RANK != 2 else text[:9]).encode())
link.close()
time.sleep(8)
"""
RECV_TIMEOUT = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    links = {}
    while len(links) < WORLD - 1:
        other, _ = server.accept()
        links[int(other.recv(1))] = other
    for number in sorted(links):
        links[number].settimeout(5)
        say(f"asking worker {number}")
        links[number].sendall(b"go")
        answer = links[number].recv(10)
        say(f"worker {number} answered {answer}")
    sys.exit()
link = connect()
link.sendall(str(RANK).encode())
link.recv(2)
if RANK == 2:
    say("reindexing")
    time.sleep(300)
link.sendall(b"done")
link.recv(10)
"""
QUEUE_THREAD = """\
import queue
work = queue.Queue()
def produce():
    for n in range(3):
        work.put(n)
    if RANK == 1:
        raise OSError("cannot read part 3")
    while True:
        work.put(n); time.sleep(0.1)
threading.Thread(target=produce, daemon=True).start()
folder = pathlib.Path("bar"); folder.mkdir(exist_ok=True)
def barrier(step):
    (folder / f"{step}-{RANK}").touch()
    began = time.time()
    while len(list(folder.glob(f"{step}-*"))) < WORLD:
        if time.time() - began > 5:
            raise TimeoutError(f"barrier {step}")
        time.sleep(0.05)
for step in range(6):
    item = work.get()
    say(f"step {step}")
    barrier(step)
"""
SUBGROUP = (
    TORCH
    + """\
join()
group = dist.new_group([0, 1])
x = torch.ones(2)
if RANK < 2:
    dist.all_reduce(x, group=group)
if RANK != 1:
    dist.barrier()
else:
    time.sleep(1)
    dist.broadcast(x, src=0)
    dist.barrier()
print("passed", flush=True)
"""
)
SKIPS = (
    TORCH
    + """\
join()
for step in range(5):
    loss = torch.tensor(float("nan") if RANK == 2 and step == 3 else 1.0)
    if torch.isnan(loss):
        print(f"rank {RANK}: skipping step {step}, loss is nan", flush=True)
        continue
    dist.all_reduce(loss)
    print(f"rank {RANK}: step {step} loss {loss.item()}", flush=True)
dist.barrier()
"""
)
WORLD_SIZE = (
    TORCH
    + """\
if RANK == 2:
    os.environ["WORLD_SIZE"] = "4"
print(f"rank {RANK} of {os.environ['WORLD_SIZE']}", flush=True)
join()
dist.barrier()
"""
)
SAME_RANK = (
    TORCH
    + """\
if RANK == 2:
    os.environ["RANK"] = "1"
print(f"I am rank {os.environ['RANK']}", flush=True)
join()
dist.barrier()
"""
)
PICKLE = (
    TORCH
    + """\
join()
got = [None] * WORLD
dist.all_gather_object(got, {"f": (lambda: 1) if RANK == 1 else 2})
"""
)
BACKEND = (
    TORCH
    + """\
join()
x = torch.ones(4, dtype=torch.float64 if RANK == 1 else torch.float32)
print(f"rank {RANK}: {x.dtype}", flush=True)
dist.all_reduce(x)
print(x.sum(), flush=True)
dist.barrier()
print("done", flush=True)
"""
)
GATHER = (
    TORCH
    + """\
join()
x = torch.ones(4)
if RANK == 0:
    parts = [torch.zeros(4) for _ in range(WORLD - 1)]
    dist.gather(x, parts)
else:
    dist.gather(x)
dist.barrier()
"""
)
HEART = """\
folder = pathlib.Path("beats"); folder.mkdir(exist_ok=True)
def beat():
    while True:
        (folder / f"w{RANK}").write_text(str(time.time())); time.sleep(0.5)
        if RANK == 1 and time.time() - began > 2:
            say("heartbeat thread: disk is slow, pausing"); time.sleep(300)
began = time.time()
threading.Thread(target=beat, daemon=True).start()
time.sleep(1)
while True:
    if RANK == 0:
        ages = {n: time.time() - float((folder / f"w{n}").read_text() or 0) for n in range(WORLD)}
        stale = [n for n, age in ages.items() if age > 3]
        if stale:
            say(f"stale heartbeats: {stale}, leaving")
            sys.exit(5)
    time.sleep(0.3)
"""
ALL_TOLD = """\
folder = pathlib.Path("bar"); folder.mkdir(exist_ok=True)
if RANK == 2:
    (folder / "abort").write_text("worker 2: tokens file has 0 lines")
    say("abort flag raised")
time.sleep(1)
while True:
    if (folder / "abort").exists():
        say("FATAL abort flag seen: " + (folder / "abort").read_text())
        time.sleep(0.3 * (3 - RANK) if RANK != 2 else 2)
        sys.exit(6)
    time.sleep(0.1)
"""
LATE = (
    TORCH
    + """\
if RANK == 1:
    print("rank 1: unpacking the dataset", flush=True)
    time.sleep(20)
join(5)
"""
)
KEY = (
    TORCH
    + """\
join()
store = dist.distributed_c10d._get_default_store()
store.set_timeout(datetime.timedelta(seconds=5))
if RANK == 0:
    store.set("ready/0", "1")
    for n in range(WORLD):
        print("waiting for", n, flush=True)
        store.wait([f"ready/{n}"])
elif RANK == 1:
    store.set("ready/1", "1")
    time.sleep(60)
else:
    print("no shard for me", flush=True)
    time.sleep(60)
"""
)
EXIT_EARLY = """\
if RANK == 1:
    say("shard is empty, nothing to do")
    sys.exit(0)
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    server.settimeout(5)
    while True:
        other, _ = server.accept()
        say(f"hello {other.recv(1)}")
link = connect()
link.sendall(str(RANK).encode())
link.recv(10)
"""
FAILURES = [
    gang("truncated-message", ONE_CLIENT_BAD, 2, code="exception", wanted="JSONDecodeError", also=(0,)),
    gang("asks-in-turn", RECV_TIMEOUT, 2),
    gang("producer-thread", QUEUE_THREAD, 1, code="exception", wanted="cannot read part 3"),
    gang("subgroup", SUBGROUP, 1, wanted="another call"),
    gang("skips-nan", SKIPS, 2, wanted=("another call", "skipping step 3")),
    gang("world-size-on-one", WORLD_SIZE, 2, code="rendezvous", also_codes=("collective", "exception")),
    gang("same-rank", SAME_RANK, 2, code="rendezvous", also_codes=("collective", "exception"), also=(1,)),
    gang("unpicklable", PICKLE, 1, code="exception", wanted="pickle"),
    gang("dtype", BACKEND, 1),
    gang("gather-list", GATHER, 0, code="exception", wanted="Incorrect output list size 2"),
    gang("stale", HEART, 1, also_codes=("exit_code",), wanted="stale heartbeats: [1]"),
    gang("abort-flag", ALL_TOLD, 2, code="exit_code", wanted="tokens file has 0 lines"),
    gang("late", LATE, 1, code="rendezvous"),
    gang("key", KEY, 2),
    gang("exit-early", EXIT_EARLY, 1, wanted=("nothing to do", "had ended")),
]
