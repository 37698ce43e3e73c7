"""TensorFlow, JAX, Horovod, DeepSpeed, Lightning, transformers, tokenizers, safetensors."""

from recorder import Failure

HUNG = ("did not", "hung", "stuck", "does not respond", "not respond")

FAILURES = [
    Failure(
        name="lightning-training-step",
        way="an exception below Lightning's trainer",
        code="exception",
        venv="torch",
        command="python fit.py",
        files={
            "fit.py": """\
import torch, lightning as L
from torch.utils.data import DataLoader
class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(3, 1)
    def training_step(self, batch, i):
        x, y = batch
        return self.l(x).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
L.Trainer(max_epochs=1, accelerator='cpu', logger=False, enable_checkpointing=False).fit(M(), \
DataLoader(torch.ones(8, 3), batch_size=4, num_workers=0))
"""
        },
        wanted="ValueError: too many values to unpack (expected 2)",
        helpful=(r"fit\.py|batch|training_step",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "num_workers",
        ),
    ),
    Failure(
        name="lightning-gpu-misconfigured",
        way="Lightning is asked for GPUs that are not there",
        code="exception",
        also_codes=("bad_input",),
        venv="torch",
        command="python gpus.py",
        files={
            "gpus.py": """\
import lightning as L
L.Trainer(accelerator='gpu', devices=2)
"""
        },
        wanted="No supported gpu backend found!",
        helpful=("accelerator|GPU|--compute",),
        misleading=("out of memory|firewall",),
    ),
    Failure(
        name="lightning-two-devices-one-raises",
        way="Lightning starts a second process; it raises in validation",
        convention="spawn",
        code="exception",
        venv="torch",
        command="python multi.py",
        files={
            "multi.py": """\
import torch, lightning as L
from torch.utils.data import DataLoader
class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(3, 1)
    def training_step(self, batch, i):
        if self.global_rank == 1 and i == 1:
            raise RuntimeError('tokenizer produced an empty sample in shard 1')
        return self.l(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
if __name__ == '__main__':
    L.Trainer(max_epochs=1, accelerator='cpu', devices=2, strategy='ddp_spawn', logger=False, \
enable_checkpointing=False, enable_progress_bar=False).fit(M(), DataLoader(torch.ones(16, 3), batch_size=2))
"""
        },
        wanted="tokenizer produced an empty sample in shard 1",
        helpful=(r"multi\.py|shard 1|sample",),
        misleading=("network|firewall|smaller batch|MASTER_PORT|pip install",),
    ),
    Failure(
        name="transformers-no-such-model",
        way="a model that is neither here nor reachable",
        code="exception",
        also_codes=("data_unavailable",),
        venv="torch",
        variables={"HF_HUB_OFFLINE": "1", "HF_HOME": "/tmp/w-unseen/hf"},
        command="python tok.py",
        files={
            "tok.py": """\
from transformers import AutoTokenizer
AutoTokenizer.from_pretrained('bert-base-uncased')
"""
        },
        wanted=(
            "couldn't connect to 'https://huggingface.co'",
            "We couldn't connect to",
            "Cannot find the requested files in the disk cache",
            "outgoing traffic has been disabled",
            "bert-base-uncased",
        ),
        helpful=("HF_HUB_OFFLINE|bert-base-uncased|offline|cache",),
        misleading=("memory|MASTER_PORT|NCCL",),
    ),
    Failure(
        name="tokenizers-broken-json",
        way="a tokenizer file with a mistake",
        code="exception",
        venv="torch",
        command="python fast.py",
        files={
            "fast.py": """\
from tokenizers import Tokenizer
t = Tokenizer.from_file('tokenizer.json')
""",
            "tokenizer.json": '{"version": "1.0", "model": {"type": "BPEX", "vocab": {}}}',
        },
        wanted=(
            "did not match any variant",
            "Exception:",
        ),
        helpful=(r"tokenizer\.json|fast\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "memory",
        ),
    ),
    Failure(
        name="safetensors-truncated",
        way="a safetensors file cut off",
        code="exception",
        also_codes=("data_unavailable",),
        venv="torch",
        command="python st.py",
        files={
            "st.py": """\
import numpy as np
from safetensors.numpy import save_file, load_file
save_file({'w': np.ones(1000)}, 'model.safetensors')
d = open('model.safetensors', 'rb').read()
open('model.safetensors', 'wb').write(d[:4000])
load_file('model.safetensors')
"""
        },
        wanted=(
            "SafetensorError: Error while deserializing header",
            "Error while deserializing",
        ),
        helpful=(r"model\.safetensors|st\.py|download|incomplete|truncat",),
        misleading=("out of memory|firewall|pip install",),
    ),
    Failure(
        name="h5py-not-hdf5",
        way="a file that is not HDF5",
        code="exception",
        also_codes=("data_unavailable",),
        venv="torch",
        command="python h5.py",
        files={
            "h5.py": """\
import h5py
h5py.File('features.h5', 'r')
""",
            "features.h5": """\
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
<html>404 Not Found</html>
""",
        },
        wanted="file signature not found",
        helpful=(r"features\.h5|h5\.py",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "memory",
        ),
    ),
    Failure(
        name="accelerate-config-missing",
        way="accelerate launch with a configuration that is not there",
        convention="torchrun",
        num_ranks=1,
        code="exception",
        also_codes=(
            "bad_input",
            "exit_code",
        ),
        rank=None,
        also=(0,),
        venv="torch",
        command="accelerate launch --config_file fsdp.yaml train.py",
        files={"train.py": "print(1)\n"},
        wanted=("fsdp.yaml",),
        helpful=(r"fsdp\.yaml|config_file",),
        misleading=("memory|firewall",),
    ),
    Failure(
        name="tf-shape-mismatch",
        way="TensorFlow finds incompatible shapes",
        code="exception",
        venv="tf",
        variables={"CUDA_VISIBLE_DEVICES": ""},
        command="python model.py",
        files={
            "model.py": """\
import tensorflow as tf
@tf.function
def step(a, b):
    return tf.linalg.matmul(a, b)
print(step(tf.ones([2, 3]), tf.ones([4, 2])))
"""
        },
        wanted=(
            "Dimensions must be equal, but are 3 and 4",
            "Matrix size-incompatible",
        ),
        helpful=(r"model\.py|shape|dimension",),
        misleading=("out of memory|firewall|GPU|cuda|pip install",),
    ),
    Failure(
        name="tf-keras-nan-terminates",
        way="a NaN check in TensorFlow",
        code="exception",
        venv="tf",
        command="python check.py",
        files={
            "check.py": """\
import tensorflow as tf
x = tf.math.log(tf.constant([-1.0, 2.0]))
tf.debugging.check_numerics(x, 'log-probabilities')
"""
        },
        wanted="log-probabilities : Tensor had NaN values",
        helpful=(r"check\.py|log|NaN",),
        misleading=("out of memory|firewall|GPU|cuda|pip install",),
    ),
    Failure(
        name="tf-config-index-too-large",
        way="TF_CONFIG names a worker that its cluster does not have",
        code="exception",
        also_codes=(
            "bad_input",
            "rendezvous",
        ),
        venv="tf",
        variables={
            "TF_CONFIG": ('{"cluster": {"worker": ["127.0.0.1:31877"]}, "task": {"type": "worker", "index": 3}}')
        },
        command="python mw.py",
        files={
            "mw.py": """\
import tensorflow as tf
s = tf.distribute.MultiWorkerMirroredStrategy()
print(s.num_replicas_in_sync)
"""
        },
        wanted="`task_id` 3 exceeds the maximum id of worker",
        helpful=("TF_CONFIG|index",),
        misleading=("out of memory|GPU|cuda|pip install",),
    ),
    Failure(
        name="jax-shape-error",
        way="JAX finds incompatible shapes below jit",
        code="exception",
        venv="jax",
        command="python jit.py",
        files={
            "jit.py": """\
import jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return jnp.dot(w, x)
step(jnp.ones((3, 4)), jnp.ones((5,)))
"""
        },
        wanted=("dot_general requires contracting dimensions to have the same shape, got (4,) and (5,)"),
        helpful=(r"jit\.py|shape|step",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "memory",
        ),
    ),
    Failure(
        name="jax-tracer-bool",
        way="a Python if on a traced value",
        code="exception",
        venv="jax",
        command="python traced.py",
        files={
            "traced.py": """\
import jax, jax.numpy as jnp
@jax.jit
def clip(x):
    if x > 1:
        return jnp.ones_like(x)
    return x
clip(jnp.float32(3))
"""
        },
        wanted="TracerBoolConversionError",
        helpful=(r"traced\.py|jnp\.where|lax\.cond|clip",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "memory",
        ),
    ),
    Failure(
        name="jax-debug-nans",
        way="JAX's NaN check",
        code="exception",
        venv="jax",
        variables={"JAX_DEBUG_NANS": "1"},
        command="python nans.py",
        files={
            "nans.py": """\
import jax.numpy as jnp
def loss(x):
    return jnp.log(x).sum()
print(loss(jnp.array([1.0, -1.0])))
"""
        },
        wanted="FloatingPointError: invalid value (nan) encountered in",
        helpful=(r"nans\.py|log|nan",),
        misleading=(
            "network|firewall|smaller batch|MASTER_PORT|pip install",
            "memory",
        ),
    ),
    Failure(
        name="jax-distributed-late-process",
        way="jax.distributed: one process of three does not come",
        convention="process",
        processes=3,
        code="rendezvous",
        rank=2,
        venv="jax",
        command="python dist.py",
        files={
            "dist.py": """\
import os, time
R = int(os.environ['RANK'])
def convert():
    time.sleep(300)
if R == 2:
    print('converting', flush=True)
    convert()
import jax
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", 3, R, initialization_timeout=6)
print(jax.process_count())
"""
        },
        wanted=(
            *HUNG,
            "late",
            "convert",
            "DEADLINE_EXCEEDED",
            "missing",
        ),
        helpful=("rank 2|convert",),
        misleading=(r"memory|\bpip\b",),
    ),
    Failure(
        name="jax-distributed-one-raises",
        way="jax.distributed: one process raises, the others lose it",
        convention="process",
        processes=3,
        code="exception",
        rank=1,
        venv="jax",
        command="python dist2.py",
        files={
            "dist2.py": """\
import os, time, jax
R = int(os.environ['RANK'])
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", 3, R, initialization_timeout=30)
print('ready', R, flush=True)
if R == 1:
    params = {'encoder': 1}
    params['decoder']
time.sleep(5)
"""
        },
        wanted="KeyError: 'decoder'",
        helpful=(r"dist2\.py|decoder",),
        misleading=(r"memory|\bpip\b|firewall",),
    ),
    Failure(
        name="deepspeed-batch-sizes",
        way="DeepSpeed's batch sizes do not agree",
        code="exception",
        also_codes=("bad_input",),
        venv="ds",
        command="python ds.py",
        files={
            "ds.py": """\
from deepspeed.runtime.config import DeepSpeedConfig
import os
os.environ.update(WORLD_SIZE='1', RANK='0')
DeepSpeedConfig({'train_batch_size': 32, 'train_micro_batch_size_per_gpu': 5, 'gradient_accumulation_steps': 2})
"""
        },
        wanted=("train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size"),
        helpful=(r"train_batch_size|micro|ds\.py",),
        misleading=("memory|firewall",),
    ),
    Failure(
        name="horovod-mismatched-shapes",
        way="Horovod finds different shapes",
        convention="mpirun",
        num_ranks=3,
        code="collective",
        also_codes=("exception",),
        also=(
            1,
            2,
        ),
        venv="hvd",
        limit_s=60.0,
        command="mpirun --oversubscribe -n 3 python hv.py",
        files={
            "hv.py": """\
import torch, horovod.torch as hvd
hvd.init()
x = torch.ones(4 if hvd.rank() == 2 else 3)
hvd.allreduce(x, name='grads')
print('done')
"""
        },
        wanted="Mismatched ALLREDUCE tensor shapes",
        helpful=(r"shape|grads|hv\.py",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="horovod-one-raises",
        way="Horovod: one rank raises, the others' collective is cancelled",
        convention="mpirun",
        num_ranks=3,
        code="exception",
        rank=1,
        venv="hvd",
        limit_s=60.0,
        command="mpirun --oversubscribe -n 3 python hv2.py",
        files={
            "hv2.py": """\
import torch, horovod.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(2), name='warm')
if hvd.rank() == 1:
    raise StopIteration('shard 1 is exhausted')
hvd.allreduce(torch.ones(2), name='step')
"""
        },
        wanted="StopIteration: shard 1 is exhausted",
        helpful=(r"hv2\.py|shard 1",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
]
