"""Horovod's API without a compiler, for ranks in which the real package is not installed (docs/horovod.md).

Scripts import it as `horovod`: `runtime/parts/horovod.py` gives it that name, so its modules import each other
relatively. `horovod.torch` runs on torch.distributed, `horovod.tensorflow` and `horovod.keras` on mpi4py.
"""

from .refusals import run

__version__ = "0.28.1"
"""The version of Horovod whose calls and results this layer has."""
