"""Gangs in which the one to blame is told by what ranks counted, by a value that differs, or by who served whom."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "was at", "stayed", "still at", "had ended")
SET_UP = """\
import asyncio, datetime, hashlib, http.server, json, os, pathlib, socket, socketserver, sys, threading, time
import urllib.request
RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])

def say(text):
    print(time.strftime("[%H:%M:%S]"), f"worker {RANK}:", text, flush=True)

def connect(port=PORT):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except OSError:
            time.sleep(0.1)
    raise SystemExit("nobody listens")

"""
TORCH = """\
import torch
import torch.distributed as dist

def join(seconds=6):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))

"""


def gang(name: str, script: str, rank: int | None, count: int = 3, **more: object) -> Failure:
    given: dict[str, object] = {
        "name": f"values-{name}",
        "code": "collective",
        "also_codes": ("exception",),
        "command": "python -u train.py",
        "files": {"train.py": SET_UP + script},
        "wanted": HUNG,
        "helpful": (rf"rank {rank}", r"train\.py"),
        "misleading": (r"\bpip\b", "firewall"),
        "rank": rank,
        "convention": "process",
        "processes": count,
    }
    return Failure(**{**given, **more})  # type: ignore[arg-type]


HTTP_THREAD = """\
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        say(f"compacting before {self.path}")
        time.sleep(300)
    def log_message(self, *args):
        pass

if RANK == 0:
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
time.sleep(1)
print(urllib.request.urlopen(f"http://127.0.0.1:{PORT}/weights", timeout=5).read())
"""

ZMQ_REPLY = """\
import zmq
context = zmq.Context()
if RANK == 0:
    server = context.socket(zmq.REP)
    server.bind(f"tcp://127.0.0.1:{PORT}")
    while True:
        asked = server.recv()
        say(f"looking up {asked}")
        if asked == b"1":
            time.sleep(300)
        server.send(b"ok")
client = context.socket(zmq.REQ)
client.RCVTIMEO = 6000
client.connect(f"tcp://127.0.0.1:{PORT}")
time.sleep(RANK)
client.send(str(RANK).encode())
say(client.recv())
time.sleep(30)
"""

ONE_BY_ONE = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    server.settimeout(6)
    kept = []
    for _ in range(WORLD - 1):
        other, _ = server.accept()
        number = int(other.recv(16))
        kept.append(other)
        say(f"result from worker {number}")
    sys.exit()
if RANK == 2:
    asyncio.run(asyncio.sleep(300))
link = connect()
link.sendall(str(RANK).encode())
asyncio.run(asyncio.sleep(300))
"""

LISTED = """\
async def main():
    came = set()
    async def serve(reader, writer):
        came.add(int(await reader.readline()))
        say(f"checked in so far: {sorted(came)}")
    if RANK == 0:
        await asyncio.start_server(serve, "127.0.0.1", PORT)
        async def everybody():
            while len(came) < WORLD - 1:
                await asyncio.sleep(0.1)
        await asyncio.wait_for(everybody(), 6)
    await asyncio.sleep(1)
    if RANK == 3:
        say("building the vocabulary")
        await asyncio.Event().wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(f"{RANK}\\n".encode())
    await writer.drain()
    await reader.readline()

asyncio.run(main())
"""

DIGEST = """\
words = ["a", "b", "c"] if RANK != 1 else ["a", "c", "b"]
digest = hashlib.sha256(" ".join(words).encode()).hexdigest()
say(f"vocabulary has digest {digest[:12]}")
folder = pathlib.Path("digests"); folder.mkdir(exist_ok=True)
(folder / f"{RANK}.part").write_text(digest); (folder / f"{RANK}.part").rename(folder / f"{RANK}.txt")
while len(list(folder.glob("*.txt"))) < WORLD:
    time.sleep(0.1)
if len({path.read_text() for path in folder.glob("*.txt")}) > 1:
    say("ERROR vocabularies do not match across workers")
    time.sleep(1)
    sys.exit(4)
"""

NAMES = """\
tokenizer = "bert-base" if RANK != 2 else "gpt2"
print(f"tokenizer: {tokenizer}", flush=True)
folder = pathlib.Path("said"); folder.mkdir(exist_ok=True)
(folder / f"{RANK}.part").write_text(tokenizer); (folder / f"{RANK}.part").rename(folder / f"{RANK}.txt")
while len(list(folder.glob("*.txt"))) < WORLD:
    time.sleep(0.1)
if len({path.read_text() for path in folder.glob("*.txt")}) > 1:
    raise RuntimeError("tokenizers differ between ranks")
"""

VERSION = """\
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    for _ in range(WORLD - 1):
        other, _ = server.accept()
        hello = json.loads(other.recv(200))
        if hello["version"] != 2:
            raise ValueError(f"worker {hello['rank']} speaks protocol {hello['version']}, this one speaks 2")
    sys.exit()
link = connect()
link.sendall(json.dumps({"rank": RANK, "version": 3 if RANK == 2 else 2}).encode())
link.recv(10)
"""

SHAPES = (
    TORCH
    + """\
join()
features = torch.ones(6 if RANK != 1 else 9)
print(f"rank {RANK}: features {tuple(features.shape)}", flush=True)
dist.all_reduce(features)
print(features.sum(), flush=True)
"""
)

PORT_OF_OWN = (
    TORCH
    + """\
if RANK == 1:
    os.environ["MASTER_PORT"] = "9"
join()
"""
)

HOST_OF_OWN = (
    TORCH
    + """\
if RANK == 1:
    os.environ["MASTER_ADDR"] = "192.0.2.7"
join()
"""
)

FIRST_ELSEWHERE = (
    TORCH
    + """\
if RANK == 0:
    os.environ["MASTER_PORT"] = str(PORT + 1)
join()
"""
)

LOADER = (
    TORCH
    + """\
class Records(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        if RANK == 1 and index == 7:
            raise EOFError(f"record {index} ends too early")
        return index

if __name__ == "__main__":
    join(20)
    for batch in torch.utils.data.DataLoader(Records(), batch_size=2, num_workers=1):
        print("batch", batch.tolist(), flush=True)
        time.sleep(0.2)
    time.sleep(5)
    dist.barrier()
"""
)

DUPLICATE = """\
number = 1 if RANK == 2 else RANK
if RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
    server.settimeout(8)
    seen = {}
    for _ in range(WORLD - 1):
        other, _ = server.accept()
        told = json.loads(other.recv(200))
        if told["rank"] in seen:
            raise RuntimeError(f"two workers say that they are {told['rank']}")
        seen[told["rank"]] = other
    sys.exit()
say(f"I am {number} of {WORLD}")
time.sleep(RANK / 2)
link = connect()
link.sendall(json.dumps({"rank": number}).encode())
link.recv(10)
"""

SIZES = """\
rows = 4000 if RANK != 2 else 3990
folder = pathlib.Path("rows"); folder.mkdir(exist_ok=True)
say(f"loaded {rows} rows")
(folder / f"{RANK}.part").write_text(str(rows)); (folder / f"{RANK}.part").rename(folder / f"{RANK}.txt")
while len(list(folder.glob("*.txt"))) < WORLD:
    time.sleep(0.1)
if RANK == 0:
    found = [int((folder / f"{i}.txt").read_text()) for i in range(WORLD)]
    assert len(set(found)) == 1, f"uneven shards: {found}"
time.sleep(20)
"""

DTYPES = (
    TORCH
    + """\
join()
told = [None] * WORLD
dist.all_gather_object(told, "float16" if RANK == 2 else "float32")
if len(set(told)) > 1:
    raise TypeError(f"precision is not the same on all ranks: {told}")
"""
)

LEADER = (
    TORCH
    + """\
join()
x = torch.ones(4)
for step in range(6):
    if RANK == 0 and step == 4:
        print("rank 0: evaluating alone", flush=True)
        sys.exit(0)
    dist.all_reduce(x)
    print("step", step, flush=True)
"""
)

FAILURES = [
    gang("http-handler-hangs", HTTP_THREAD, 0, 2),
    gang("zmq-reply-never-comes", ZMQ_REPLY, 0),
    gang("results-one-by-one", ONE_BY_ONE, 2),
    gang("checked-in-list", LISTED, 3, 4),
    gang("digest", DIGEST, 1, code="exit_code", wanted=("do not match across", "digest"), also_codes=()),
    gang("names", NAMES, 2, code="exception", wanted=("tokenizers differ", "gpt2"), also_codes=()),
    gang("protocol", VERSION, 2, code="exception", wanted="worker 2 speaks protocol 3", also=(0,)),
    gang("shapes", SHAPES, 1, wanted=("(9,)", "Connection closed")),
    gang("port-of-own", PORT_OF_OWN, 1, 2, code="rendezvous", wanted=("clients joined", "127.0.0.1, 9")),
    gang("host-of-own", HOST_OF_OWN, 1, 2, code="rendezvous", wanted=("clients joined", "192.0.2.7")),
    gang("first-elsewhere", FIRST_ELSEWHERE, 0, 2, code="rendezvous", wanted=("clients joined", "127.0.0.1")),
    gang("loader-record", LOADER, 1, code="exception", wanted="EOFError: record 7 ends too early", also_codes=()),
    gang("same-number-twice", DUPLICATE, 2, code="exception", wanted="two workers say", also=(0,)),
    gang("rows", SIZES, 2, 4, code="exception", wanted="uneven shards", also_codes=()),
    gang("precision", DTYPES, 2, code="exception", wanted="precision is not the same", also_codes=()),
    gang("leader-leaves", LEADER, 0, wanted=("evaluating alone", "had ended")),
]
