"""One process per rank: gloo gangs of 2 to 8 whose ranks fail, hang, come late, leave, flag errors, or speak for themselves."""

from recorder import Failure

HEAD = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def join(seconds=60):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
def reduce():
    dist.all_reduce(torch.ones(1))
def steps(n=50, pause=0.1):
    for step in range(n):
        reduce(); print(f"rank {rank} step {step}", flush=True); time.sleep(pause)
"""
BUG = (r"network between|interface|install|core file",)
HUNG = ("did not", "hung", "hang", "stuck", "time.sleep", "was in", "still")
LOOK = (r"rank \d|train\.py|stack|step",)


def gang(name, text, code, who, wanted, ranks, *, helpful=(r"train\.py",), misleading=BUG, nodes=1, files=None, **more):
    return Failure(
        f"gang-{name}-{nodes}x{ranks // nodes}" + ("" if who is None else f"-rank{who}"), code, "python train.py", wanted,
        {"train.py": HEAD + text, **(files or {})}, helpful, misleading, rank=who, convention="process",
        processes=ranks, nodes=nodes, way=name, **more,
    )  # fmt: skip


def hang(name, text, who, ranks, code="collective", nodes=1, **more):
    return gang(name, text, code, who, HUNG, ranks, helpful=LOOK, misleading=(r"install|memory",), nodes=nodes, **more)


HANGS = "join(6); reduce()\nif rank == {who}:\n    time.sleep(600)\nsteps()\n"
LATE = "if rank == {who}:\n    time.sleep(600)\njoin(6); steps()\n"
BARRIER = """
join(60); reduce()
if rank == {who}:
    time.sleep(600)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=4))
"""
RAISES = "join(); reduce()\nif rank == {who}:\n    raise ValueError('loss is nan on shard {who}')\nsteps()\n"

FAILURES = [
    *(
        gang(
            "raises",
            RAISES.format(who=who),
            "exception",
            who,
            f"ValueError: loss is nan on shard {who}",
            n,
            nodes=nodes,
        )
        for who, n, nodes in ((2, 3, 1), (0, 4, 1), (5, 6, 2), (7, 8, 2), (1, 5, 1))
    ),
    *(
        hang("hangs", HANGS.format(who=who), who, n, nodes=nodes)
        for who, n, nodes in ((1, 3, 1), (0, 4, 1), (3, 4, 2), (4, 6, 1), (6, 8, 2))
    ),
    *(
        hang("late", LATE.format(who=who), who, n, "rendezvous", nodes, also_codes=("collective",))
        for who, n, nodes in ((1, 3, 1), (2, 4, 2), (0, 3, 1), (5, 8, 1))
    ),
    *(hang("misses-barrier", BARRIER.format(who=who), who, n) for who, n in ((1, 3), (3, 4), (0, 3), (5, 6))),
    hang(
        "hangs-in-loader",
        """
import queue
join(6); reduce()
def next_batch():
    if rank == 2: queue.Queue().get()
    return torch.ones(1)
for step in range(50):
    next_batch(); reduce(); time.sleep(0.1)
""",
        2,
        4,
    ),
    hang(
        "hangs-in-lock",
        """
import fcntl, tempfile
join(6); reduce()
if rank == 0:
    import threading
    lock = threading.Lock(); lock.acquire(); lock.acquire()
steps()
""",
        0,
        3,
    ),
    hang(
        "busy-loop",
        """
join(6); reduce()
if rank == 1:
    while True: pass
steps()
""",
        1,
        3,
    ),
    gang(
        "one-extra-collective",
        """
join(6)
for step in range(5):
    reduce()
    if step == 3 and rank == 1: dist.barrier()
""",
        "collective",
        None,
        ("Timed out waiting",),
        3,
        also=(0, 1, 2),
        helpful=(r"same collectives|same order|rank 1",),
    ),
    hang(
        "stopped-process",
        """
import signal
join(6); reduce()
if rank == 2: os.kill(os.getpid(), signal.SIGSTOP)
steps()
""",
        2,
        3,
    ),
    gang(
        "leaves-early",
        """
join(); reduce()
if rank == 2:
    print("no more batches", flush=True); os._exit(0)
steps()
""",
        "collective",
        2,
        ("exit code 0", "had ended", "no more batches"),
        4,
        helpful=(r"rank 2|join|drop_last|as many|uneven",),
    ),
    gang(
        "returns-early",
        """
join(); reduce()
n = 3 if rank == 1 else 20
steps(n, 0.05)
""",
        "collective",
        1,
        ("exit code 0", "had ended"),
        3,
        helpful=(r"rank 1|join|drop_last|as many|uneven",),
    ),
    gang(
        "error-flag",
        """
join()
def check(ok):
    flag = torch.tensor([0.0 if ok else 1.0])
    dist.all_reduce(flag)
    if flag.item():
        raise RuntimeError("one of the ranks failed, leaving together")
for step in range(10):
    ok = True
    if rank == 2 and step == 4:
        print("rank 2: ERROR: cannot decode sample 1234.jpg", flush=True); ok = False
    check(ok)
""",
        "exception",
        2,
        "cannot decode sample 1234.jpg",
        4,
    ),
    gang(
        "error-flag-traceback",
        """
import traceback
join()
for step in range(10):
    flag = torch.zeros(1)
    try:
        if rank == 1 and step == 3: raise ValueError("gradient of layer 7 is inf")
    except ValueError:
        traceback.print_exc(); flag += 1
    dist.all_reduce(flag)
    if flag.item(): sys.exit(3)
""",
        "exception",
        1,
        "ValueError: gradient of layer 7 is inf",
        3,
        also_codes=("exit_code",),
    ),
    gang(
        "error-gathered",
        """
join()
def step(n):
    if rank == 3 and n == 2: raise KeyError("mask")
for n in range(5):
    error = None
    try: step(n)
    except Exception as e: error = repr(e)
    errors = [None] * world
    dist.all_gather_object(errors, error)
    if any(errors):
        raise RuntimeError(f"step {n} failed: " + "; ".join(f"rank {r}: {e}" for r, e in enumerate(errors) if e))
""",
        "exception",
        3,
        "rank 3: KeyError('mask')",
        4,
    ),
    gang(
        "raises-slowly",
        """
import threading
join(6); reduce()
if rank == 1:
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("tokenizer has no pad token")
steps()
""",
        "exception",
        1,
        "ValueError: tokenizer has no pad token",
        4,
    ),
    gang(
        "raises-before-joining",
        """
if rank == 2:
    raise FileNotFoundError(2, "No such file or directory", "/data/shard_2.tar")
join(8); steps()
""",
        "exception",
        2,
        "No such file or directory: '/data/shard_2.tar'",
        4,
        helpful=(r"shard_2\.tar",),
        misleading=(r"MASTER_|network|install",),
        also_codes=("data_unavailable",),
    ),
    gang(
        "raises-before-joining-slow-exit",
        """
import atexit
if rank == 1:
    atexit.register(time.sleep, 20)
    raise KeyError("model.hidden_size")
join(6); steps()
""",
        "exception",
        1,
        "KeyError: 'model.hidden_size'",
        3,
        misleading=(r"MASTER_|network|install",),
    ),
    gang(
        "segfault",
        """
import ctypes
join(); reduce()
if rank == 3: ctypes.string_at(0)
steps()
""",
        "signal",
        3,
        "SIGSEGV",
        4,
        helpful=(r"native|faulthandler|core",),
        misleading=(r"MASTER_|network",),
    ),
    gang(
        "killed",
        """
import signal
join(); reduce()
if rank == 0: os.kill(os.getpid(), signal.SIGKILL)
steps()
""",
        "signal",
        0,
        "SIGKILL",
        4,
        helpful=(r"outside|memory|limit",),
        misleading=(r"MASTER_|network",),
        also_codes=("host_oom",),
    ),
    gang(
        "exits-with-words",
        """
join(); reduce()
if rank == 1: sys.exit("rank 1: fewer than 8 samples are left, refusing to go on")
steps()
""",
        "exit_code",
        1,
        "fewer than 8 samples are left, refusing to go on",
        3,
        helpful=(),
        misleading=(r"MASTER_|network|install",),
    ),
    gang(
        "exits-with-code",
        """
join(); reduce()
if rank == 5:
    print("quota of API calls is used up", flush=True); os._exit(75)
steps()
""",
        "exit_code",
        5,
        ("exited with code 75", "quota of API calls is used up"),
        6,
        helpful=(),
        misleading=(r"MASTER_|network|install",),
    ),
    gang(
        "module-on-all",
        "import apex\n",
        "environment",
        0,
        "No module named 'apex'",
        3,
        helpful=(r"pip.*apex|apex.*pip|apex.*environment",),
        misleading=(r"MASTER_|network",),
        also=(1, 2),
    ),
    gang(
        "exception-on-all",
        "join(); reduce()\nraise TypeError(\"forward() got an unexpected keyword argument 'mask'\")\n",
        "exception",
        0,
        "TypeError: forward() got an unexpected keyword argument 'mask'",
        4,
        also=(1, 2, 3),
    ),
    gang(
        "disk-on-one",
        """
join(); reduce()
if rank == 0: torch.save({"w": torch.ones(100000)}, "/dev/full")
steps()
""",
        "disk_full",
        0,
        ("No space left on device", "file write failed", "unexpected pos"),
        3,
        helpful=(r"space|disk",),
    ),
    gang(
        "memory-on-one",
        """
join(); reduce()
if rank == 1: torch.ones(1 << 46)
steps()
""",
        "host_oom",
        1,
        "can't allocate memory",
        3,
        helpful=(r"memory|smaller",),
    ),
    gang(
        "wrong-world-size",
        """
os.environ["WORLD_SIZE"] = str(world + 1)
join(5); steps()
""",
        "rendezvous",
        None,
        ("clients joined", "Timed out", "timed out", "wait timeout"),
        3,
        helpful=(r"WORLD_SIZE|world size",),
        misleading=(r"install|memory",),
    ),
    gang(
        "fixed-port",
        """
import socket
os.environ["MASTER_PORT"] = "12355"
if rank == 0: held = socket.create_server(("", 12355))
join(6); steps()
""",
        "port_trouble",
        0,
        ("EADDRINUSE", "address already in use"),
        3,
        helpful=(r"12355.*MASTER_PORT|MASTER_PORT.*12355",),
        misleading=(r"install|memory",),
        also=(1, 2),
    ),
    gang(
        "fixed-address",
        """
os.environ["MASTER_ADDR"] = "10.255.255.1"
join(5); steps()
""",
        "rendezvous",
        0,
        ("failed to connect", "timed out", "Permission denied", "failed to listen"),
        3,
        helpful=(r"MASTER_ADDR|MASTER_PORT",),
        misleading=(r"install|memory",),
        also=(1, 2),
        also_codes=("port_trouble", "exception"),
    ),
    gang(
        "nccl-without-gpu",
        """
dist.init_process_group("nccl")
""",
        "environment",
        0,
        ("ProcessGroupNCCL is only supported with GPUs", "Distributed package doesn't have NCCL", "NCCL"),
        2,
        helpful=(r"gloo",),
        misleading=(r"MASTER_|network",),
        also=(1,),
        facts={"gpu_clusters": ["a100", "h100"]},
        also_codes=("exception",),
    ),
    gang(
        "interface",
        "join(5); steps()\n",
        "port_trouble",
        0,
        ("Unable to find address for", "eth7"),
        2,
        helpful=(r"GLOO_SOCKET_IFNAME",),
        misleading=(r"install|memory",),
        also=(1,),
        variables={"GLOO_SOCKET_IFNAME": "eth7"},
    ),
    gang(
        "shape-mismatch",
        """
join()
x = torch.ones(3 if rank == 1 else 4)
dist.all_gather([torch.ones(4) for _ in range(world)], x)
""",
        "exception",
        1,
        ("Tensor list elements", "sizes", "size", "shape", "Invalid"),
        3,
        also=(0, 2),
        also_codes=("collective",),
    ),
    gang(
        "not-initialised",
        "dist.all_reduce(torch.ones(1))\n",
        "exception",
        0,
        "Default process group has not been initialized",
        2,
        helpful=(r"init_process_group",),
        also=(1,),
    ),
    gang(
        "ddp-unused",
        """
join()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.a = torch.nn.Linear(2, 2); self.b = torch.nn.Linear(2, 2)
    def forward(self, x): return self.a(x)
model = torch.nn.parallel.DistributedDataParallel(Net())
for _ in range(3): model(torch.ones(1, 2)).sum().backward()
""",
        "exception",
        0,
        "Expected to have finished reduction in the prior iteration",
        2,
        helpful=(r"find_unused_parameters",),
        also=(1,),
    ),
    gang(
        "ddp-differs",
        """
join()
model = torch.nn.Linear(2, 2 + rank)
model = torch.nn.parallel.DistributedDataParallel(model)
""",
        "exception",
        0,
        ("DDP expects same model across all ranks", "params", "inconsistent", "size"),
        2,
        also=(1,),
        helpful=(r"train\.py|same model|differ",),
    ),
    gang(
        "tcp-peer-vanishes",
        """
import socket
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("127.0.0.1", port)); server.settimeout(20)
    peers = [server.accept()[0] for _ in range(world - 1)]
    for n in range(50):
        for p in peers:
            p.sendall(b"go\\n")
            if not p.recv(16): raise ConnectionError("a worker closed the connection")
        time.sleep(0.05)
else:
    time.sleep(1)
    s = socket.create_connection(("127.0.0.1", port))
    for n in range(50):
        s.recv(16)
        if rank == 2 and n == 3: raise ValueError("worker 2: batch has no target column")
        s.sendall(b"ok\\n")
""",
        "exception",
        2,
        "ValueError: worker 2: batch has no target column",
        3,
        misleading=(r"network|MASTER_|install",),
    ),
    gang(
        "tcp-peer-killed",
        """
import signal, socket
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("127.0.0.1", port)); server.settimeout(20)
    peers = [server.accept()[0] for _ in range(world - 1)]
    for n in range(50):
        for p in peers:
            p.sendall(b"go\\n")
            if not p.recv(16): raise EOFError("peer is gone")
        time.sleep(0.05)
else:
    time.sleep(1)
    s = socket.create_connection(("127.0.0.1", port))
    for n in range(50):
        if not s.recv(16): raise ConnectionResetError("parameter server is gone")
        if rank == 1 and n == 3: os._exit(0)
        s.sendall(b"ok\\n")
""",
        "collective",
        1,
        ("exit code 0", "had ended", "peer is gone"),
        3,
        helpful=(r"rank 1",),
        misleading=(r"install",),
        also_codes=("exception",),
    ),
    gang(
        "tcp-refused",
        """
import socket
port = int(os.environ["MASTER_PORT"])
if rank == 0: raise ImportError("cannot import name 'Server' from 'rpc'")
time.sleep(0.3)
socket.create_connection(("127.0.0.1", port))
""",
        "environment",
        0,
        "ImportError: cannot import name 'Server' from 'rpc'",
        3,
        misleading=(r"network|MASTER_",),
        also_codes=("exception",),
        helpful=(r"rpc|train\.py",),
    ),
    gang(
        "grpc-peer-vanishes",
        """
import grpc
from concurrent import futures
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    class H(grpc.GenericRpcHandler):
        def service(self, d):
            return grpc.unary_unary_rpc_method_handler(lambda r, c: b"ok")
    server = grpc.server(futures.ThreadPoolExecutor(2)); server.add_generic_rpc_handlers((H(),))
    server.add_insecure_port(f"127.0.0.1:{port}"); server.start()
    time.sleep(3)
    raise RuntimeError("optimizer state is corrupt at step 40")
time.sleep(1)
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/ps/Push")
for n in range(100):
    call(b"x", timeout=5); time.sleep(0.05)
""",
        "exception",
        0,
        "RuntimeError: optimizer state is corrupt at step 40",
        3,
        misleading=(r"network|MASTER_|install",),
    ),
    gang(
        "rpc",
        """
import torch.distributed.rpc as rpc
rpc.init_rpc(f"w{rank}", rank=rank, world_size=world)
def work(n):
    if n == 2: raise ValueError("bucket 2 is empty on w1")
    return n
if rank == 0:
    for n in range(4): rpc.rpc_sync("w1", work, args=(n,))
rpc.shutdown()
""",
        "exception",
        0,
        "ValueError: bucket 2 is empty on w1",
        2,
        also=(1,),
    ),
    gang(
        "store-wait",
        """
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), world, rank == 0, timeout=datetime.timedelta(seconds=4))
if rank != 2: store.set(f"ready{rank}", "1")
else: time.sleep(600)
store.wait([f"ready{r}" for r in range(world)])
""",
        "rendezvous",
        2,
        HUNG,
        3,
        helpful=LOOK,
        misleading=(r"install|memory",),
        also_codes=("collective",),
    ),
    gang(
        "timeout-rank-failed",
        """
import traceback
join(600); reduce()
if rank == 1:
    try: raise ValueError("cannot parse record 88")
    except ValueError: traceback.print_exc()
    while True: time.sleep(1)
reduce()
""",
        "exception",
        1,
        "ValueError: cannot parse record 88",
        3,
        misleading=(r"limits\\.timeout|install",),
        limit_s=12,
        also_codes=("timeout",),
    ),
    gang(
        "timeout-thread-failed",
        """
import threading
join(600); reduce()
def feed():
    if rank == 0: raise OSError("shard 17 is not readable")
    time.sleep(600)
t = threading.Thread(target=feed); t.start()
if rank == 0:
    while True: time.sleep(1)
reduce()
""",
        "exception",
        0,
        "OSError: shard 17 is not readable",
        3,
        misleading=(r"limits\\.timeout|install",),
        limit_s=12,
        also_codes=("timeout", "data_unavailable"),
    ),
    hang(
        "timeout-hung",
        """
join(600); reduce()
if rank == 2: time.sleep(600)
reduce()
""",
        2,
        4,
        "timeout",
        limit_s=12,
        also_codes=("collective",),
    ),
    gang(
        "timeout-simply",
        "join(600)\nsteps(5000, 0.05)\n",
        "timeout",
        None,
        "time limit",
        2,
        helpful=(r"limits\.timeout|checkpoint",),
        misleading=(r"install|memory",),
        limit_s=12,
    ),
    gang(
        "watchdog-text",
        """
join(); reduce()
if rank == 3:
    raise AssertionError("worker 3 saw label 1000 of 1000 classes")
try: steps()
except RuntimeError as e:
    print("collective failed, rank", rank, "is leaving:", str(e)[:60], flush=True)
    sys.exit(9)
""",
        "exception",
        3,
        "AssertionError: worker 3 saw label 1000 of 1000 classes",
        4,
    ),
    gang(
        "victims-first",
        """
join(); reduce()
if rank == 0:
    try: raise ValueError("checkpoint of step 900 has other parameters")
    finally:
        dist.destroy_process_group(); time.sleep(0.2)
try: steps()
except RuntimeError: sys.exit("lost a peer")
""",
        "exception",
        0,
        "ValueError: checkpoint of step 900 has other parameters",
        3,
    ),
    gang(
        "exit-zero-all-but-one",
        """
join(); reduce(); dist.barrier()
if rank == 1: raise OSError(28, "No space left on device", "/scratch/metrics.csv")
""",
        "disk_full",
        1,
        "No space left on device: '/scratch/metrics.csv'",
        3,
        helpful=(r"/scratch|space|disk",),
    ),
]
