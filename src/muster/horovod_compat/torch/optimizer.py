"""An optimizer that applies the gradients of all ranks."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch
from torch import Tensor

from ..reduction import Adasum, Average
from ..refusals import check_process_set
from . import collectives
from .compression import Compression
from .group import GROUP
from .handles import synchronize

_BUCKET_BYTES = 25 << 20
_FIRST_BUCKET_BYTES = 1 << 20


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, Tensor]]] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: object = None,
) -> Any:
    """The optimizer with a new class, which reduces gradients while `backward` runs, in buckets that this layer
    chooses (`groups` changes no result)."""
    check_process_set(process_set)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"DistributedOptimizer takes an optimizer of PyTorch, not {type(optimizer).__name__}")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: it must be above zero")
    named = _checked(optimizer, named_parameters)
    mixin = _OfDeltas if op == Adasum and GROUP.size() > 1 else _OfGradients
    kind: Any = type(type(optimizer).__name__, (mixin, type(optimizer)), {})
    wrapped = kind.__new__(kind)
    wrapped.__dict__.update(optimizer.__dict__)
    wrapped._begin(named, compression, backward_passes_per_step, op, gradient_predivide_factor)
    return wrapped


def _checked(optimizer: torch.optim.Optimizer, named: Optional[Iterable[Any]]) -> Dict[Tensor, str]:
    """The name of each parameter."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named is None:
        return {parameter: f"parameter {number}" for number, parameter in enumerate(parameters)}
    pairs = list(named)
    if not all(isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters should be pairs of name and parameter, as model.named_parameters() gives")
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"named_parameters has names twice: {', '.join(twice)}")
    found = {parameter: name for name, parameter in pairs}
    if nameless := sum(parameter not in found for parameter in parameters):
        raise ValueError(f"named_parameters leaves out {nameless} of the optimizer's {len(parameters)} parameters")
    return found


class _Distributed:
    """What both kinds have in common: counting backward passes."""

    param_groups: List[Dict[str, Any]]

    def _begin(self, names: Dict[Tensor, str], compression: Any, passes: int, op: int, predivide: float) -> None:
        self._names, self._compression, self._op, self._predivide = names, compression, op, predivide
        self.backward_passes_per_step = passes
        self._trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._passes_left = dict.fromkeys(self._trained, passes)
        self._hooks = []
        if GROUP.size() > 1:
            self._hooks = [p.register_post_accumulate_grad_hook(self._computed) for p in self._trained]

    def set_backward_passes_per_step(self, passes: int) -> None:
        self.backward_passes_per_step = passes
        self._passes_left = dict.fromkeys(self._trained, passes)

    def _computed(self, parameter: Tensor) -> None:
        if self._passes_left[parameter] == 0:
            raise AssertionError(
                f"the gradient of {self._names[parameter]} was computed more than backward_passes_per_step="
                f"{self.backward_passes_per_step} times before step(); raise it to accumulate gradients"
            )
        self._passes_left[parameter] -= 1

    @property
    def _under_way(self) -> bool:
        return any(left < self.backward_passes_per_step for left in self._passes_left.values())

    def zero_grad(self, *args: Any, **options: Any) -> Any:
        if self._under_way:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() and before optimizer.step() or "
                "optimizer.synchronize(): gradients are on their way to other ranks"
            )
        return super().zero_grad(*args, **options)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        self.set_backward_passes_per_step(self.backward_passes_per_step)
        return super().load_state_dict(*args, **options)  # type: ignore[misc]

    def plain_step(self, closure: Any = None) -> Any:
        """A step of the optimizer that was given, without the other ranks."""
        return super().step(closure)  # type: ignore[misc]


class _OfGradients(_Distributed):
    """Reduces gradients, then takes the optimizer's step."""

    def _begin(self, *args: Any) -> None:
        super()._begin(*args)
        self._buckets = _buckets(self._trained)
        self._bucket_of = {parameter: at for at, bucket in enumerate(self._buckets) for parameter in bucket}
        self._waiting_for: List[Set[Tensor]] = [set(bucket) for bucket in self._buckets]
        self._handles: List[Tuple[int, Any]] = []
        self._synchronized, self._should_synchronize = False, True

    def _computed(self, parameter: Tensor) -> None:
        super()._computed(parameter)
        if self._passes_left[parameter] == 0:
            self._waiting_for[self._bucket_of[parameter]].discard(parameter)
            # All ranks start their buckets in the same order, whichever is complete first.
            while len(self._handles) < len(self._buckets) and not self._waiting_for[len(self._handles)]:
                self._reduce_next()

    def _reduce_next(self) -> None:
        number = len(self._handles)
        gradients = [_dense_gradient(parameter) for parameter in self._buckets[number]]
        compressed = [self._compression.compress(gradient) for gradient in gradients]
        sent = [tensor for tensor, _ in compressed]
        before, after = (1 / self._predivide, self._predivide) if self._op == Average else (1.0, 1.0)
        handle = collectives.reduce(sent, sent, f"gradients {number}", self._op, before, after)
        self._handles.append((handle, [ctx for _, ctx in compressed]))

    def synchronize(self) -> None:
        """Wait for the reduced gradients; one that was not computed on this rank counts as zero."""
        if GROUP.size() > 1:
            while len(self._handles) < len(self._buckets):
                self._reduce_next()
            for bucket, (handle, contexts) in zip(self._buckets, self._handles):
                for parameter, reduced, ctx in zip(bucket, synchronize(handle), contexts):
                    whole = self._compression.decompress(reduced, ctx)
                    assert parameter.grad is not None
                    if parameter.grad.is_sparse:
                        parameter.grad = whole.to_sparse()
                    else:
                        parameter.grad.copy_(whole)
        self._forget()
        self._synchronized = True

    def _forget(self) -> None:
        self._handles.clear()
        self._waiting_for = [set(bucket) for bucket in self._buckets]
        super().set_backward_passes_per_step(self.backward_passes_per_step)

    def set_backward_passes_per_step(self, passes: int) -> None:
        super().set_backward_passes_per_step(passes)
        self._forget()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For a step that follows `synchronize()`, as when gradients are clipped between the two."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() reduces gradients that optimizer.synchronize() has reduced already; "
                    "call it in `with optimizer.skip_synchronize():`",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return self.plain_step(closure)


class _OfDeltas(_Distributed):
    """Adasum: every rank takes its own step, and the changes are combined."""

    def synchronize(self) -> None:
        """Does nothing: the step itself waits for the other ranks."""

    def skip_synchronize(self) -> Any:
        raise AssertionError("op=hvd.Adasum: a step without the other ranks is not possible")

    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        for parameter in self._trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        before = [parameter.detach().clone() for parameter in self._trained]
        self.plain_step()
        with torch.no_grad():
            deltas = [after - start for after, start in zip(self._trained, before)]
            compressed = [self._compression.compress(delta) for delta in deltas]
            for bucket in _by_type([tensor for tensor, _ in compressed]):
                synchronize(collectives.reduce(bucket, bucket, "changes", Adasum))
            for parameter, start, (delta, ctx) in zip(self._trained, before, compressed):
                parameter.copy_(start + self._compression.decompress(delta, ctx))
        self.set_backward_passes_per_step(self.backward_passes_per_step)
        return loss


def _dense_gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def _buckets(parameters: List[Tensor]) -> List[List[Tensor]]:
    """Parameters in the order in which gradients come; the first bucket is small, so that exchange starts early."""
    found: List[List[Tensor]] = []
    for alike in _by_type(list(reversed(parameters))):
        limit, size = _FIRST_BUCKET_BYTES, 0
        bucket: List[Tensor] = []
        for parameter in alike:
            bucket.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= limit:
                found.append(bucket)
                bucket, limit, size = [], _BUCKET_BYTES, 0
        if bucket:
            found.append(bucket)
    return found


def _by_type(tensors: List[Tensor]) -> List[List[Tensor]]:
    alike: Dict[Any, List[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(alike.values())
