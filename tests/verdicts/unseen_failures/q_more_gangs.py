"""More gangs: who fails late, who is killed, who vanishes, and models that differ between ranks."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|submit again|pip install"
LINE = """import os, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def join():
    where = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if rank == 0:
        server = socket.create_server(where)
        server.settimeout(float(os.environ.get("JOIN_S", "8")))
        found = []
        while len(found) < world - 1:
            try:
                c, _ = server.accept()
            except TimeoutError:
                raise SystemExit(f"[hub] only {len(found) + 1} of {world} workers joined") from None
            found.append(c)
        return found
    for _ in range(100):
        try:
            return [socket.create_connection(where)]
        except OSError:
            time.sleep(0.05)
    raise SystemExit("[worker] the hub is not reachable")

def sync(links):
    if rank == 0:
        for c in links:
            if c.recv(1) != b"x":
                raise BrokenPipeError("a worker hung up")
        for c in links:
            c.sendall(b"y")
    else:
        links[0].sendall(b"x")
        if links[0].recv(1) != b"y":
            raise BrokenPipeError("the hub hung up")
"""
OOM = (
    "if [ $RANK = {r} ]; then g=/sys/fs/cgroup/memory/q_$$; mkdir $g; echo {b} > $g/memory.limit_in_bytes; "
    "(echo $BASHPID > $g/cgroup.procs; exec python {s}); rc=$?; rmdir $g; exit $rc; fi; python {s}"
)

FAILURES = [
    Failure(
        name="q-more-guilty-cleans-up-slowly",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        files={
            "link.py": LINE,
            "train.py": """from link import *
import atexit
links = join()

@atexit.register
def tidy():
    for c in links:
        c.close()
    time.sleep(0.35)

for step in range(5):
    sync(links)
    if rank == 1 and step == 2:
        batch = {"input_ids": [1, 2]}
        batch["attention_mask"]
""",
        },
        wanted="KeyError: 'attention_mask'",
        helpful=(r"train\.py", r"attention_mask"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-logged-then-exit-zero",
        code="exception",
        also_codes=("collective",),
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files={
            "link.py": LINE,
            "train.py": """from link import *
import logging
logging.basicConfig(level="INFO", format="%(levelname)s %(name)s: %(message)s")
links = join()
try:
    for step in range(4):
        sync(links)
        if rank == 2 and step == 1:
            int("0x1f")
except ValueError:
    logging.exception("worker loop ended")
    sys.exit(0)
""",
        },
        wanted="ValueError: invalid literal for int() with base 10: '0x1f'",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-more-worker-never-joins",
        code="rendezvous",
        convention="process",
        processes=4,
        nodes=2,
        command="python train.py",
        rank=3,
        variables={"JOIN_S": "2"},
        files={
            "link.py": LINE,
            "train.py": """from link import *
if rank == 3:
    print("indexing 1,204,331 files", flush=True)
    time.sleep(100)
links = join()
sync(links)
time.sleep(5)
""",
        },
        wanted=("[hub] only 3 of 4 workers joined", "did not", "time.sleep", "indexing"),
        helpful=(r"rank 3", r"train\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-more-two-different-errors",
        code="exception",
        convention="process",
        processes=3,
        command="python train.py",
        rank=0,
        files={
            "train.py": """import os, time
r = int(os.environ["RANK"])
time.sleep(0.15 + (0.3 if r == 2 else 0))
if r == 0:
    raise NotImplementedError("sharded optimizer with tied weights")
if r == 2:
    raise TimeoutError("no heartbeat from rank 0 for 300 ms")
time.sleep(5)
"""
        },
        wanted="NotImplementedError: sharded optimizer with tied weights",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network|heartbeat"),
    ),
    Failure(
        name="q-more-oom-killer-one-rank",
        code="host_oom",
        convention="process",
        processes=2,
        command=OOM.format(r=1, b=60_000_000, s="eat.py"),
        rank=1,
        files={
            "eat.py": """import os, time
keep = []
for i in range(60):
    print("buffered", i, "MB x 4", flush=True)
    keep.append(bytearray(os.urandom(4096)) * 1000)
    if os.environ["RANK"] == "0":
        keep.clear()
    time.sleep(0.05)
"""
        },
        wanted=("SIGKILL", "Killed", "out of memory", "ran out of memory", "memory"),
        helpful=(r"memory|smaller|fewer",),
        misleading=(r"firewall|interface|pip install",),
    ),
    Failure(
        name="q-more-quiet-exit-one",
        code="exit_code",
        convention="process",
        processes=2,
        command="python train.py",
        rank=1,
        files={
            "train.py": """import os, sys, time
for i in range(5):
    print("iteration", i, flush=True)
    if os.environ["RANK"] == "1" and i == 3:
        sys.exit(1)
    time.sleep(0.2)
time.sleep(5)
"""
        },
        wanted=("code 1", "exit code 1", "iteration 3"),
        helpful=(r"train\.py", r"sys\.exit", r"rank 1"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-sigterm-from-elsewhere",
        code="signal",
        convention="process",
        processes=3,
        command="python train.py",
        rank=2,
        files={
            "train.py": """import os, signal, time
time.sleep(0.3)
if os.environ["RANK"] == "2":
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
"""
        },
        wanted=("SIGTERM", "signal 15"),
        helpful=(r"kill|sent|outside|SIGTERM",),
        misleading=(r"firewall|interface|pip install|smaller batch",),
    ),
    Failure(
        name="q-more-keyboard-interrupt-rank",
        code="signal",
        also_codes=("exception",),
        convention="process",
        processes=2,
        command="python train.py",
        rank=0,
        files={
            "train.py": """import os, signal, time
time.sleep(0.3)
if os.environ["RANK"] == "0":
    os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
"""
        },
        wanted=("KeyboardInterrupt", "SIGINT"),
        helpful=(r"SIGINT|Ctrl|interrupt|sent", r"train\.py"),
        misleading=(r"firewall|interface|pip install|smaller batch",),
    ),
    Failure(
        name="q-more-grpc-server-gone",
        code="exception",
        convention="process",
        processes=3,
        command="python ps.py",
        rank=0,
        files={
            "ps.py": """import os, sys, time
from concurrent import futures
import grpc
rank = int(os.environ["RANK"])
where = "127.0.0.1:" + os.environ["MASTER_PORT"]
ident = lambda b: b
if rank == 0:
    def push(request, context):
        return request
    handler = grpc.method_handlers_generic_handler(
        "ps", {"push": grpc.unary_unary_rpc_method_handler(push, ident, ident)})
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(where)
    server.start()
    time.sleep(1.5)
    updates = []
    mean = sum(updates) / len(updates)
else:
    call = grpc.insecure_channel(where).unary_unary("/ps/push", ident, ident)
    for i in range(1000):
        call(b"g", wait_for_ready=i == 0, timeout=5)
        time.sleep(0.02)
"""
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"ps\.py",),
        misleading=(WRONG_WAY, r"network|interface"),
    ),
    Failure(
        name="q-more-ffmpeg-missing-one-rank",
        code="exception",
        also_codes=("environment",),
        convention="process",
        processes=2,
        command="python decode.py",
        rank=1,
        files={
            "decode.py": """import os, subprocess, time
if os.environ["RANK"] == "1":
    subprocess.run(["ffprobe6", "-v", "error", "clip_0001.mp4"], check=True)
time.sleep(5)
"""
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: 'ffprobe6'",
        helpful=(r"ffprobe6", r"decode\.py"),
        misleading=(r"firewall|interface|smaller batch|submit again",),
    ),
    Failure(
        name="q-more-read-only-output",
        code="exception",
        also_codes=("data_unavailable",),
        convention="process",
        processes=2,
        command="mkdir -p out_$RANK; unshare -m bash -c 'mount -t tmpfs -o ro none out_$RANK && python save.py'",
        rank=0,
        also=(1,),
        files={"save.py": "import os\nopen(f\"out_{os.environ['RANK']}/model.bin\", 'wb').write(b'1')\n"},
        wanted="OSError: [Errno 30] Read-only file system",
        helpful=(r"out_|output", r"save\.py", r"read-only|writ"),
        misleading=(r"firewall|network|smaller batch|pip install|free .*space",),
    ),
    Failure(
        name="q-more-rust-worker-panics",
        code="exception",
        convention="process",
        processes=2,
        command="bash ./run.sh",
        rank=1,
        files={
            "run.sh": "#!/bin/bash\nset -e\nPATH=$PATH:$HOME/.cargo/bin\nrustc -o w_$RANK w.rs\nexec ./w_$RANK\n",
            "w.rs": """use std::{env, thread, time::Duration};

fn shard(total: usize, rank: usize) -> usize {
    [total / 2, total][..total.min(2) - rank.min(1)][rank]
}

fn main() {
    let rank: usize = env::var("RANK").unwrap().parse().unwrap();
    println!("rank {} shard {}", rank, shard(10, rank));
    thread::sleep(Duration::from_secs(20));
}
""",
        },
        wanted="index out of bounds: the len is 1 but the index is 1",
        helpful=(r"w\.rs",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-node-js-worker-throws",
        code="exception",
        convention="process",
        processes=3,
        command="node worker.js",
        rank=0,
        files={
            "worker.js": """const rank = Number(process.env.RANK);
console.log(JSON.stringify({ level: 30, msg: 'ready', rank }));
setTimeout(() => {
  if (rank === 0) {
    const plan = JSON.parse('{"parts": 3');
    console.log(plan.parts);
  }
}, 200);
setTimeout(() => {}, 8000);
"""
        },
        wanted=("SyntaxError: Expected ',' or '}' after property value in JSON",),
        helpful=(r"worker\.js", r"JSON"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-child-killed-in-wrapper",
        code="signal",
        also_codes=("exit_code",),
        convention="process",
        processes=2,
        command="bash ./wrapper.sh",
        rank=1,
        files={
            "wrapper.sh": """#!/bin/bash
python train.py
rc=$?
echo "[wrapper] $(date +%s) train.py returned $rc"
exit $rc
""",
            "train.py": """import os, time
time.sleep(0.2)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), 9)
time.sleep(5)
""",
        },
        wanted=("Killed", "SIGKILL", "train.py returned 137"),
        helpful=(r"memory|dmesg|kill",),
        misleading=(r"firewall|interface|pip install",),
    ),
    Failure(
        name="q-more-dash-m-no-module",
        code="environment",
        also_codes=("bad_input",),
        convention="process",
        processes=2,
        command="python -m trainer.main --epochs 2",
        rank=0,
        also=(1,),
        files={"src/trainer/__init__.py": "", "src/trainer/main.py": "print(1)\n"},
        wanted="No module named 'trainer'",
        helpful=(r"PYTHONPATH", r"src"),
        misleading=(r"pip install trainer|pip: \[trainer\]", r"firewall|network"),
    ),
    Failure(
        name="q-more-ddp-other-model",
        code="exception",
        also_codes=("collective",),
        convention="process",
        processes=3,
        command="python train.py",
        rank=1,
        also=(),
        files={
            "train.py": """import os, datetime, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank = dist.get_rank()
layers = [torch.nn.Linear(4, 4)]
if rank == 1:
    layers.append(torch.nn.Linear(4, 4))
net = DDP(torch.nn.Sequential(*layers))
"""
        },
        wanted=("DDP expects same model across all ranks",),
        helpful=(r"rank 1", r"train\.py", r"same model"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-more-send-without-recv",
        code="collective",
        convention="process",
        processes=2,
        command="python pipe.py",
        rank=1,
        files={
            "pipe.py": """import os, datetime, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
rank = dist.get_rank()
t = torch.zeros(4)
if rank == 0:
    dist.recv(t, src=1)
else:
    stage = 0
    while stage < 1:
        time.sleep(0.2)
"""
        },
        wanted=("did not", "hung", "stuck", "time.sleep", "was in"),
        helpful=(r"rank 1", r"pipe\.py"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-more-four-nodes-cp-missing",
        code="exit_code",
        also_codes=("data_unavailable",),
        convention="process",
        processes=4,
        nodes=4,
        command="set -e; cp cache/node$NODE_RANK.idx local_$RANK.idx; sleep 4",
        rank=2,
        files={"cache/node0.idx": "0", "cache/node1.idx": "1", "cache/node3.idx": "3"},
        wanted="cp: cannot stat 'cache/node2.idx': No such file or directory",
        helpful=(r"node2\.idx",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-time-limit-while-downloading",
        code="timeout",
        convention="process",
        processes=2,
        command="python prep.py",
        rank=None,
        also=(0, 1),
        limit_s=4,
        files={
            "prep.py": """import time
done = 0
while True:
    done += 3
    print(f"\\rdownloading shards: {done:4d} / 90000", end="", flush=True)
    time.sleep(0.1)
"""
        },
        wanted=("4 s", "time limit", "limits.timeout"),
        helpful=(r"limits\.timeout|--timeout|raise|longer",),
        misleading=(r"firewall|interface|pip install|smaller batch",),
    ),
    Failure(
        name="q-more-tr-two-nodes-segv",
        code="signal",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=(
            "torchrun --nnodes 2 --node_rank $NODE_RANK --nproc_per_node 2 --master_addr $MASTER_ADDR "
            "--master_port $MASTER_PORT train.py"
        ),
        rank=1,
        files={
            "train.py": """import ctypes, os, time
if os.environ["RANK"] == "1":
    time.sleep(0.5)
    ctypes.string_at(1)
time.sleep(60)
"""
        },
        wanted=("SIGSEGV", "Signal 11", "Segmentation fault"),
        helpful=(r"PYTHONFAULTHANDLER|native|ctypes",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-tr-json-config-missing-key",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc_per_node=2 run_clm.py config.json",
        rank=0,
        also=(1,),
        files={
            "config.json": '{"hidden_size": 64, "n_head": 5}\n',
            "run_clm.py": """import json, sys
class Config:
    def __init__(self, **kw):
        self.__dict__.update(kw)
        if self.hidden_size % self.n_head:
            raise ValueError(f"hidden_size ({self.hidden_size}) must be divisible by n_head ({self.n_head})")
Config(**json.load(open(sys.argv[1])))
""",
        },
        wanted="ValueError: hidden_size (64) must be divisible by n_head (5)",
        helpful=(r"config\.json", r"n_head", r"run_clm\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-mpi-vanishes-with-zero",
        code="collective",
        also_codes=("exit_code",),
        convention="mpi",
        processes=3,
        command="python a.py",
        rank=1,
        limit_s=7,
        files={
            "a.py": """from mpi4py import MPI
import os
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    print("rank 1 has nothing to do", flush=True)
    os._exit(0)
comm.Barrier()
"""
        },
        wanted=("rank 1 has nothing to do", "code 0", "had ended", "had exited", "finalize"),
        helpful=(r"rank 1", r"a\.py", r"[Ff]inalize"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-more-mpi-cpp-throws",
        code="exception",
        also_codes=("signal",),
        convention="mpirun",
        num_ranks=3,
        command="mpicxx -o part part.cpp && mpirun --oversubscribe -n 3 ./part",
        rank=0,
        files={
            "part.cpp": """#include <mpi.h>
#include <stdexcept>
#include <string>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int r;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  if (r == 0) throw std::runtime_error("partition 0 has no cells");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
"""
        },
        wanted="partition 0 has no cells",
        helpful=(r"part\.cpp|\bpart\b|cells",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-mpi-assert-8",
        code="exception",
        convention="mpi",
        processes=8,
        command="python -m mpi4py check.py",
        rank=7,
        files={
            "check.py": """from mpi4py import MPI
comm = MPI.COMM_WORLD
n = comm.bcast(13 if comm.rank == 0 else None)
mine = n // 8 + (1 if comm.rank < n % 8 else 0)
assert comm.rank != 7 or mine == 2, f"rank {comm.rank} owns {mine} rows, the kernel needs 2"
comm.Barrier()
"""
        },
        wanted="AssertionError: rank 7 owns 1 rows, the kernel needs 2",
        helpful=(r"check\.py", r"rows"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-more-mpi-oom-killed-rank",
        code="host_oom",
        convention="mpi",
        processes=2,
        command=OOM.replace("$RANK", "$OMPI_COMM_WORLD_RANK").format(r=0, b=120_000_000, s="eat.py"),
        rank=0,
        files={
            "eat.py": """from mpi4py import MPI
import os, time
comm = MPI.COMM_WORLD
comm.Barrier()
keep = []
for i in range(80):
    if comm.rank == 0:
        keep.append(bytearray(os.urandom(4096)) * 1000)
    time.sleep(0.02)
comm.Barrier()
"""
        },
        also_codes=("signal",),
        wanted=("Killed", "SIGKILL", "memory"),
        helpful=(r"memory|smaller|fewer",),
        misleading=(r"firewall|interface|pip install",),
    ),
]
