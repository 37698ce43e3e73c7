"""`horovod.torch` on torch.distributed: gloo for tensors on CPUs, nccl if each rank has its own GPU."""

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
from .batch_norm import SyncBatchNorm
from .calls import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from .compression import Compression
from .group import GROUP
from .handles import poll, synchronize
from .optimizer import DistributedOptimizer
from .states import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters

init, shutdown, is_initialized = GROUP.init, GROUP.shutdown, GROUP.is_initialized
rank, size = GROUP.rank, GROUP.size
local_rank, local_size = GROUP.local_rank, GROUP.local_size
cross_rank, cross_size = GROUP.cross_rank, GROUP.cross_size
is_homogeneous = GROUP.is_homogeneous


def gloo_built() -> bool:
    return True


def gloo_enabled() -> bool:
    return True


def nccl_built() -> int:
    """Whether GPUs are connected by nccl."""
    return int(GROUP.has_nccl)


def cuda_built() -> bool:
    return GROUP.has_nccl


def _is_not_there() -> bool:
    return False


mpi_built = mpi_enabled = mpi_threads_supported = ddl_built = ccl_built = rocm_built = _is_not_there
