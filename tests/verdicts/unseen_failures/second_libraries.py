"""Single jobs: exceptions of the libraries that people use. The labels were given before any verdict was seen."""

from functools import partial

from recorder import Failure

job = partial(Failure, code="exception", misleading=(r"\bmemory\b|firewall|pip install",))
ml = partial(job, venv="ml")

FAILURES = [
    ml(
        name="n-pandas-merge-on-object-and-int",
        command="python features.py",
        files={
            "features.py": """\
import io

import pandas as pd

USERS = "id,country\\n1,de\\n2,fr\\n"
CLICKS = "id,item\\nu1,7\\nu2,9\\n"


def load(text):
    return pd.read_csv(io.StringIO(text))


def build():
    users, clicks = load(USERS), load(CLICKS)
    print("users", users.shape, "clicks", clicks.shape)
    table = clicks.merge(users, on="id", how="left", validate="m:1")
    return table.groupby("country").size()


if __name__ == "__main__":
    print(build())
""",
        },
        wanted="You are trying to merge on",
        helpful=(r"features\.py", r"\bmerge\b|\bid\b|astype|dtype"),
    ),
    ml(
        name="n-sklearn-nan-in-input",
        command="python -W ignore fit_forest.py --trees 20",
        files={
            "fit_forest.py": """\
import argparse
import logging

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
parser = argparse.ArgumentParser()
parser.add_argument("--trees", type=int)
options = parser.parse_args()
rng = np.random.default_rng(3)
X = rng.normal(size=(200, 6))
y = (X[:, 0] > 0).astype(int)
X[17, 4] = np.nan
logging.info("matrix %s, %d positive", X.shape, y.sum())
model = make_pipeline(StandardScaler(), LogisticRegression())
model.fit(X, y)
logging.info("score %.3f", model.score(X, y))
""",
        },
        wanted="Input X contains NaN",
        helpful=(r"fit_forest\.py", r"NaN|missing values|imput"),
    ),
    ml(
        name="n-transformers-offline-model",
        command="python classify.py",
        variables={"HF_HUB_OFFLINE": "1", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"},
        files={
            "classify.py": """\
from transformers import AutoConfig, AutoTokenizer

TEXTS = ["a fine film", "not worth the time"]
NAME = "acme-research/review-classifier-large"


def main():
    print("loading", NAME, flush=True)
    config = AutoConfig.from_pretrained(NAME)
    tokenizer = AutoTokenizer.from_pretrained(NAME)
    print(config.hidden_size, tokenizer(TEXTS))


main()
""",
        },
        wanted=(
            "outgoing traffic has been disabled",
            "couldn't connect to",
            "cannot find the requested files",
            "We couldn't",
        ),
        helpful=(r"HF_HUB_OFFLINE|offline", r"review-classifier|model", r"classify\.py", r"download|cache"),
        misleading=(r"\bmemory\b|firewall|pip install",),
    ),
    ml(
        name="n-hydra-config-missing-key-in-struct",
        command="python app.py model=small trainer.max_epoch=3",
        code="exit_code",
        also_codes=("exception", "bad_input"),
        files={
            "conf/config.yaml": "defaults:\n  - model: small\n  - _self_\ntrainer:\n  max_epochs: 10\n  lr: 0.01\n",
            "conf/model/small.yaml": "layers: 2\nwidth: 64\n",
            "app.py": """\
import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    print("layers", config.model.layers)
    for epoch in range(config.trainer.max_epochs):
        print("epoch", epoch)


main()
""",
        },
        wanted=("Could not override 'trainer.max_epoch'", "Key 'max_epoch' is not in struct"),
        helpful=(r"max_epoch", r"\+trainer|override"),
    ),
    ml(
        name="n-papermill-cell-fails",
        command="python make_notebook.py && papermill --log-output report.ipynb out.ipynb -p quarter 5 2>&1",
        files={
            "make_notebook.py": """\
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

cells = [new_markdown_cell("# Quarterly report"), new_code_cell("quarter = 1")]
cells[1].metadata["tags"] = ["parameters"]
cells.append(new_code_cell("sales = {1: 10.5, 2: 11.0, 3: 9.75, 4: 14.25}"))
cells.append(new_code_cell("print('sales of the quarter:', sales[quarter])"))
cells.append(new_code_cell("print('done')"))
notebook = new_notebook(cells=cells)
notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
nbformat.write(notebook, "report.ipynb")
""",
        },
        wanted="KeyError: 5",
        helpful=(r"report\.ipynb|notebook|cell", r"quarter", r"\bsales\b"),
    ),
    ml(
        name="n-lightning-logs-a-vector",
        command="python train_lit.py",
        variables={"CUDA_VISIBLE_DEVICES": ""},
        files={
            "lit.py": """\
import lightning as L
import torch


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layer(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val/acc", (self.layer(x).argmax(1) == y).float())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
            "train_lit.py": """\
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

from lit import Lit

data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=16)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(Lit(), loader, loader)
""",
        },
        wanted="the tensor must have a single element",
        helpful=(r"lit\.py", r"val/acc|\bself\.log\b|\bmean\b"),
    ),
    ml(
        name="n-jax-shape-mismatch-in-jit",
        command="python -u mlp.py",
        files={
            "mlp.py": """\
import jax
import jax.numpy as jnp

jax.config.update("jax_platforms", "cpu")


def init(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [(jax.random.normal(k, (a, b)), jnp.zeros(b)) for k, a, b in zip(keys, sizes, sizes[1:])]


def forward(params, x):
    for weight, bias in params:
        x = jnp.tanh(x @ weight.T + bias)
    return x


@jax.jit
def step(params, x, y):
    return jax.value_and_grad(lambda p: jnp.mean((forward(p, x) - y) ** 2))(params)


params = init(jax.random.PRNGKey(0), [8, 16, 1])
print("parameters:", sum(w.size + b.size for w, b in params))
for number in range(5):
    loss, _ = step(params, jnp.ones((4, 8)), jnp.ones((4, 1)))
    print(number, loss)
""",
        },
        wanted="dot_general requires contracting dimensions to have the same shape",
        helpful=(r"mlp\.py", r"\bforward\b|weight\.T|shape"),
    ),
    ml(
        name="n-polars-column-typo",
        command="python report.py",
        files={
            "report.py": """\
import polars as pl

frame = pl.DataFrame({"city": ["Oslo", "Bergen", "Oslo"], "temperature": [3.5, 6.0, 2.0]})


def summary(frame):
    return (
        frame.lazy()
        .group_by("city")
        .agg(pl.col("temprature").mean().alias("mean"), pl.len())
        .sort("mean")
        .collect()
    )


print(frame)
print(summary(frame))
""",
        },
        wanted=("temprature", "ColumnNotFoundError"),
        helpful=(r"report\.py", r"temprature|column"),
    ),
    ml(
        name="n-sqlalchemy-table-missing-chained",
        command="python evaluate.py --run 12",
        files={
            "store.py": """\
from sqlalchemy import create_engine, text

ENGINE = create_engine("sqlite:///metrics.db")


def metrics(run):
    with ENGINE.connect() as connection:
        rows = connection.execute(text("select step, loss from train_metrics where run = :run"), {"run": run})
        return list(rows)
""",
            "evaluate.py": """\
import argparse

from store import metrics

parser = argparse.ArgumentParser()
parser.add_argument("--run", type=int, required=True)
run = parser.parse_args().run
print("evaluating run", run)
for step, loss in metrics(run):
    print(step, loss)
""",
        },
        wanted="no such table: train_metrics",
        helpful=(r"store\.py|evaluate\.py", r"train_metrics|metrics\.db"),
    ),
    ml(
        name="n-xgboost-label-values",
        command="python boost.py",
        files={
            "boost.py": """\
import numpy as np
import xgboost as xgb

rng = np.random.default_rng(0)
X = rng.random((300, 5))
y = rng.integers(1, 4, size=300)
print("classes:", sorted(set(y.tolist())))
train = xgb.DMatrix(X, label=y)
settings = {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "nthread": 1}
model = xgb.train(settings, train, num_boost_round=10)
print(model.predict(train)[:3])
""",
        },
        wanted="label must be discrete values in the range of [0, num_class)",
        helpful=(r"boost\.py", r"\blabels?\b|num_class"),
    ),
    ml(
        name="n-arrow-schema-differs",
        command="python convert.py",
        files={
            "convert.py": """\
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([("user", pa.int64()), ("score", pa.float64())])
BATCHES = [
    {"user": [1, 2], "score": [0.5, 0.25]},
    {"user": [3, 4], "score": [0.1, 0.9]},
    {"user": ["5", "6"], "score": [0.3, 0.7]},
]


def main():
    with pq.ParquetWriter("scores.parquet", SCHEMA) as writer:
        for number, batch in enumerate(BATCHES):
            writer.write_table(pa.table(batch))
            print("wrote batch", number, flush=True)


main()
""",
        },
        wanted="Table schema does not match schema used to create file",
        helpful=(r"convert\.py", r"schema|\buser\b|int64"),
    ),
    ml(
        name="n-loguru-diagnose-frames",
        command="python pipeline.py",
        files={
            "pipeline.py": """\
import sys

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="INFO", backtrace=True, diagnose=True)


def normalise(values):
    top = max(values)
    return [value / top for value in values]


@logger.catch(onerror=lambda _: sys.exit(3))
def main():
    logger.info("normalising three columns")
    for column in ([1, 2, 4], [3, 9], []):
        logger.info("result {}", normalise(column))


main()
""",
        },
        wanted="max() arg is an empty sequence",
        helpful=(r"pipeline\.py", r"\bnormalise\b|\bmax\b|empty"),
    ),
    job(
        name="n-torch-state-dict-of-other-model",
        command="python resume.py",
        files={
            "models.py": """\
from torch import nn


def encoder(layers, width):
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(layers)]
    return nn.Sequential(*blocks)
""",
            "resume.py": """\
import torch

from models import encoder

torch.save({"model": encoder(2, 32).state_dict(), "epoch": 7}, "last.pt")
model = encoder(3, 32)
checkpoint = torch.load("last.pt")
print("resuming from epoch", checkpoint["epoch"])
model.load_state_dict(checkpoint["model"])
print("resumed")
""",
        },
        wanted=("Missing key(s) in state_dict", "Error(s) in loading state_dict"),
        helpful=(r"resume\.py|models\.py", r"last\.pt|checkpoint|layers"),
    ),
    job(
        name="n-torch-inplace-breaks-backward",
        command="python rnn.py",
        files={
            "rnn.py": """\
import torch

torch.manual_seed(0)
cell = torch.nn.GRUCell(4, 8)
readout = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *readout.parameters()])
hidden = torch.zeros(2, 8)
for step in range(5):
    hidden = cell(torch.randn(2, 4), hidden)
    loss = readout(hidden).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    print("step", step, "loss", round(loss.item(), 4))
""",
        },
        wanted="one of the variables needed for gradient computation has been modified by an inplace operation",
        helpful=(r"rnn\.py", r"detach|in-?place|retain_graph"),
    ),
    job(
        name="n-requests-connection-refused-in-task",
        command="python fetch_labels.py",
        files={
            "fetch_labels.py": """\
import logging
import time

import requests

logging.basicConfig(level="INFO")
BASE = "http://127.0.0.1:9/labels"


def fetch(page, attempts=3):
    for attempt in range(attempts):
        try:
            return requests.get(f"{BASE}?page={page}", timeout=2).json()
        except requests.ConnectionError as error:
            logging.warning("page %d attempt %d: %s", page, attempt + 1, type(error).__name__)
            time.sleep(0.3)
            last = error
    raise RuntimeError(f"label service gave nothing for page {page}") from last


labels = [fetch(page) for page in range(3)]
print(len(labels))
""",
        },
        wanted="Connection refused",
        helpful=(r"fetch_labels\.py", r"label service|127\.0\.0\.1|\bBASE\b|\bport\b|listening"),
        misleading=(r"\bmemory\b|pip install",),
    ),
]
