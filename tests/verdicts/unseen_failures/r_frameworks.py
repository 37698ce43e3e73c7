"""Lightning, Transformers, Keras and other libraries."""
# ruff: noqa: E501

from recorder import Failure

WRONG_WAY = r"firewall|submit again|MASTER_PORT|smaller batch"
LIGHTNING = """import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        x, y = batch
BODY

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = DataLoader(TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,))), batch_size=4)
"""


def used(name: str, source: str, code: str = "exception", **labels: object) -> Failure:
    labels = {"misleading": (WRONG_WAY,), "command": "python fit.py", "files": {"fit.py": source}} | labels
    return Failure(name=name, code=code, **labels)  # type: ignore[arg-type]


def lightning(body: str, trainer: str) -> str:
    return LIGHTNING.replace("BODY", body) + trainer


FAILURES = [
    used(
        "r-lib-lightning-no-loss",
        lightning(
            '        return {"accuracy": (self.layer(x).argmax(1) == y).float().mean()}',
            "L.Trainer(max_epochs=1, accelerator='cpu', logger=False, enable_checkpointing=False).fit(Net(), data)\n",
        ),
        wanted=("the 'loss' key needs to be present",),
        helpful=(r"loss|fit\.py|training_step",),
    ),
    used(
        "r-lib-lightning-gpu-on-cpu",
        lightning(
            "        return self.layer(x).sum()",
            "L.Trainer(max_epochs=1, accelerator='gpu', devices=2).fit(Net(), data)\n",
        ),
        also_codes=("environment", "bad_input"),
        wanted=("No supported gpu backend found", "CUDAAccelerator", "can not run on your system"),
        helpful=(r"cpu|GPU|accelerator|--compute",),
    ),
    used(
        "r-lib-lightning-ddp-one-fails",
        lightning(
            "        if self.global_rank == 1 and index == 1:\n            raise ValueError(f'label {y[0] + 900} outside of the 2 classes')\n        return torch.nn.functional.cross_entropy(self.layer(x), y)",
            "L.Trainer(max_epochs=1, accelerator='cpu', devices=2, strategy='ddp', logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Net(), data)\n",
        ),
        convention="spawn",
        wanted=("ValueError: label 90", "outside of the 2 classes"),
        helpful=(r"fit\.py|label|classes",),
    ),
    Failure(
        name="r-lib-lightning-torchrun",
        code="exception",
        convention="torchrun",
        num_ranks=2,
        rank=1,
        command="torchrun --nproc_per_node 2 --master_port $MASTER_PORT fit.py",
        files={
            "fit.py": lightning(
                "        if self.global_rank == 1 and index == 1:\n            y = y.reshape(3, 2)\n        return torch.nn.functional.cross_entropy(self.layer(x), y)",
                "L.Trainer(max_epochs=1, accelerator='cpu', devices=2, strategy='ddp', logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(Net(), data)\n",
            )
        },
        wanted="shape '[3, 2]' is invalid for input of size 4",
        helpful=(r"fit\.py|reshape|shape",),
        misleading=(WRONG_WAY,),
    ),
    used(
        "r-lib-tokenizer-folder-missing",
        "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('./models/bert-de')\n",
        wanted=("models/bert-de",),
        helpful=(r"bert-de|fit\.py",),
    ),
    used(
        "r-lib-hub-offline",
        "import os\nos.environ['HF_HUB_OFFLINE'] = '1'\nos.environ['HF_HUB_CACHE'] = 'hub'\nfrom transformers import AutoConfig\nAutoConfig.from_pretrained('acme/text-small')\n",
        also_codes=("data_unavailable",),
        wanted=("couldn't find them in the cached files", "acme/text-small", "offline mode is enabled"),
        helpful=(r"acme/text-small|offline|cache|HF_HUB_OFFLINE",),
    ),
    used(
        "r-lib-token-out-of-vocabulary",
        """import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=16, n_layer=1, n_head=2))
ids = torch.tensor([[1, 5, 250]])
print(model(input_ids=ids, labels=ids).loss)
""",
        wanted="IndexError: index out of range in self",
        helpful=(r"vocab|fit\.py|embedding|index",),
    ),
    used(
        "r-lib-tokenizers-json-broken",
        """from tokenizers import Tokenizer
open("tokenizer.json", "w").write('{"version": "1.0", "model": {"type": "BPE", "vocab": {')
Tokenizer.from_file("tokenizer.json")
""",
        wanted=("EOF while parsing",),
        helpful=(r"tokenizer\.json|fit\.py",),
    ),
    used(
        "r-lib-padding-token",
        """from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
raw = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tok = PreTrainedTokenizerFast(tokenizer_object=raw)
print(tok(["a b", "a"], padding=True, return_tensors="pt"))
""",
        wanted=("Asking to pad but the tokenizer does not have a padding token",),
        helpful=(r"pad_token|padding|fit\.py",),
    ),
    used(
        "r-lib-keras-shape",
        """import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.zeros((10, 9)), np.zeros(10), verbose=0)
""",
        wanted=("expected shape=(None, 8), found shape", "incompatible with the layer", "is incompatible"),
        helpful=(r"fit\.py|shape|Input",),
    ),
    used(
        "r-lib-keras-backend-missing",
        "import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras\nprint(keras.backend.backend())\n",
        code="environment",
        wanted="ModuleNotFoundError: No module named 'jax'",
        helpful=(r"jax|KERAS_BACKEND",),
    ),
    used(
        "r-lib-safetensors-header",
        """import torch
from safetensors.torch import load_file, save_file
save_file({"w": torch.ones(1000)}, "model.safetensors")
data = open("model.safetensors", "rb").read()
open("model.safetensors", "wb").write(data[:300])
load_file("model.safetensors")
""",
        wanted=("Error while deserializing header",),
        helpful=(r"model\.safetensors|truncat|corrupt|incomplete|fit\.py",),
    ),
    used(
        "r-lib-h5-signature",
        "import h5py\nopen('features.h5', 'w').write('<html>404 not found</html>')\nh5py.File('features.h5')\n",
        wanted=("file signature not found",),
        helpful=(r"features\.h5",),
    ),
    used(
        "r-lib-optimizer-groups",
        """import torch
a, b = torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
old = torch.optim.Adam(a.parameters())
new = torch.optim.Adam(b.parameters())
new.load_state_dict(old.state_dict())
""",
        wanted="loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        helpful=(r"fit\.py|optimizer|checkpoint|parameter",),
    ),
    used(
        "r-lib-inplace-autograd",
        """import torch
x = torch.ones(3, requires_grad=True)
y = x.exp()
y += 1
y.sum().backward()
""",
        wanted=("one of the variables needed for gradient computation has been modified by an inplace operation",),
        helpful=(r"inplace|in-place|anomaly|fit\.py",),
    ),
    used(
        "r-lib-dtype-mixed",
        "import torch\nlayer = torch.nn.Linear(4, 4).half()\nlayer(torch.randn(2, 4))\n",
        wanted=("mat1 and mat2 must have the same dtype",),
        helpful=(r"dtype|half|fit\.py",),
    ),
    used(
        "r-lib-datasets-column",
        """from datasets import Dataset
d = Dataset.from_dict({"text": ["a", "b"]})
d = d.map(lambda row: {"n": len(row["content"])})
""",
        wanted="KeyError: 'content'",
        helpful=(r"content|fit\.py|column",),
    ),
    used(
        "r-lib-collate-sizes",
        """import torch
from torch.utils.data import DataLoader
items = [torch.zeros(n) for n in (3, 5, 3, 4)]
for batch in DataLoader(items, batch_size=2, num_workers=1):
    print(batch.shape)
""",
        wanted=(
            "stack expects each tensor to be equal size",
            "each element in list of batch should be of equal size",
            "Trying to resize storage that is not resizable",
        ),
        helpful=(r"collate|pad|size|fit\.py",),
    ),
    Failure(
        name="r-lib-accelerate-gang-hang",
        code="collective",
        convention="process",
        processes=2,
        rank=1,
        command="python fit.py",
        variables={"ACCELERATE_USE_CPU": "true"},
        files={
            "fit.py": """import datetime, threading
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=6))])
print("process", acc.process_index, "of", acc.num_processes, flush=True)
if acc.process_index == 1:
    print("waiting for the cache of the main process", flush=True)
    threading.Event().wait()
acc.wait_for_everyone()
"""
        },
        wanted=("did not", "Event().wait()", "hung", "stuck", "waiting for the cache"),
        helpful=(r"fit\.py|Event|rank 1|cache",),
        misleading=(r"pip install|smaller batch|disk",),
    ),
    Failure(
        name="r-lib-checkpoint-folder-missing-gang",
        code="exception",
        convention="process",
        processes=2,
        rank=0,
        also=(1,),
        command="python fit.py",
        files={
            "fit.py": """import torch, torch.distributed as dist
from torch.distributed.checkpoint import load
dist.init_process_group("gloo")
state = {"w": torch.zeros(4)}
load(state, checkpoint_id="ckpt/step_100")
"""
        },
        wanted=("ckpt/step_100", "CheckpointException", ".metadata"),
        helpful=(r"ckpt/step_100|fit\.py|checkpoint",),
        misleading=(WRONG_WAY,),
    ),
]
