"""Data that is missing, corrupt, empty, or not what the script takes it for."""

from recorder import Failure

WRONG_WAY = r"firewall|smaller batch|out of memory|raise .{0,20}timeout|submit again|MASTER_PORT"

FAILURES = [
    Failure(
        name="q-data-csv-latin1",
        code="exception",
        command="python make.py && python read.py",
        files={
            "make.py": "open('names.csv', 'wb').write('id,name\\n1,Müller\\n'.encode('latin-1'))\n",
            "read.py": "import csv\nrows = list(csv.DictReader(open('names.csv', encoding='utf-8')))\nprint(rows)\n",
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xfc",
        helpful=(r"encoding|latin", r"names\.csv", r"read\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-pandas-missing-column",
        code="exception",
        command="python features.py",
        files={
            "train.csv": "Age;Income;Target\n30;1000;1\n40;2000;0\n",
            "features.py": """import pandas as pd
df = pd.read_csv("train.csv")
print(df.head())
y = df["Target"]
X = df.drop(columns=["Target"])
""",
        },
        wanted="KeyError: 'Target'",
        helpful=(r"features\.py", r"Target", r"sep"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-npz-not-zip",
        code="exception",
        command="python load.py",
        files={
            "emb.npz": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 120\n",
            "load.py": "import numpy as np\nwith np.load('emb.npz') as z:\n    print(z['a'])\n",
        },
        wanted=("Cannot load file containing pickled data when allow_pickle=False", "allow_pickle"),
        helpful=(r"emb\.npz", r"git.lfs|lfs", r"load\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-json-line-7",
        code="exception",
        command="python prep.py corpus.jsonl",
        files={
            "corpus.jsonl": '{"t": "a"}\n' * 6 + '{"t": "broken\n' + '{"t": "b"}\n',
            "prep.py": """import json, sys
with open(sys.argv[1]) as f:
    for n, line in enumerate(f, 1):
        try:
            rec = json.loads(line)
        except json.JSONDecodeError as e:
            raise RuntimeError(f"{sys.argv[1]}:{n}: not valid JSON") from e
""",
        },
        wanted=("JSONDecodeError: Unterminated string", "corpus.jsonl:7: not valid JSON"),
        helpful=(r"corpus\.jsonl", r"prep\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-empty-dataset-max",
        code="exception",
        command="python stats.py --root data/train",
        files={
            "data/train/.keep": "",
            "stats.py": """import glob
files = glob.glob("data/train/*.png")
print(f"found {len(files)} images")
longest = max(len(f) for f in files)
""",
        },
        wanted=("ValueError: max() arg is an empty sequence", "ValueError: max() iterable argument is empty"),
        helpful=(r"data/train", r"stats\.py", r"empty|no images"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-torch-load-truncated",
        code="exception",
        command="python resume.py",
        files={
            "resume.py": """import torch
torch.save({"w": torch.zeros(1000)}, "last.ckpt")
raw = open("last.ckpt", "rb").read()
open("last.ckpt", "wb").write(raw[: len(raw) // 2])
print("=> resuming from last.ckpt", flush=True)
torch.load("last.ckpt")
"""
        },
        wanted=("PytorchStreamReader failed reading zip archive", "failed finding central directory"),
        helpful=(r"last\.ckpt", r"checkpoint|corrupt|truncated"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-weights-only",
        code="exception",
        command="python eval.py",
        files={
            "eval.py": """import torch
class Meta:
    def __init__(self):
        self.step = 3
torch.save({"meta": Meta(), "w": torch.ones(2)}, "m.pt")
ck = torch.load("m.pt")
"""
        },
        wanted=("Weights only load failed",),
        helpful=(r"weights_only|safe_globals", r"eval\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-hdf5-truncated",
        code="exception",
        command="python read_h5.py",
        venv="extra",
        files={
            "read_h5.py": """import h5py, numpy as np
with h5py.File("x.h5", "w") as f:
    f["a"] = np.zeros(10000)
raw = open("x.h5", "rb").read()
open("x.h5", "wb").write(raw[:3000])
f = h5py.File("x.h5", "r")
"""
        },
        wanted=("truncated file", "Unable to synchronously open file"),
        helpful=(r"x\.h5", r"read_h5\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-permission-as-nobody",
        code="exception",
        also_codes=("data_unavailable",),
        convention="shell",
        command=(
            "mkdir -p secret && echo x > secret/labels.txt && chmod 700 secret && chmod 777 . .. && "
            "setpriv --reuid 65534 --regid 65534 --clear-groups python3 read.py"
        ),
        files={"read.py": "print(open('secret/labels.txt').read())\n"},
        wanted="PermissionError: [Errno 13] Permission denied: 'secret/labels.txt'",
        helpful=(r"labels\.txt|secret", r"chmod|permission|may not"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-input-is-folder",
        code="exception",
        also_codes=("data_unavailable",),
        command="python train.py --data ./input",
        files={
            "input/part-000.csv": "1,2\n",
            "train.py": "import sys\npath = sys.argv[2]\nlines = open(path).readlines()\nprint(len(lines))\n",
        },
        wanted="IsADirectoryError: [Errno 21] Is a directory: './input'",
        helpful=(r"input", r"train\.py", r"part-000"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-pickle-class-gone",
        code="exception",
        command="python dump.py && python load.py",
        files={
            "dump.py": """import pickle
class Vocab:
    def __init__(self): self.w = ["a"]
pickle.dump(Vocab(), open("vocab.pkl", "wb"))
""",
            "load.py": "import pickle\nv = pickle.load(open('vocab.pkl', 'rb'))\nprint(v.w)\n",
        },
        wanted="AttributeError: Can't get attribute 'Vocab' on <module '__main__'",
        helpful=(r"vocab\.pkl", r"load\.py", r"Vocab"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-image-corrupt",
        code="exception",
        command="python thumbs.py",
        files={
            "img/000.jpg": "not an image at all",
            "thumbs.py": """from PIL import Image
import glob
for p in sorted(glob.glob("img/*.jpg")):
    im = Image.open(p)
    im.thumbnail((64, 64))
""",
        },
        wanted="PIL.UnidentifiedImageError: cannot identify image file",
        helpful=(r"000\.jpg", r"thumbs\.py"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-sqlite-no-table",
        code="exception",
        command="python query.py",
        files={
            "query.py": """import sqlite3
db = sqlite3.connect("experiments.db")
cur = db.execute("SELECT loss FROM runs WHERE id = 1")
print(cur.fetchone())
"""
        },
        wanted="sqlite3.OperationalError: no such table: runs",
        helpful=(r"experiments\.db", r"query\.py", r"runs"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-disk-full-checkpoint",
        code="disk_full",
        convention="shell",
        also_codes=("exception",),
        command="mkdir ck; unshare -m bash -c 'mount -t tmpfs -o size=2m none ck && python save.py'",
        files={
            "save.py": """import torch
m = torch.nn.Linear(2000, 2000)
print("epoch 1 done, saving", flush=True)
torch.save(m.state_dict(), "ck/model_0001.pt")
"""
        },
        wanted=("No space left on device", "file write failed", "unexpected pos"),
        helpful=(r"disk|space|muster rm",),
        misleading=(r"network|firewall|pip install|smaller batch",),
    ),
    Failure(
        name="q-data-disk-full-copy",
        code="disk_full",
        convention="shell",
        command="mkdir t; unshare -m bash -c 'mount -t tmpfs -o size=1m none t && cp big.bin t/ && python train.py'",
        files={"big.bin": "y" * 3_000_000, "train.py": "print(1)\n"},
        wanted="No space left on device",
        helpful=(r"disk|space|muster rm", r"big\.bin"),
        misleading=(r"network|firewall|pip install|smaller batch",),
    ),
    Failure(
        name="q-data-http-404",
        code="exception",
        also_codes=("data_unavailable",),
        convention="shell",
        command=(
            "python -m http.server -d empty 28471 >/dev/null 2>&1 & sleep 1; python fetch.py; rc=$?; kill %1; exit $rc"
        ),
        files={
            "empty/x": "",
            "fetch.py": """import urllib.request
print("downloading pretrained weights ...", flush=True)
urllib.request.urlretrieve("http://127.0.0.1:28471/resnet50-v2.pth", "r.pth")
""",
        },
        wanted="urllib.error.HTTPError: HTTP Error 404: File not found",
        helpful=(r"resnet50|address|URL", r"fetch\.py"),
        misleading=(r"firewall|smaller batch|out of memory|pip install",),
    ),
    Failure(
        name="q-data-yaml-tab",
        code="exception",
        command="python train.py",
        files={
            "cfg.yml": "model:\n  dim: 3\n\tlayers: 2\n",
            "train.py": "import yaml\ncfg = yaml.safe_load(open('cfg.yml'))\n",
        },
        wanted=("found character '\\t' that cannot start any token", "yaml.scanner.ScannerError"),
        helpful=(r"cfg\.yml", r"tab"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
    Failure(
        name="q-data-parquet-schema",
        code="exception",
        command="python scan.py",
        files={
            "scan.py": """import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"a": [1, 2]}), "p0.parquet")
print("reading columns a, ts")
t = pq.read_table("p0.parquet", columns=["a"]).column("ts")
"""
        },
        wanted=('Field "ts" does not exist in schema',),
        helpful=(r"scan\.py", r"\bts\b"),
        misleading=(WRONG_WAY, r"pip install"),
    ),
]
