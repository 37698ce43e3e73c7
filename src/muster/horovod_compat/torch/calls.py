"""Horovod's operations as scripts call them: blocking or with a handle, in place or not, with autograd."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ..reduction import Average, Sum, chosen
from ..refusals import check_process_set
from . import collectives
from .compression import Compression
from .group import GROUP
from .handles import mapped, synchronize


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> int:
    check_process_set(process_set)
    return collectives.reduce(tensors, tensors, name, chosen(op, average), prescale_factor, postscale_factor)


def grouped_allreduce_async(tensors: Sequence[Tensor], *args: Any, **options: Any) -> int:
    collectives.check_tensors("allreduce", tensors)
    return grouped_allreduce_async_([tensor.detach().clone() for tensor in tensors], *args, **options)


def grouped_allreduce_(tensors: Sequence[Tensor], *args: Any, **options: Any) -> Any:
    return synchronize(grouped_allreduce_async_(tensors, *args, **options))


def allreduce_async_(tensor: Tensor, *args: Any, **options: Any) -> int:
    return _single(grouped_allreduce_async_([tensor], *args, **options))


def allreduce_async(tensor: Tensor, *args: Any, **options: Any) -> int:
    return _single(grouped_allreduce_async([tensor], *args, **options))


def allreduce_(tensor: Tensor, *args: Any, **options: Any) -> Any:
    return synchronize(allreduce_async_(tensor, *args, **options))


def allreduce(
    tensor: Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Tensor:
    reduced = grouped_allreduce(
        [tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set
    )
    return reduced[0]


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> List[Tensor]:
    check_process_set(process_set)
    collectives.check_tensors("allreduce", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    how = (name, chosen(op, average), prescale_factor, postscale_factor)
    reduced = _Allreduce.apply(how, *(tensor for tensor, _ in compressed))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, compressed)]


class _Allreduce(torch.autograd.Function):
    """The gradient of a reduction is reduced in the same way."""

    @staticmethod
    def forward(ctx: Any, how: Tuple[Any, ...], *tensors: Tensor) -> Any:
        ctx.how = how
        return tuple(synchronize(collectives.reduce(tensors, [torch.empty_like(t) for t in tensors], *how)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        _, *rest = ctx.how
        return None, *synchronize(collectives.reduce(gradients, [torch.empty_like(g) for g in gradients], None, *rest))


def sparse_allreduce_async(
    tensor: Tensor, name: Optional[str], op: int, process_set: object = None
) -> Callable[[], Tensor]:
    """The entries of all ranks, one rank after the other; call the returned function to get the result."""
    indices, values = tensor._indices().t().contiguous(), tensor._values()
    handle = collectives.gather([indices, values], name, process_set)

    def finish() -> Tensor:
        all_indices, all_values = synchronize(handle)
        if op == Average:
            all_values = all_values / GROUP.size()
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.shape, check_invariants=False)

    return finish


def grouped_allgather_async(tensors: Sequence[Tensor], name: Optional[str] = None, process_set: object = None) -> int:
    return collectives.gather(tensors, name, process_set)


def allgather_async(tensor: Tensor, name: Optional[str] = None, process_set: object = None) -> int:
    return _single(collectives.gather([tensor], name, process_set))


def grouped_allgather(
    tensors: Sequence[Tensor], name: Optional[str] = None, process_set: object = None
) -> List[Tensor]:
    check_process_set(process_set)
    return list(_Allgather.apply(name, *tensors))


def allgather(tensor: Tensor, name: Optional[str] = None, process_set: object = None) -> Tensor:
    return grouped_allgather([tensor], name, process_set)[0]


class _Allgather(torch.autograd.Function):
    """Each rank's gradient is its rows of the average."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], *tensors: Tensor) -> Any:
        handle = collectives.gather(tensors, name)
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        reduced = synchronize(collectives.reduce(gradients, [torch.empty_like(g) for g in gradients], None, Average))
        before = [[0] * len(ctx.rows)] * GROUP.rank()
        if GROUP.size() > 1:
            before = collectives.exchange_counts(ctx.rows)[: GROUP.rank()]
        begins = [sum(rows[at] for rows in before) for at in range(len(ctx.rows))]
        return None, *(part[at : at + count] for part, at, count in zip(reduced, begins, ctx.rows))


def broadcast_async_(tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> int:
    return collectives.send(tensor, tensor, root_rank, name, process_set)


def broadcast_async(tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> int:
    return collectives.send(tensor, torch.empty_like(tensor), root_rank, name, process_set)


def broadcast_(tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> Any:
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast(tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: object = None) -> Any:
    check_process_set(process_set)
    collectives.check_tensors("broadcast", [tensor])
    return _Broadcast.apply(tensor, root_rank, name)


class _Broadcast(torch.autograd.Function):
    """The root's gradient is the average of all; the other ranks' tensors had no effect."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: Optional[str]) -> Any:
        ctx.root_rank = root_rank
        return synchronize(collectives.send(tensor, torch.empty_like(tensor), root_rank, name))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (reduced,) = synchronize(collectives.reduce([gradient], [torch.empty_like(gradient)], None, Average))
        return (reduced if GROUP.rank() == ctx.root_rank else torch.zeros_like(reduced)), None, None


def alltoall_async(tensor: Tensor, splits: Any = None, name: Optional[str] = None, process_set: object = None) -> int:
    handle = collectives.exchange(tensor, splits, name, process_set)
    if splits is not None:
        return handle
    return mapped(handle, lambda result: result[0])


def alltoall(tensor: Tensor, splits: Any = None, name: Optional[str] = None, process_set: object = None) -> Any:
    check_process_set(process_set)
    output, received = _Alltoall.apply(tensor, splits, name)
    return output if splits is None else (output, received)


class _Alltoall(torch.autograd.Function):
    """Gradients go back to the ranks that the rows came from."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: Optional[str]) -> Any:
        output, ctx.received = synchronize(collectives.exchange(tensor, splits, name))
        ctx.mark_non_differentiable(ctx.received)
        return output, ctx.received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Any:
        return synchronize(collectives.exchange(gradient, ctx.received, None))[0], None, None


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduce whole tensors; each rank keeps its rows."""
    check_process_set(process_set)
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter takes op=hvd.Average and op=hvd.Sum")
    rows = [collectives.own_rows(tensor) for tensor in tensors]
    whole = [tensor.detach().clone() for tensor in tensors]
    handle = collectives.reduce(whole, whole, name, op, prescale_factor, postscale_factor, kind="reducescatter")
    return mapped(handle, lambda reduced: [tensor[own].clone() for tensor, own in zip(reduced, rows)])


def reducescatter_async(tensor: Tensor, *args: Any, **options: Any) -> int:
    return _single(grouped_reducescatter_async([tensor], *args, **options))


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Tensor]:
    check_process_set(process_set)
    collectives.check_tensors("reducescatter", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    how = (name, op, None, prescale_factor, postscale_factor)
    reduced = _Reducescatter.apply(how, *(tensor for tensor, _ in compressed))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, compressed)]


def reducescatter(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
    return grouped_reducescatter([tensor], *args, **options)[0]


class _Reducescatter(torch.autograd.Function):
    """Every rank needs the gradients of all rows."""

    @staticmethod
    def forward(ctx: Any, how: Tuple[Any, ...], *tensors: Tensor) -> Any:
        _, op, _, before, after = how
        ctx.factor = before * after * (GROUP.size() if op == Sum else 1)
        return tuple(synchronize(grouped_reducescatter_async(tensors, *how)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *synchronize(collectives.gather([gradient * ctx.factor for gradient in gradients], None))


def join(device: int = -1) -> int:
    """This rank has no more data: wait until all have joined, and take part in their reductions with zeros."""
    return GROUP.join()


def barrier(process_set: object = None) -> None:
    """Wait for all ranks."""
    check_process_set(process_set)
    here = torch.zeros(1)
    synchronize(collectives.reduce([here], [here], None, Sum, kind="barrier"))


def _single(handle: int) -> int:
    """The handle of one tensor, from that of a group of one."""
    return mapped(handle, lambda results: results[0])
