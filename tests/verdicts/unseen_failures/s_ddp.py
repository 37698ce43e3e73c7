"""Gangs of torch ranks that the platform starts itself."""

from recorder import Failure

FAILURES = [
    Failure(
        name="s-ddp-head-unused",
        code="exception",
        convention="process",
        processes=2,
        command="python -u twohead.py",
        files={
            "twohead.py": r"""import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class TwoHead(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(10, 10)
        self.boxes = torch.nn.Linear(10, 4)
        self.masks = torch.nn.Linear(10, 1)

    def forward(self, x, masks=False):
        x = self.body(x)
        return self.masks(x) if masks else self.boxes(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(TwoHead())
opt = torch.optim.AdamW(model.parameters())
for step in range(4):
    opt.zero_grad()
    model(torch.randn(2, 10)).pow(2).mean().backward()
    opt.step()
    print("step", step, flush=True)
dist.destroy_process_group()
""",
        },
        wanted="Expected to have finished reduction in the prior iteration before starting a new one",
        helpful=(r"find_unused_parameters|unused|twohead\.py",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
    Failure(
        name="s-ddp-join-slow-preprocessing",
        code="rendezvous",
        convention="process",
        processes=3,
        command="python -u main.py",
        files={
            "main.py": r"""import datetime, os, time
import torch.distributed as dist

rank = int(os.environ["RANK"])


def build_index():
    print(f"rank {rank}: no index found, building it (takes some minutes)", flush=True)
    while True:
        time.sleep(0.5)


if rank == 1:
    build_index()
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
print("ready")
""",
        },
        wanted=("did not", "building it", "build_index", "2/3 clients joined"),
        helpful=(r"rank 1|build_index|index|main\.py|timeout",),
        misleading=(r"memory|pip install",),
        rank=1,
    ),
    Failure(
        name="s-ddp-fixed-world-size",
        code="rendezvous",
        convention="process",
        processes=3,
        command="python -u main.py",
        files={
            "main.py": r"""import datetime, os
import torch.distributed as dist

WORLD = 4  # 4 nodes
print("joining as", os.environ["RANK"], "of", WORLD, flush=True)
dist.init_process_group(
    "gloo",
    init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    rank=int(os.environ["RANK"]),
    world_size=WORLD,
    timeout=datetime.timedelta(seconds=15),
)
""",
        },
        wanted=("3/4 clients joined", "wait timeout after 15000ms"),
        helpful=(r"world|processes|main\.py",),
        misleading=(r"memory|pip install",),
        rank=None,
    ),
    Failure(
        name="s-ddp-monitored-barrier-names-two",
        code="collective",
        convention="process",
        processes=4,
        command="python -u tokenize_all.py",
        files={
            "tokenize_all.py": r"""import datetime
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


seed = [27, 97, 0, 871][rank]
print("rank", rank, "seed", seed, flush=True)
steps = collatz(seed)
print("rank", rank, "steps", steps, flush=True)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=10))
""",
        },
        wanted=("Rank 2 failed to pass monitoredBarrier", "while n != 1"),
        helpful=(r"rank 2|collatz|tokenize_all\.py",),
        misleading=(r"memory|firewall",),
        rank=2,
    ),
    Failure(
        name="s-ddp-checkpoint-part-broken",
        code="exception",
        convention="process",
        processes=4,
        command="python -u prepare.py && python -u resume.py",
        files={
            "prepare.py": r"""import os
import torch

rank = os.environ["RANK"]
os.makedirs("ckpt", exist_ok=True)
torch.save({"step": 500, "part": torch.ones(1000)}, f"ckpt/part{rank}.pt")
if rank == "3":  # the copy of last night broke off
    data = open("ckpt/part3.pt", "rb").read()
    open("ckpt/part3.pt", "wb").write(data[: len(data) // 2])
""",
            "resume.py": r"""import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.load(f"ckpt/part{rank}.pt")
print(f"rank {rank} resumes at {state['step']}", flush=True)
dist.barrier()
""",
        },
        wanted="PytorchStreamReader failed reading zip archive: failed finding central directory",
        helpful=(r"part3\.pt|ckpt|checkpoint|resume\.py",),
        misleading=(r"network|memory",),
        rank=3,
    ),
    Failure(
        name="s-ddp-loader-worker-bad-image",
        code="exception",
        convention="process",
        processes=2,
        command="python -u images.py",
        files={
            "images.py": r"""import io
import torch
import torch.distributed as dist
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def encoded(i):
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (i, i, i)).save(out, "PNG")
    return out.getvalue() if i != 13 else b"<html>404 Not Found</html>"


class Images(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(encoded(i)))
        return torch.tensor(image.getpixel((0, 0)), dtype=torch.float32)


dist.init_process_group("gloo")
data = Images()
sampler = DistributedSampler(data, shuffle=False)
for i, batch in enumerate(DataLoader(data, batch_size=4, sampler=sampler, num_workers=1)):
    total = batch.sum()
    dist.all_reduce(total)
    print("batch", i, total.item(), flush=True)
""",
        },
        wanted="PIL.UnidentifiedImageError: cannot identify image file",
        helpful=(r"image|images\.py",),
        misleading=(r"network|out of memory|shm",),
        rank=1,
    ),
    Failure(
        name="s-ddp-shm-of-loader",
        code="shm_too_small",
        convention="process",
        processes=2,
        command="./small_shm.sh python -u wide.py",
        files={
            "small_shm.sh": (
                "#!/bin/bash\n# as the containers of the cluster have it\n"
                'if [ "$RANK" = 1 ]; then\n'
                'exec unshare -m bash -c \'mount -t tmpfs -o size=2m shm /dev/shm && exec "$@"\' -- "$@"\nfi\n'
                'exec "$@"\n'
            ),
            "wide.py": r"""import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Wide(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.zeros(3, 512, 512)


dist.init_process_group("gloo")
for i, batch in enumerate(DataLoader(Wide(), batch_size=4, num_workers=2)):
    t = batch.mean()
    dist.all_reduce(t)
    print("batch", i, flush=True)
""",
        },
        wanted=(
            "insufficient shared memory (shm)",
            "Bus error",
            "No space left on device",
            "unable to write to file </torch_",
        ),
        helpful=(r"shm|shared memory|workers",),
        misleading=(r"network|firewall",),
        rank=1,
    ),
    Failure(
        name="s-ddp-own-port-thread",
        code="port_trouble",
        convention="process",
        processes=2,
        command="python -u start.py",
        files={
            "start.py": r"""import os, socket
import torch.distributed as dist

os.environ["MASTER_PORT"] = "29613"
if os.environ["RANK"] == "0":
    status = socket.create_server(("127.0.0.1", 29613))
    print("status page on 29613", flush=True)
dist.init_process_group("gloo")
""",
        },
        wanted=("EADDRINUSE", "address already in use"),
        helpful=(r"29613|\bport\b|start\.py",),
        misleading=(r"memory|firewall",),
        rank=0,
    ),
    Failure(
        name="s-ddp-sampler-of-other-size",
        code="exception",
        convention="process",
        processes=4,
        command="NUM_REPLICAS=3 python -u sample.py",
        files={
            "sample.py": r"""import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
sampler = DistributedSampler(range(100), num_replicas=int(os.environ["NUM_REPLICAS"]), rank=dist.get_rank())
print(dist.get_rank(), len(sampler), flush=True)
dist.barrier()
""",
        },
        wanted="ValueError: Invalid rank 3, rank should be in the interval [0, 2]",
        helpful=(r"NUM_REPLICAS|num_replicas|sample\.py",),
        misleading=(r"network|memory",),
        rank=3,
    ),
    Failure(
        name="s-ddp-anomaly-log-of-zero",
        code="exception",
        convention="process",
        processes=3,
        command="python -u anomaly.py",
        files={
            "anomaly.py": r"""import torch
import torch.distributed as dist

torch.autograd.set_detect_anomaly(True)
dist.init_process_group("gloo")
rank = dist.get_rank()
w = torch.nn.Parameter(torch.ones(3))
for step in range(5):
    x = torch.tensor([1.0, 2.0, 3.0])
    if rank == 2 and step == 3:
        x[1] = 0.0
    loss = (torch.sqrt(w * x) * x.clamp(max=0).add(0.0)).sum() + (torch.log(w * x) * 0).sum()
    loss.backward()
    dist.all_reduce(w.grad)
    print(f"rank {rank} step {step}", flush=True)
""",
        },
        wanted="returned nan values in its",
        helpful=(r"anomaly\.py|sqrt|zero|nan",),
        misleading=(r"network|memory",),
        rank=2,
    ),
    Failure(
        name="s-ddp-rpc-remote-error",
        code="exception",
        convention="process",
        processes=3,
        command="python -u actors.py",
        files={
            "actors.py": r"""import os
import torch
import torch.distributed.rpc as rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LEVELS = {"easy": 1, "hard": 3}


def rollout(level):
    if rank == 2:
        LEVELS.pop("hard", None)
    return torch.full((2,), float(LEVELS[level]))


rpc.init_rpc(f"actor{rank}" if rank else "learner", rank=rank, world_size=world)
if rank == 0:
    for level in ("easy", "hard"):
        futures = [rpc.rpc_async(f"actor{r}", rollout, args=(level,)) for r in range(1, world)]
        print(level, sum(f.wait().sum() for f in futures), flush=True)
rpc.shutdown()
""",
        },
        wanted="KeyError: 'hard'",
        helpful=(r"actors\.py|rollout|hard",),
        misleading=(r"network|memory",),
        rank=2,
    ),
    Failure(
        name="s-ddp-tensor-sizes-differ",
        code="collective",
        convention="process",
        processes=3,
        command="python -u gather_preds.py",
        files={
            "gather_preds.py": r"""import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
preds = torch.arange(34 if rank == world - 1 else 33, dtype=torch.float32)
print(f"rank {rank}: {len(preds)} predictions", flush=True)
out = [torch.empty_like(preds) for _ in range(world)]
dist.all_gather(out, preds)
print("gathered", flush=True)
dist.barrier()
""",
        },
        wanted=("34 predictions", "op.preamble.length", "gloo::EnforceNotMet"),
        helpful=(r"gather_preds\.py|size|shape|same length|pad",),
        misleading=(r"firewall|memory",),
        rank=2,
        also_codes=("exception",),
    ),
    Failure(
        name="s-ddp-rank-zero-downloads-forever",
        code="timeout",
        convention="process",
        processes=3,
        command="python -u fetch.py",
        limit_s=22,
        files={
            "fetch.py": r"""import os, pathlib, time
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
done = pathlib.Path("model.bin.done")
if rank == 0:
    lock = pathlib.Path("model.bin.lock")
    lock.touch()  # left by an earlier run
    while lock.exists():
        print("waiting for the lock model.bin.lock", flush=True)
        time.sleep(2)
    done.touch()
dist.barrier()
print("weights are here")
""",
        },
        wanted=("did not", "hung", "stuck", "waiting for the lock model.bin.lock", "time.sleep"),
        helpful=(r"lock|fetch\.py|rank 0",),
        misleading=(r"memory|firewall",),
        rank=0,
    ),
    Failure(
        name="s-ddp-state-dict-renamed",
        code="exception",
        convention="process",
        processes=2,
        command="python -u load.py",
        files={
            "load.py": r"""import torch
import torch.distributed as dist

dist.init_process_group("gloo")
old = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
new = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
new.load_state_dict({f"module.{k}": v for k, v in old.state_dict().items()})
dist.barrier()
""",
        },
        wanted="Error(s) in loading state_dict for Sequential",
        helpful=(r"load\.py|state_dict|module\.|checkpoint|prefix",),
        misleading=(r"network|memory",),
        rank=0,
        also=(1,),
    ),
    Failure(
        name="s-ddp-uneven-batches-last-rank-ends",
        code="collective",
        convention="process",
        processes=3,
        command="python -u epoch.py",
        files={
            "epoch.py": r"""import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
files = [4, 4, 3][rank]
print(f"[rank {rank}] {files} files", flush=True)
model = DistributedDataParallel(torch.nn.Linear(6, 1))
for n in range(files):
    model(torch.randn(8, 6)).mean().backward()
    print(f"[rank {rank}] file {n} done", flush=True)
print(f"[rank {rank}] epoch finished", flush=True)
""",
        },
        wanted=("[rank 2] 3 files", "[rank 2] epoch finished", "code 0"),
        helpful=(r"epoch\.py|rank 2|uneven|join|same number|batches|drop_last",),
        misleading=(r"firewall|memory",),
        rank=2,
    ),
]
