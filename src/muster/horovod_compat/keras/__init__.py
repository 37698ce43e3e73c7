"""`horovod.keras`: for the package `keras`: version 3 on TensorFlow, or tf_keras under that name."""

import keras

from ..reduction import Adasum, Average, Sum
from ..refusals import elastic, global_process_set, start_timeline, stop_timeline
from ..tensorflow import (
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
from ..tensorflow.compression import Compression
from ..tensorflow.optimizer import DistributedOptimizer
from ..tensorflow.values import allgather, allreduce, broadcast, loader, reducescatter
from . import callbacks

load_model = loader(keras)
