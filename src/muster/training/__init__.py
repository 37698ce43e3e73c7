"""What a training script needs again and again: ranks, exact resume, throughput, large batches. Needs torch alone.

Nothing here owns the training loop; each name is useful without the others.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("muster.training needs PyTorch; install it with `pip install 'muster-ml[torch]'`") from error

from muster.training.checkpoint import Checkpointer, CheckpointFailed, NoGoodCheckpoint
from muster.training.lamb import LAMB
from muster.training.lars import LARS
from muster.training.noise import Advice, NoiseScale, advise
from muster.training.sampling import ResumableSampler
from muster.training.schedule import batch_size, learning_rate
from muster.training.throughput import Throughput
from muster.training.world import World, join

__all__ = [
    "LAMB",
    "LARS",
    "Advice",
    "CheckpointFailed",
    "Checkpointer",
    "NoGoodCheckpoint",
    "NoiseScale",
    "ResumableSampler",
    "Throughput",
    "World",
    "advise",
    "batch_size",
    "join",
    "learning_rate",
]
