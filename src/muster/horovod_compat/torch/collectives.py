"""Horovod's operations on tensors; each starts at once and returns a handle to wait for."""

from __future__ import annotations

import zlib
from typing import Any, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from ..reduction import NAMES, Adasum, Average, Max, Min, Product, Sum, check_adasum, in_pairs, shares
from ..refusals import check_process_set
from .group import GROUP
from .handles import started, synchronize

_REDUCED = {torch.uint8, torch.int8, torch.int32, torch.int64}
_REDUCED |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_MOVED = {*_REDUCED, torch.bool, torch.complex64, torch.complex128}
_SHOWN = 8
"""How many shapes of a group an announcement spells out."""
_REDUCTIONS = {Average: "SUM", Sum: "SUM", Min: "MIN", Max: "MAX", Product: "PRODUCT"}


def reduce(
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: Optional[str],
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    kind: str = "allreduce",
) -> int:
    """Reduce tensors of one type in one exchange; the handle's result is `outputs`, as a list."""
    if not tensors:
        return started([], list)
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        raise ValueError("tensors of a group must have one type, on one device")
    _check_type(kind, tensors, _REDUCED)
    if op == Adasum:
        return _adasum(tensors, outputs, name)
    flat = _sendable(scaled(_flattened(tensors), prescale))
    described = [_REDUCTIONS[op], str(flat.dtype)[6:], flat.numel(), flat.is_cuda, NAMES[op], *_shapes(tensors)]
    if (prescale, postscale) != (1.0, 1.0):
        described.append(f"times {prescale} before and {postscale} after")
    GROUP.announce(kind, described, name)
    work = None
    if GROUP.size() > 1:
        operation = getattr(dist.ReduceOp, _REDUCTIONS[op])
        work = dist.all_reduce(flat, op=operation, group=GROUP.group, async_op=True)

    def finish() -> List[Tensor]:
        whole = scaled(flat, postscale)
        if op == Average and GROUP.size() > 1:
            whole = whole.div_(GROUP.size(), rounding_mode=None if whole.is_floating_point() else "trunc")
        return _unflattened(whole, outputs)

    return started([work], finish)


def _shapes(tensors: Sequence[Tensor]) -> List[Any]:
    """The first few shapes, and a checksum over all of them."""
    shapes = [list(tensor.shape) for tensor in tensors]
    return shapes if len(shapes) <= _SHOWN else [*shapes[:_SHOWN], f"and more ({zlib.crc32(str(shapes).encode()):x})"]


def check_tensors(kind: str, given: Sequence[Any]) -> None:
    for item in given:
        if not isinstance(item, Tensor):
            raise TypeError(f"{kind} takes tensors of PyTorch, not {type(item).__name__}: torch.as_tensor(…) makes one")


def _check_type(kind: str, tensors: Sequence[Tensor], allowed: Set[torch.dtype]) -> None:
    check_tensors(kind, tensors)
    for tensor in tensors:
        if tensor.is_sparse:
            raise ValueError(f"{kind} takes dense tensors: call hvd.sparse_allreduce_async, or .to_dense() first")
        if tensor.dtype not in allowed:
            names = ", ".join(sorted(str(dtype)[6:] for dtype in allowed))
            raise ValueError(f"{kind} takes no tensors of {tensor.dtype}; convert it to one of {names}")


def _check_rows(kind: str, tensors: Sequence[Tensor]) -> None:
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError(f"{kind} takes tensors with a first dimension, and this one has none: unsqueeze(0) adds one")


def scaled(tensor: Tensor, factor: float) -> Tensor:
    if factor == 1.0:
        return tensor
    return tensor.mul_(factor) if tensor.is_floating_point() else (tensor.double() * factor).to(tensor.dtype)


def _adasum(tensors: Sequence[Tensor], outputs: Sequence[Tensor], name: Optional[str]) -> int:
    """Combine each tensor by itself: common directions of two gradients are averaged, different ones are added."""
    check_adasum(GROUP.size())
    flat = _flattened(tensors)
    sizes = [tensor.numel() for tensor in tensors]
    of_ranks = synchronize(gather([flat.unsqueeze(0)], name))[0] if GROUP.size() > 1 else flat.unsqueeze(0)
    parts = [in_pairs(list(part.unbind(0)), adasum) for part in of_ranks.split(sizes, dim=1)]
    whole = torch.cat(parts)
    return started([], lambda: _unflattened(whole, outputs))


def adasum(one: Tensor, other: Tensor) -> Tensor:
    a, b = one.double(), other.double()
    dot, of_a, of_b = torch.dot(a, b), torch.dot(a, a), torch.dot(b, b)
    share_a = 1 - dot / (2 * of_a) if of_a > 0 else torch.ones_like(dot)
    share_b = 1 - dot / (2 * of_b) if of_b > 0 else torch.ones_like(dot)
    return (share_a * a + share_b * b).to(one.dtype)


def gather(tensors: Sequence[Tensor], name: Optional[str], process_set: object = None) -> int:
    """Concatenate all ranks' tensors along the first dimension, which may differ; the result is a list."""
    check_process_set(process_set)
    _check_type("allgather", tensors, _MOVED)
    _check_rows("allgather", tensors)
    described = [[str(tensor.dtype)[6:], tensor.is_cuda, list(tensor.shape[1:])] for tensor in tensors]
    GROUP.announce("allgather", described, name)
    if GROUP.size() == 1:
        return started([], lambda: [tensor.clone() for tensor in tensors])
    rows = exchange_counts([tensor.shape[0] for tensor in tensors])
    begun = [_gather_one(tensor, [of_rank[at] for of_rank in rows]) for at, tensor in enumerate(tensors)]

    def finish() -> List[Tensor]:
        return [
            torch.cat([part[:count] for part, count in zip(parts, counts)]).to(tensor.device)
            for tensor, (_, parts, counts) in zip(tensors, begun)
        ]

    return started([work for work, _, _ in begun], finish)


def _gather_one(tensor: Tensor, counts: List[int]) -> Tuple[Any, List[Tensor], List[int]]:
    sent = _sendable(tensor.detach())
    padded = sent.new_zeros((max(counts), *tensor.shape[1:]))
    padded[: tensor.shape[0]] = sent
    parts = [torch.empty_like(padded) for _ in counts]
    return dist.all_gather(parts, padded, group=GROUP.group, async_op=True), parts, counts


def exchange_counts(own: List[int]) -> List[List[int]]:
    """Every rank's counts, exchanged on the CPU."""
    mine = torch.tensor(own, dtype=torch.int64)
    parts = [torch.empty_like(mine) for _ in range(GROUP.size())]
    GROUP.wait(dist.all_gather(parts, mine, group=GROUP.group, async_op=True))
    return [part.tolist() for part in parts]


def send(tensor: Tensor, output: Tensor, root_rank: int, name: Optional[str], process_set: object = None) -> int:
    """Broadcast: every rank's `output` becomes the root's tensor."""
    check_process_set(process_set)
    if not 0 <= root_rank < GROUP.size():
        raise ValueError(f"root_rank={root_rank} is no rank; there are 0 to {GROUP.size() - 1}")
    _check_type("broadcast", [tensor], _MOVED)
    GROUP.announce("broadcast", [str(tensor.dtype)[6:], list(tensor.shape), tensor.is_cuda, root_rank], name)
    # Not `output` itself: an optimizer's parameter may have another memory layout.
    buffer = _sendable(tensor.detach().contiguous().clone())
    work = None
    if GROUP.size() > 1:
        work = dist.broadcast(buffer, src=root_rank, group=GROUP.group, async_op=True)

    def finish() -> Tensor:
        with torch.no_grad():
            output.copy_(buffer)
        return output

    return started([work], finish)


def exchange(tensor: Tensor, splits: Optional[Any], name: Optional[str], process_set: object = None) -> int:
    """All to all: send a part of the rows to every rank; the result is the rows received and the count from each."""
    check_process_set(process_set)
    _check_type("alltoall", [tensor], _MOVED)
    _check_rows("alltoall", [tensor])
    size = GROUP.size()
    own = torch.as_tensor(splits).tolist() if splits is not None else None
    if own is None:
        if tensor.shape[0] % size:
            raise ValueError(f"alltoall without splits: {tensor.shape[0]} rows cannot be divided among {size} ranks")
        own = [tensor.shape[0] // size] * size
    if len(own) != size or sum(own) != tensor.shape[0] or min(own) < 0:
        raise ValueError(f"alltoall: splits {own} do not divide {tensor.shape[0]} rows among {size} ranks")
    GROUP.announce("alltoall", [str(tensor.dtype)[6:], tensor.is_cuda, list(tensor.shape[1:])], name)
    received = [of_rank[GROUP.rank()] for of_rank in exchange_counts(own)] if size > 1 else own
    sent = _sendable(tensor.detach().contiguous())
    output = sent.new_empty((sum(received), *tensor.shape[1:]))
    work = None
    if size > 1:
        work = dist.all_to_all_single(output, sent, received, own, group=GROUP.group, async_op=True)
    else:
        output.copy_(sent)
    return started([work], lambda: (output.to(tensor.device), torch.tensor(received, dtype=torch.int32)))


def own_rows(tensor: Tensor) -> slice:
    """This rank's rows of a reduced tensor."""
    _check_rows("reducescatter", [tensor])
    counts = shares(tensor.shape[0], GROUP.size())
    begin = sum(counts[: GROUP.rank()])
    return slice(begin, begin + counts[GROUP.rank()])


def _sendable(tensor: Tensor) -> Tensor:
    """The tensor, moved to the CPU where GPUs cannot exchange it."""
    return tensor.cpu() if tensor.is_cuda and not GROUP.has_nccl else tensor


def _flattened(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _unflattened(flat: Tensor, outputs: Sequence[Tensor]) -> List[Tensor]:
    with torch.no_grad():
        for output, part in zip(outputs, flat.split([output.numel() for output in outputs])):
            output.copy_(part.view(output.shape))
    return list(outputs)
