"""Mistakes in scripts of one process, as many hands write them."""

from recorder import Failure

WRONG_WAY = r"network|firewall|smaller batch|out of memory|raise .{0,20}timeout|submit again|MASTER_PORT"

FAILURES = [
    Failure(
        name="q-argparse-bad-choice",
        code="bad_input",
        command="python train.py --precision bf17 --epochs 3",
        files={
            "train.py": """import argparse
p = argparse.ArgumentParser(description="Train a thing")
p.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
p.add_argument("--epochs", type=int, default=1)
args = p.parse_args()
print(args)
"""
        },
        wanted="argument --precision: invalid choice: 'bf17'",
        helpful=(r"--precision", r"fp32|bf16"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-argparse-string-for-int",
        code="bad_input",
        command="python -u main.py --batch-size 32.0 --lr 1e-3",
        files={
            "main.py": """import argparse, sys
print("starting on", sys.platform)
ap = argparse.ArgumentParser()
ap.add_argument("--batch-size", type=int)
ap.add_argument("--lr", type=float)
opt = ap.parse_args()
"""
        },
        wanted="argument --batch-size: invalid int value: '32.0'",
        helpful=(r"--batch-size", r"32\.0|whole number|integer|\bint\b"),
        misleading=(WRONG_WAY, r"smaller"),
    ),
    Failure(
        name="q-config-attribute-namespace",
        code="exception",
        command="python train.py --cfg configs/base.json",
        files={
            "configs/base.json": '{"optim": {"lr": 0.1, "wd": 0.0}, "max_steps": 100}\n',
            "train.py": """import json, sys, types, logging
logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s] %(name)s - %(message)s")
log = logging.getLogger("trainer")

def load(path):
    def hook(d):
        return types.SimpleNamespace(**d)
    with open(path) as f:
        return json.load(f, object_hook=hook)

cfg = load(sys.argv[2])
log.info("config loaded from %s", sys.argv[2])
for step in range(cfg.max_steps):
    lr = cfg.optim.lr
    warm = cfg.optim.warmup_steps
    if step < warm:
        lr *= step / warm
""",
        },
        wanted="AttributeError: 'types.SimpleNamespace' object has no attribute 'warmup_steps'",
        helpful=(r"train\.py", r"warmup_steps", r"base\.json"),
        misleading=(WRONG_WAY, r"pip"),
    ),
    Failure(
        name="q-none-from-env",
        code="exception",
        command="python scripts/run.py",
        files={
            "scripts/run.py": """import os
bucket = os.environ.get("EXPERIMENT_BUCKET")
run_id = os.environ.get("RUN_ID", "local")
print(f"[run {run_id}] preparing output location")
out = bucket + "/" + run_id
print("writing to", out)
"""
        },
        wanted="TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'",
        helpful=(r"run\.py", r"EXPERIMENT_BUCKET", r"environment_variables"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-numpy-matmul-dims",
        code="exception",
        command="python fit.py",
        files={
            "fit.py": """import numpy as np

class Linear:
    def __init__(self, i, o):
        self.w = np.random.randn(i, o)
    def __call__(self, x):
        return x @ self.w

net = [Linear(64, 128), Linear(256, 10)]
x = np.random.randn(32, 64)
for i, layer in enumerate(net):
    print("layer", i, "input", x.shape)
    x = layer(x)
"""
        },
        wanted="ValueError: matmul: Input operand 1 has a mismatch in its core dimension 0",
        helpful=(r"fit\.py", r"256|128"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-import-beside-package",
        code="environment",
        command="python tools/train_net.py",
        files={
            "mylib/__init__.py": "",
            "mylib/engine.py": "def go():\n    print('go')\n",
            "tools/train_net.py": "import sys\nprint(sys.version)\nfrom mylib.engine import go\ngo()\n",
        },
        wanted="ModuleNotFoundError: No module named 'mylib'",
        helpful=(r"PYTHONPATH", r"python -m tools", r"mylib.{0,60}(folder|beside|lies|directory)"),
        misleading=(r"pip install mylib|pip: \[mylib\]", WRONG_WAY),
    ),
    Failure(
        name="q-import-renamed-symbol",
        code="environment",
        also_codes=("exception",),
        command="python t.py",
        files={"t.py": "import collections\nfrom collections import Mapping, OrderedDict\nprint(OrderedDict)\n"},
        wanted="ImportError: cannot import name 'Mapping' from 'collections'",
        helpful=(r"collections\.abc", r"t\.py", r"Python 3\.(9|10)"),
        misleading=(WRONG_WAY, r"pip install collections"),
    ),
    Failure(
        name="q-pip-name-differs",
        code="environment",
        command="python detect.py --img a.png",
        files={"detect.py": "import argparse\nimport cv2\n\nprint(cv2.__version__)\n"},
        wanted="ModuleNotFoundError: No module named 'cv2'",
        helpful=(r"opencv",),
        misleading=(r"pip install cv2|pip: \[cv2\]", WRONG_WAY),
    ),
    Failure(
        name="q-sklearn-missing-late",
        code="environment",
        command="python train.py",
        files={
            "train.py": """import numpy as np, time
X = np.random.rand(100, 4)
for epoch in range(3):
    time.sleep(0.05)
    print(f"Epoch {epoch+1}/3 - loss: {1/(epoch+1):.4f}")
print("evaluating ...")
def evaluate():
    from sklearn.metrics import roc_auc_score
    return roc_auc_score([0, 1], [0.2, 0.9])
evaluate()
"""
        },
        wanted="ModuleNotFoundError: No module named 'sklearn'",
        helpful=(r"scikit-learn",),
        misleading=(r"pip install sklearn|pip: \[sklearn\]", WRONG_WAY),
    ),
    Failure(
        name="q-syntax-python2",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import sys
lr = 0.1
for epoch in xrange(10):
    print "epoch %d lr %f" % (epoch, lr)
"""
        },
        wanted="SyntaxError: Missing parentheses in call to 'print'",
        helpful=(r"train\.py", r"Python 2|2to3|python2"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-tabs-and-spaces",
        code="exception",
        command="python model/train.py",
        files={"model/train.py": "def f(x):\n    if x:\n\treturn 1\n    return 2\nprint(f(0))\n"},
        wanted="TabError: inconsistent use of tabs and spaces in indentation",
        helpful=(r"train\.py", r"line 3|tabs"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-dataclass-unexpected-key",
        code="exception",
        command="python run_exp.py",
        files={
            "params.yaml": "hidden: 64\nlearning_rate: 0.01\nlayers: 4\n",
            "run_exp.py": """import yaml
from dataclasses import dataclass

@dataclass
class Params:
    hidden: int = 32
    lr: float = 0.1
    layers: int = 2

params = Params(**yaml.safe_load(open("params.yaml")))
""",
        },
        wanted="TypeError: Params.__init__() got an unexpected keyword argument 'learning_rate'",
        helpful=(r"learning_rate", r"params\.yaml", r"run_exp\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-chained-keyerror-in-registry",
        code="exception",
        command="python train.py",
        files={
            "train.py": """REG = {"resnet18": object, "resnet50": object}

class RegistryError(Exception):
    pass

def build(name):
    try:
        return REG[name]()
    except KeyError as e:
        raise RegistryError(f"could not build model (known: {sorted(REG)})") from e

def main():
    print("=> creating model")
    try:
        m = build("resnet34")
    except RegistryError as e:
        raise SystemError("setup of experiment failed") from e

main()
"""
        },
        wanted=("KeyError: 'resnet34'",),
        helpful=(r"train\.py", r"resnet34"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-click-missing-option",
        code="bad_input",
        command="python cli.py train --epochs 3",
        files={
            "cli.py": """import click

@click.group()
def cli():
    pass

@cli.command()
@click.option("--data-dir", required=True, type=click.Path())
@click.option("--epochs", default=1)
def train(data_dir, epochs):
    click.echo(data_dir)

cli()
"""
        },
        wanted="Error: Missing option '--data-dir'",
        helpful=(r"--data-dir",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-hydra-unknown-override",
        code="bad_input",
        also_codes=("exit_code",),
        command="python app.py optimzer.lr=0.1",
        venv="extra",
        files={
            "conf/config.yaml": "optimizer:\n  lr: 0.01\nepochs: 2\n",
            "app.py": """import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(cfg)

main()
""",
        },
        wanted="Could not override 'optimzer.lr'",
        helpful=(r"optimzer", r"\+optimzer|config\.yaml"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-omegaconf-missing-mandatory",
        code="exception",
        command="python app.py",
        venv="extra",
        files={
            "conf/config.yaml": "data:\n  root: ???\n  workers: 4\n",
            "app.py": """import hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    print("workers", cfg.data.workers)
    print("root", cfg.data.root)

if __name__ == "__main__":
    main()
""",
        },
        wanted="Missing mandatory value: data.root",
        helpful=(r"data\.root", r"config\.yaml", r"app\.py"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-typer-bad-value",
        code="bad_input",
        command="python main.py --epochs ten",
        venv="extra",
        files={
            "main.py": """import typer

def main(epochs: int = typer.Option(..., min=1)):
    print(epochs)

typer.run(main)
"""
        },
        wanted="Invalid value for '--epochs'",
        helpful=(r"--epochs",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-fire-no-such-command",
        code="bad_input",
        command="python run.py trian --steps=5",
        venv="extra",
        files={
            "run.py": """import fire

class App:
    def train(self, steps=1):
        return steps
    def evaluate(self):
        return 0

fire.Fire(App)
"""
        },
        wanted="Could not consume arg: trian",
        helpful=(r"trian", r"\btrain\b"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-pydantic-settings-error",
        code="exception",
        command="python train.py",
        files={
            "settings.json": '{"batch": "many", "lr": -1}\n',
            "train.py": """import pathlib
from pydantic import BaseModel, Field

class Settings(BaseModel):
    batch: int
    lr: float = Field(gt=0)

s = Settings.model_validate_json(pathlib.Path("settings.json").read_text())
""",
        },
        wanted=("2 validation errors for Settings", "Input should be a valid integer"),
        helpful=(r"settings\.json", r"batch", r"train\.py"),
        misleading=(r"smaller batch", r"network|firewall|out of memory"),
    ),
    Failure(
        name="q-sys-exit-message-after-check",
        code="exit_code",
        command="python train.py",
        files={
            "train.py": """import sys
print("loading vocabulary ... 30522 tokens")
vocab, emb = 30522, 30000
if vocab != emb:
    sys.exit(f"FATAL: vocabulary has {vocab} entries but the embedding has {emb} rows; aborting")
"""
        },
        wanted="FATAL: vocabulary has 30522 entries but the embedding has 30000 rows",
        helpful=(r"train\.py", r"embedding|vocabulary"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-logged-exception-then-exit-3",
        code="exception",
        also_codes=("exit_code",),
        command="python train.py",
        files={
            "train.py": """import logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
log = logging.getLogger("fit")

def step(batch):
    return {"loss": 1.0}["losss"]

try:
    for i in range(4):
        step(i)
except Exception:
    log.exception("training failed")
    log.info("saving last state to ckpt/last.pt")
    log.info("bye")
    sys.exit(3)
"""
        },
        wanted="KeyError: 'losss'",
        helpful=(r"train\.py", r"losss"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-caught-warning-then-assert",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import traceback
def optional():
    import fused_kernels_ext
try:
    optional()
except ImportError:
    traceback.print_exc()
    print("WARNING: fused kernels not available, falling back to the slow path")

history = [0.9, 0.8, float("nan")]
for i, loss in enumerate(history):
    print("iter", i, "loss", loss)
    assert loss == loss, f"loss is NaN at iteration {i}"
"""
        },
        wanted="AssertionError: loss is NaN at iteration 2",
        helpful=(r"train\.py", r"learning rate|anomaly|NaN"),
        misleading=(r"fused_kernels_ext", WRONG_WAY),
    ),
    Failure(
        name="q-recursion-in-config",
        code="exception",
        command="python resolve.py",
        files={
            "resolve.py": """cfg = {"a": "${b}", "b": "${a}"}
def resolve(key):
    v = cfg[key]
    if v.startswith("${"):
        return resolve(v[2:-1])
    return v
print(resolve("a"))
"""
        },
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(r"resolve\.py",),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-async-gather-failure",
        code="exception",
        command="python loader.py",
        files={
            "loader.py": """import asyncio, random

async def fetch(i):
    await asyncio.sleep(0.01 * i)
    if i == 3:
        raise ValueError(f"shard {i:05d} has a wrong magic number")
    return i

async def heartbeat():
    while True:
        await asyncio.sleep(0.01)
        print("heartbeat ok")

async def main():
    hb = asyncio.create_task(heartbeat())
    try:
        await asyncio.gather(*(fetch(i) for i in range(6)))
    finally:
        hb.cancel()
        print("cleaned up")

asyncio.run(main())
"""
        },
        wanted="ValueError: shard 00003 has a wrong magic number",
        helpful=(r"loader\.py", r"shard"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-taskgroup-two-errors",
        code="exception",
        command="python ingest.py",
        files={
            "ingest.py": """import asyncio

async def read(name):
    await asyncio.sleep(0)
    table = {"a": 1}
    return table[name]

async def main():
    async with asyncio.TaskGroup() as tg:
        for n in ("a", "part-b", "a"):
            tg.create_task(read(n))

asyncio.run(main())
"""
        },
        wanted="KeyError: 'part-b'",
        helpful=(r"ingest\.py", r"part-b"),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-thread-pool-future",
        code="exception",
        command="python prep.py",
        files={
            "prep.py": """from concurrent.futures import ThreadPoolExecutor

def tokenise(line):
    left, right = line.split("\\t")
    return left, int(right)

lines = ["a\\t1", "b\\t2", "c 3", "d\\t4"]
with ThreadPoolExecutor(2) as ex:
    rows = list(ex.map(tokenise, lines))
print(len(rows))
"""
        },
        wanted="ValueError: not enough values to unpack (expected 2, got 1)",
        helpful=(r"prep\.py",),
        misleading=(WRONG_WAY,),
    ),
    Failure(
        name="q-daemon-thread-error-then-os-exit",
        code="exception",
        also_codes=("exit_code",),
        command="python serve.py",
        files={
            "serve.py": """import os, threading, time

class Prefetch(threading.Thread):
    def run(self):
        self.n = 0
        while True:
            self.n += 1
            if self.n == 3:
                raise OSError(5, "Input/output error", "/data/shard-7.tar")

t = Prefetch(name="prefetcher", daemon=True)
t.start()
while t.is_alive():
    time.sleep(0.01)
print("main: prefetcher is gone, leaving", flush=True)
os._exit(70)
"""
        },
        wanted=("[Errno 5] Input/output error: '/data/shard-7.tar'",),
        helpful=(r"shard-7", r"serve\.py"),
        misleading=(r"firewall|smaller batch|submit again",),
    ),
    Failure(
        name="q-unclosed-gen-del-noise",
        code="exception",
        command="python train.py",
        files={
            "train.py": """import atexit

class Writer:
    def __init__(self, path):
        self.path = path
    def __del__(self):
        self.handle.close()

def goodbye():
    print("Run summary: loss 0.31 | see ./runs/latest for details")

atexit.register(goodbye)
w = Writer("x")
epochs = "5"
for e in range(epochs):
    print(e)
"""
        },
        wanted="TypeError: 'str' object cannot be interpreted as an integer",
        helpful=(r"train\.py",),
        misleading=(WRONG_WAY, r"handle"),
    ),
]
