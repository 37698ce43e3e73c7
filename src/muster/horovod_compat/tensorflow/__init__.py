"""`horovod.tensorflow` on mpi4py: ranks come from mpirun, and tensors pass through the CPU."""

from typing import Any

import tensorflow as tf

from ..common.exceptions import HorovodInternalError
from ..reduction import Adasum, Average, Max, Min, Product, Sum
from ..refusals import (
    ProcessSet,
    add_process_set,
    elastic,
    global_process_set,
    remove_process_set,
    start_timeline,
    stop_timeline,
)
from .calls import (
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_object,
    broadcast_variables,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from .compression import Compression
from .group import GROUP
from .optimizer import DistributedOptimizer
from .tape import DistributedGradientTape

init, shutdown, is_initialized = GROUP.init, GROUP.shutdown, GROUP.is_initialized
rank, size = GROUP.rank, GROUP.size
local_rank, local_size = GROUP.local_rank, GROUP.local_size
cross_rank, cross_size = GROUP.cross_rank, GROUP.cross_size
is_homogeneous = GROUP.is_homogeneous


def rank_op(name: Any = None) -> Any:
    return tf.constant(GROUP.rank())


def size_op(process_set_id: int = 0, name: Any = None) -> Any:
    return tf.constant(GROUP.size())


def local_rank_op(name: Any = None) -> Any:
    return tf.constant(GROUP.local_rank())


def local_size_op(name: Any = None) -> Any:
    return tf.constant(GROUP.local_size())


def mpi_built() -> bool:
    return True


def mpi_enabled() -> bool:
    return True


def mpi_threads_supported() -> bool:
    return True


def _is_not_there() -> bool:
    return False


gloo_built = gloo_enabled = nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _is_not_there
