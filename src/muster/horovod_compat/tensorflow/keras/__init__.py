"""`horovod.tensorflow.keras`: for `tf.keras`, version 2 or 3 as TensorFlow has it."""

import tensorflow as tf

from ...reduction import Adasum, Average, Sum
from ...refusals import elastic, global_process_set, start_timeline, stop_timeline
from .. import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from ..compression import Compression
from ..optimizer import DistributedOptimizer
from ..values import allgather, allreduce, broadcast, loader, reducescatter
from . import callbacks

load_model = loader(tf.keras)
