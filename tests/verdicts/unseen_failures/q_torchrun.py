"""Children of `torchrun`."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|submit again|pip install"
ONE = "torchrun --standalone --nproc_per_node {n} {rest}"
TWO = (
    "torchrun --nnodes 2 --node_rank $NODE_RANK --nproc_per_node {n} --master_addr $MASTER_ADDR "
    "--master_port $MASTER_PORT {rest}"
)
PLAIN = "import os, sys, time\nrank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
DIST = (
    "import os, sys, time, datetime\nimport torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=4))\n"
    "rank, world = dist.get_rank(), dist.get_world_size()\n"
)

FAILURES = [
    Failure(
        name="q-tr-child-keyerror",
        code="exception",
        convention="torchrun",
        num_ranks=3,
        command=ONE.format(n=3, rest="train.py --config c.yaml"),
        rank=1,
        files={
            "train.py": PLAIN
            + """
state = {"epoch": 3, "model": {}}
if rank == 1:
    print("resuming at", state["optimizer"])
time.sleep(6)
"""
        },
        wanted="KeyError: 'optimizer'",
        helpful=(r"train\.py", r"optimizer"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-two-nodes-second-node-child",
        code="exception",
        convention="torchrun",
        processes=2,
        nodes=2,
        num_ranks=4,
        command=TWO.format(n=2, rest="train.py"),
        rank=3,
        files={
            "train.py": PLAIN
            + """
import numpy as np
a = np.arange(10)
if rank == 3:
    a = a.reshape(3, 4)
time.sleep(8)
"""
        },
        wanted="ValueError: cannot reshape array of size 10 into shape (3,4)",
        helpful=(r"train\.py", r"reshape"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-child-sigkill",
        code="signal",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=0,
        files={
            "train.py": PLAIN
            + """
print("step 1", flush=True)
if rank == 0:
    os.kill(os.getpid(), 9)
time.sleep(6)
"""
        },
        wanted=("SIGKILL", "Signal 9", "exitcode: -9"),
        helpful=(r"dmesg|memory|kill",),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-tr-script-missing",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="training/main.py"),
        rank=None,
        also=(0, 1),
        files={"train/main.py": "print(1)\n"},
        wanted=("can't open file", "No such file or directory"),
        helpful=(r"main\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-ambiguous-option",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc 2 --gpus 2 train.py",
        rank=None,
        also=(0, 1),
        files={"train.py": "print(1)\n"},
        wanted="torchrun: error: ambiguous option: --nproc",
        helpful=(r"--nproc",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-module-not-found-in-child",
        code="environment",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="pkg/train.py"),
        rank=0,
        also=(1,),
        files={
            "pkg/__init__.py": "",
            "pkg/data.py": "N = 1\n",
            "pkg/train.py": "from pkg.data import N\nprint(N)\n",
        },
        wanted="ModuleNotFoundError: No module named 'pkg'",
        helpful=(r"PYTHONPATH", r"-m pkg", r"pkg.{0,50}(folder|beside|lies)"),
        misleading=(r"pip install pkg|pip: \[pkg\]", r"firewall|network"),
    ),
    Failure(
        name="q-tr-argparse-local-rank",
        code="bad_input",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py --local-rank 0 --lr 0.1"),
        rank=0,
        also=(1,),
        files={
            "train.py": """import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
print(p.parse_args())
"""
        },
        wanted="error: unrecognized arguments: --local-rank 0",
        helpful=(r"--local-rank", r"LOCAL_RANK"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-cuda-set-device",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=0,
        also=(1,),
        files={
            "train.py": """import os, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(2, 2).cuda()
"""
        },
        wanted=("Torch not compiled with CUDA enabled", "has no attribute '_cuda_setDevice'"),
        helpful=(r"GPU|CUDA", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-record-decorated",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=1,
        files={
            "train.py": """import os, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    r = int(os.environ["RANK"])
    if r == 1:
        raise LookupError("no checkpoint found under runs/exp42/ckpt-*.pt")
    time.sleep(8)

if __name__ == "__main__":
    main()
"""
        },
        also_codes=("data_unavailable",),
        wanted="LookupError: no checkpoint found under runs/exp42/ckpt-*.pt",
        helpful=(r"ckpt|exp42", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-child-exit-code-quiet",
        code="exit_code",
        convention="torchrun",
        num_ranks=3,
        command=ONE.format(n=3, rest="train.py"),
        rank=2,
        files={
            "train.py": PLAIN
            + """
if rank == 2:
    print("error: dataset index is older than the data; run make_index.py first", file=sys.stderr, flush=True)
    os._exit(12)
time.sleep(6)
"""
        },
        wanted="error: dataset index is older than the data; run make_index.py first",
        helpful=(r"make_index", r"index"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-rendezvous-missing-node",
        code="rendezvous",
        convention="torchrun",
        num_ranks=4,
        processes=1,
        command=(
            "torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id j1 "
            "--rdzv_conf join_timeout=3,timeout=3 --rdzv_endpoint 127.0.0.1:$MASTER_PORT train.py"
        ),
        rank=None,
        files={"train.py": "print(1)\n"},
        wanted=("RendezvousTimeoutError", "did not"),
        helpful=(r"nnodes", r"node"),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-tr-endpoint-refused",
        code="rendezvous",
        convention="torchrun",
        num_ranks=2,
        command=(
            "torchrun --nnodes 1 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id j2 "
            "--rdzv_conf is_host=0,timeout=3,read_timeout=3 --rdzv_endpoint 127.0.0.1:9 train.py"
        ),
        rank=None,
        also=(0, 1),
        files={"train.py": "print(1)\n"},
        wanted=(
            "RendezvousConnectionError",
            "127.0.0.1",
            "Connection refused",
            "connection to the C10d store has failed",
        ),
        helpful=(r"rdzv.endpoint", r"127\.0\.0\.1|MASTER"),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-tr-early-leaver",
        code="collective",
        convention="torchrun",
        num_ranks=3,
        command=ONE.format(n=3, rest="train.py"),
        rank=0,
        files={
            "train.py": DIST
            + """
t = torch.ones(1)
for i in range(6):
    if rank == 0 and i == 4:
        print("early stopping triggered", flush=True)
        sys.exit(0)
    dist.all_reduce(t)
"""
        },
        wanted=(
            "early stopping triggered",
            "code 0",
            "had exited",
            "had ended",
            "had finished",
            "ended early",
            "exited early",
        ),
        helpful=(r"rank 0", r"train\.py", r"early"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-tr-hung-child-4",
        code="collective",
        convention="torchrun",
        num_ranks=4,
        command=ONE.format(n=4, rest="train.py"),
        rank=2,
        files={
            "train.py": DIST
            + """
import subprocess
t = torch.ones(1)
dist.all_reduce(t)
if rank == 2:
    subprocess.run(["sleep", "45"])
dist.all_reduce(t)
"""
        },
        wanted=("did not", "hung", "stuck", "subprocess.run", "was in"),
        helpful=(r"rank 2", r"train\.py", r"subprocess|sleep"),
        misleading=(WRONG_WAY, r"interface"),
    ),
    Failure(
        name="q-tr-restarts-then-fails",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc_per_node 2 --max_restarts 1 --monitor_interval 0.2 train.py",
        rank=0,
        files={
            "train.py": PLAIN
            + """
n = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
print("restart", n, flush=True)
if rank == 0:
    open("tokens.bin", "rb").seek(-4, 2)
time.sleep(4)
""",
            "tokens.bin": "",
        },
        wanted="OSError: [Errno 22] Invalid argument",
        helpful=(r"tokens\.bin", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-log-dir-redirect",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc_per_node 2 --log-dir logs --redirects 3 --tee 3 train.py",
        rank=1,
        files={
            "train.py": PLAIN
            + """
sizes = ["10", "20", "thirty"]
print("sizes", [int(s) for s in sizes[: rank + 2]], flush=True)
time.sleep(4)
"""
        },
        wanted="ValueError: invalid literal for int() with base 10: 'thirty'",
        helpful=(r"train\.py", r"thirty"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-no-python-binary",
        code="launcher_missing",
        also_codes=("bad_input",),
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc_per_node 2 --no-python ./start_training.bin",
        rank=None,
        also=(0, 1),
        wanted=("No such file or directory: './start_training.bin'", "start_training.bin"),
        helpful=(r"start_training",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-no-python-not-executable",
        code="launcher_missing",
        also_codes=("bad_input",),
        convention="torchrun",
        num_ranks=2,
        command="torchrun --standalone --nproc_per_node 2 --no-python ./train",
        rank=None,
        also=(0, 1),
        files={"train": "#!/bin/bash\necho hi\n"},
        wanted=("Permission denied: './train'", "Permission denied"),
        helpful=(r"chmod", r"executable|bash"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-time-limit-child-stuck",
        code="timeout",
        also_codes=("collective",),
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=1,
        limit_s=40,
        files={
            "train.py": DIST.replace("seconds=4", "seconds=400")
            + """
import queue
t = torch.ones(1)
dist.all_reduce(t)
if rank == 1:
    queue.Queue().get()
dist.all_reduce(t)
"""
        },
        wanted=("queue.Queue().get()", "did not", "waited", "stuck", "was in"),
        helpful=(r"rank 1", r"train\.py", r"queue"),
        misleading=(r"firewall|pip install|interface",),
    ),
    Failure(
        name="q-tr-master-port-taken",
        code="port_trouble",
        convention="torchrun",
        num_ranks=2,
        command=(
            "python hold.py & sleep 0.5; torchrun --nnodes 1 --nproc_per_node 2 --master_addr 127.0.0.1 "
            "--master_port 29611 train.py; rc=$?; kill %1; exit $rc"
        ),
        rank=None,
        also=(0, 1),
        files={
            "hold.py": "import socket, time\ns = socket.create_server(('0.0.0.0', 29611))\ntime.sleep(200)\n",
            "train.py": "print(1)\n",
        },
        wanted=("EADDRINUSE", "address already in use", "29611"),
        helpful=(r"29611", r"MASTER_PORT", r"standalone"),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-tr-loader-worker-child",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=1,
        files={
            "train.py": """import os, time, torch
from torch.utils.data import Dataset, DataLoader
rank = int(os.environ["RANK"])

class D(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        if rank == 1 and i == 9:
            raise EOFError(f"sample {i}: truncated record")
        return torch.tensor(i)

for b in DataLoader(D(), batch_size=4, num_workers=1):
    print(rank, b.tolist(), flush=True)
time.sleep(8)
"""
        },
        wanted="EOFError: sample 9: truncated record",
        helpful=(r"train\.py", r"record|sample"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-tr-ddp-device-ids-on-cpu",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        command=ONE.format(n=2, rest="train.py"),
        rank=0,
        also=(1,),
        files={
            "train.py": DIST
            + """
from torch.nn.parallel import DistributedDataParallel as DDP
m = DDP(torch.nn.Linear(4, 4), device_ids=[int(os.environ["LOCAL_RANK"])])
"""
        },
        wanted="DistributedDataParallel device_ids and output_device arguments only work with single-device",
        helpful=(r"device_ids", r"train\.py"),
        misleading=(WRONG_WAY, r"network"),
    ),
]
