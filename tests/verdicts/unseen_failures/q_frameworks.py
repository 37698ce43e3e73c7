"""Accelerate, Lightning, Ray and others that wrap what went wrong in something of their own."""

from recorder import Failure

WRONG_WAY = r"firewall|submit again|smaller batch|out of memory|pip install"

FAILURES = [
    Failure(
        name="q-fw-accelerate-single-raises",
        code="exception",
        venv="frames",
        command=(
            "accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no "
            "train.py --lr 0.1"
        ),
        files={"train.py": "import sys\nlr = sys.argv[1] * 0.5\n"},
        wanted="TypeError: can't multiply sequence by non-int of type 'float'",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-fw-accelerate-bad-precision",
        code="exception",
        venv="frames",
        command="python train.py",
        files={"train.py": "from accelerate import Accelerator\nacc = Accelerator(mixed_precision='int4', cpu=True)\n"},
        wanted=("Unknown mixed_precision mode: int4", "int4"),
        helpful=(r"train\.py", r"mixed_precision"),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-fw-lightning-gpu-requested",
        code="exception",
        venv="frames",
        command="python train.py",
        files={
            "train.py": """import pytorch_lightning as pl
t = pl.Trainer(accelerator="gpu", devices=2, max_epochs=1)
"""
        },
        wanted="No supported gpu backend found!",
        helpful=(r"GPU", r"accelerator", r"train\.py"),
        misleading=(r"firewall|smaller batch|out of memory|MASTER_PORT",),
    ),
    Failure(
        name="q-fw-lightning-step-returns-wrong",
        code="exception",
        venv="frames",
        command="python fit.py",
        files={
            "fit.py": """import logging, torch, pytorch_lightning as pl
from torch.utils.data import DataLoader
logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        x, y = batch
        return ((self.net(x) - y) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

ds = [torch.randn(4) for _ in range(8)]
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(Lit(), DataLoader(ds, batch_size=4))
"""
        },
        wanted=("too many values to unpack (expected 2)",),
        helpful=(r"fit\.py", r"training_step|batch"),
        misleading=(r"firewall|smaller batch|out of memory|MASTER_PORT",),
    ),
    Failure(
        name="q-fw-lightning-misconfiguration",
        code="exception",
        venv="frames",
        command="python fit.py",
        files={
            "fit.py": """import logging, torch, pytorch_lightning as pl
from torch.utils.data import DataLoader
logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)

class Lit(pl.LightningModule):
    def training_step(self, batch, i):
        return torch.zeros((), requires_grad=True)

trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(Lit(), DataLoader([1.0], num_workers=0))
"""
        },
        wanted=("configure_optimizers",),
        helpful=(r"fit\.py", r"configure_optimizers"),
        misleading=(r"firewall|smaller batch|out of memory|MASTER_PORT",),
    ),
    Failure(
        name="q-fw-cuda-build-no-driver",
        code="exception",
        venv="frames",
        command="python train.py",
        files={
            "train.py": """import torch
print("torch", torch.__version__, flush=True)
model = torch.nn.Linear(4, 4).to("cuda")
"""
        },
        wanted=("Found no NVIDIA driver on your system",),
        helpful=(r"GPU|driver|cpu", r"train\.py"),
        misleading=(r"firewall|smaller batch|out of memory|MASTER_PORT",),
    ),
    Failure(
        name="q-fw-nccl-build-no-gpu-gang",
        code="exception",
        convention="process",
        processes=2,
        venv="frames",
        command="python train.py",
        rank=0,
        also=(1,),
        files={
            "train.py": """import torch.distributed as dist
dist.init_process_group("nccl")
dist.barrier()
"""
        },
        wanted=("ProcessGroupNCCL is only supported with GPUs, no GPUs found",),
        helpful=(r"gloo", r"GPU"),
        misleading=(r"firewall|smaller batch|out of memory|NCCL_DEBUG",),
    ),
    Failure(
        name="q-fw-flask-port-in-use",
        code="exit_code",
        also_codes=("port_trouble",),
        command="python hold.py & sleep 0.4; python serve.py; rc=$?; kill %1; exit $rc",
        files={
            "hold.py": "import socket, time\ns = socket.create_server(('127.0.0.1', 5057))\ntime.sleep(12)\n",
            "serve.py": "from flask import Flask\nFlask('x').run(port=5057)\n",
        },
        wanted="Address already in use",
        helpful=(r"5057|port", r"serve\.py"),
        misleading=(r"smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-fw-absl-flag-validator",
        code="bad_input",
        also_codes=("exit_code",),
        command="python main.py --steps=-3",
        files={
            "main.py": """from absl import app, flags
flags.DEFINE_integer("steps", 1, "how many", lower_bound=0)
def main(_):
    pass
app.run(main)
"""
        },
        wanted="flag --steps=-3: -3 is not a non-negative integer",
        helpful=(r"--steps",),
        misleading=(WRONG_WAY, r"network"),
    ),
    Failure(
        name="q-fw-uvicorn-import-string",
        code="exit_code",
        also_codes=("bad_input",),
        command="uvicorn serve:application --port 5058",
        files={"serve.py": "app = None\n"},
        wanted=('Attribute "application" not found in module "serve"',),
        helpful=(r"serve", r"application|\bapp\b"),
        misleading=(WRONG_WAY, r"network"),
    ),
]
