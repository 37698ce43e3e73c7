"""Gives all ranks what one rank has: parameters, the optimizer's state, any object."""

from __future__ import annotations

import pickle
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from ..refusals import check_process_set
from .calls import allgather, broadcast_, broadcast_async_
from .group import GROUP
from .handles import synchronize

try:
    import cloudpickle as _pickler
except ModuleNotFoundError:
    _pickler = pickle


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Broadcast a `state_dict()`, or a list of parameters with or without names."""
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"params is a {type(params).__name__}; give a dict such as model.state_dict(), or a list")
    handles = [broadcast_async_(tensor, root_rank, name) for name, tensor in pairs]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Broadcast options, such as the learning rate, and the state of each parameter.

    As in Horovod, an optimizer without state gets one first, by a step with gradients of zero.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"broadcast_optimizer_state takes an optimizer of PyTorch, not {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    if not optimizer.state_dict()["state"]:
        _make_state(optimizer)
    state = optimizer.state_dict()
    tensors, others = _parts(state)
    broadcast_parameters(tensors, root_rank)
    options = [{key: value for key, value in group.items() if key != "params"} for group in state["param_groups"]]
    options, others = broadcast_object((options, others), root_rank)
    for group, theirs in zip(optimizer.param_groups, options):
        group.update(theirs)
    for (parameter, name), value in others.items():
        optimizer.state[_parameters(optimizer)[parameter]][name] = value


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    for parameter in _parameters(optimizer):
        if parameter.requires_grad:
            zeros = torch.zeros_like(parameter)
            parameter.grad = zeros.to_sparse() if isinstance(optimizer, torch.optim.SparseAdam) else zeros
    plain_step = getattr(optimizer, "plain_step", optimizer.step)
    plain_step()


def _parts(state: Dict[str, Any]) -> Tuple[List[Tuple[str, Tensor]], Dict[Tuple[int, str], Any]]:
    """Tensors in the order of the parameters, and the values that are no tensors."""
    tensors: List[Tuple[str, Tensor]] = []
    others: Dict[Tuple[int, str], Any] = {}
    for number, slots in sorted(state["state"].items()):
        for name, value in slots.items():
            if isinstance(value, Tensor):
                tensors.append((f"{name} of parameter {number}", value))
            else:
                others[number, name] = value
    return tensors, others


def _parameters(optimizer: torch.optim.Optimizer) -> List[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: object = None) -> Any:
    """The root's object, whatever it is."""
    check_process_set(process_set)
    is_root = GROUP.rank() == root_rank
    content = torch.frombuffer(bytearray(_pickler.dumps(obj)), dtype=torch.uint8) if is_root else torch.empty(0)
    length = torch.tensor([len(content)])
    broadcast_(length, root_rank, f"{name or 'object'}.length")
    if not is_root:
        content = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(content, root_rank, f"{name or 'object'}.content")
    return obj if is_root else pickle.loads(content.numpy().tobytes())


def allgather_object(obj: Any, name: Optional[str] = None) -> List[Any]:
    """The objects of all ranks, in their order."""
    content = torch.frombuffer(bytearray(_pickler.dumps(obj)), dtype=torch.uint8)
    lengths = allgather(torch.tensor([len(content)])).tolist()
    parts = allgather(content, name).split(lengths)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]
