"""Model and optimizer as one flat mapping of names to tensors, as sharded checkpoints need it."""

from __future__ import annotations

import copy
import io
import random
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

T = TypeVar("T")

_WRAPPERS = ("module.", "_orig_mod.")
Value: TypeAlias = "Tensor | bool | int | float | str | Sequence[Value] | Mapping[str, Value] | None"
"""A value that a checkpoint can hold: `check_loadable` refuses anything else."""
Models: TypeAlias = "nn.Module | Mapping[str, nn.Module]"
Optimizers: TypeAlias = "Optimizer | Mapping[str, Optimizer]"
_CONTAINERS = (Mapping, list, tuple, set, frozenset)
_COUNT = "step"
"""The name that PyTorch's optimizers give to the number of steps that a parameter has taken."""


class PlainState(TypedDict):
    """An optimizer's state besides tensors: the options of its groups, and the values of single parameters."""

    groups: list[dict[str, Value]]
    slots: dict[str, dict[str, Value]]


class RandomState(TypedDict, total=False):
    """The state of every random generator of a process, made of tensors and plain values."""

    torch: Tensor
    python: list[Any]
    cuda: Tensor
    numpy: list[Any]


class Stateful(Protocol):
    """A scheduler, a scaler: an object whose state can be read and restored."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any) -> object: ...


class TrainingState:
    """Names stay the same whether the model is plain, compiled, in DDP or fully sharded (FSDP2)."""

    def __init__(self, model: Models, optimizer: Optimizers | None = None) -> None:
        self._models = model if isinstance(model, Mapping) else {"": model}
        given = {"": optimizer} if isinstance(optimizer, Optimizer) else {} if optimizer is None else optimizer
        _check_kinds("model", self._models, nn.Module)
        _check_kinds("optimizer", given, Optimizer)
        self._optimizers = list(given.values())
        self._names = {
            parameter: _within(key, name)
            for key, module in self._models.items()
            for name, parameter in module.named_parameters()
        }
        self._owners = _owners(given, self._names)
        _check_distinct(name for name, _ in self._of_models())

    def tensors(self, *, with_buffers: bool = True) -> dict[str, Tensor]:
        """The tensors themselves, not copies. Running statistics can differ between ranks: only one saves its own."""
        named = dict(self._of_models())
        own = set(self._names.values())
        found = {f"model.{name}": value for name, value in named.items() if with_buffers or name in own}
        for name, parameter in self._of_optimizer():
            for key, value in self._slots(parameter).items():
                if isinstance(value, Tensor):
                    found[f"optimizer.{name}.{key}"] = value
        return found

    def plain(self) -> PlainState:
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self._groups()]
        slots = {
            name: {key: value for key, value in self._slots(parameter).items() if not isinstance(value, Tensor)}
            for name, parameter in self._of_optimizer()
        }
        return {"groups": groups, "slots": {name: values for name, values in slots.items() if values}}

    def make_room(self, stored: Mapping[str, TensorStorageMetadata]) -> dict[str, Tensor]:
        """The tensors to load into; the optimizer gets exactly those that the checkpoint has."""
        for name, parameter in self._of_optimizer():
            prefix = f"optimizer.{name}."
            for slot in [slot for slot in self._slots(parameter) if f"{prefix}{slot}" not in stored]:
                del self._slots(parameter)[slot]
            for key, about in stored.items():
                slot = key.removeprefix(prefix)
                if key.startswith(prefix) and "." not in slot and slot not in self._slots(parameter):
                    self._slots(parameter)[slot] = _empty(slot, about, parameter)
        return self.tensors()

    def take_plain(self, given: PlainState) -> None:
        groups = self._groups()
        if not groups:
            return
        if [group.keys() - {"params"} for group in groups] != [values.keys() for values in given["groups"]]:
            kind = ", ".join(type(optimizer).__name__ for optimizer in self._optimizers)
            raise ValueError(f"the checkpoint was made with another optimizer than this {kind}, or other groups of it")
        for group, values in zip(groups, given["groups"], strict=True):
            group.update(values)
        for name, parameter in self._of_optimizer():
            self._slots(parameter).update(given["slots"].get(name, {}))
        for group in groups:
            if group.get("fused") or group.get("capturable"):
                self._count_on_device(group["params"])

    def _count_on_device(self, parameters: list[nn.Parameter]) -> None:
        """PyTorch's fused and capturable kernels need the step count on the device of the parameter."""
        for parameter in parameters:
            slots = self._slots(parameter)
            if isinstance(count := slots.get(_COUNT), Tensor):
                slots[_COUNT] = count.to(parameter.device)

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _of_models(self) -> Iterator[tuple[str, Tensor]]:
        for key, module in self._models.items():
            for name, value in module.state_dict().items():
                yield _within(key, name), value

    def _of_optimizer(self) -> Iterator[tuple[str, nn.Parameter]]:
        for group in self._groups():
            for parameter in group["params"]:
                yield self._names[parameter], parameter

    def _slots(self, parameter: nn.Parameter) -> dict[str, Value]:
        return self._owners[parameter].state[parameter]


class Stage:
    """Buffers in main memory that hold the state while it is written and the training continues."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy the current values into the same buffers as the last time.

        On a GPU this only queues the copies; `wait` before reading them.
        """
        on_gpu = any(tensor.is_cuda for tensor in tensors.values())
        whole = {name: tensor for name, tensor in tensors.items() if not isinstance(tensor, DTensor)}
        parts = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
        if self._buffers.keys() != tensors.keys():
            self._buffers = {
                **{name: torch.empty_like(item, device="cpu", pin_memory=on_gpu) for name, item in whole.items()},
                **_create_cpu_state_dict(parts, pin_memory=on_gpu),
            }
        with torch.no_grad():
            # One call for all of them, since there are hundreds.
            torch._foreach_copy_([self._buffers[name] for name in whole], list(whole.values()), non_blocking=on_gpu)
            _copy_state_dict(parts, {name: self._buffers[name] for name in parts}, non_blocking=on_gpu)
        if on_gpu:
            self._copied = torch.cuda.Event()
            self._copied.record()
        return self._buffers

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()


def snapshot(values: T) -> T:
    """A copy that later changes do not affect."""

    def copied(value: Value) -> Value:
        return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)

    return tree_map(copied, values)


def named_values(progress: Mapping[str, Any] | None) -> dict[str, Any]:
    """The progress that a script gives to a save, copied into a new dict."""
    if progress is not None and not isinstance(progress, Mapping):
        raise TypeError(f"progress is {type(progress).__name__}; give a dict, such as {{'step': step}}")
    return dict(progress or {})


def kinds_in(value: object) -> set[type]:
    """The types of a value and of all its parts."""
    parts: Collection[object] = ()
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, _CONTAINERS):
        parts = value
    inner = (kinds_in(part) for part in parts if isinstance(part, _CONTAINERS))
    return {type(value), *map(type, parts)}.union(*inner)


def check_loadable(name: str, value: object) -> None:
    """Raise TypeError for a value that `torch.save` accepts but a safe `torch.load` refuses."""
    content = io.BytesIO()
    try:
        torch.save(value, content)
        content.seek(0)
        torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:
        raise TypeError(
            f"{name} ({type(value).__name__}) could not be loaded from a checkpoint. Allowed are tensors, numbers, "
            "texts, None, and lists, tuples and dicts of them: convert it, for example with float(), .tolist() or str()"
        ) from error


def random_state() -> RandomState:
    version, internal, gauss = random.getstate()
    found: RandomState = {"torch": torch.get_rng_state(), "python": [version, list(internal), gauss]}
    if torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        found["numpy"] = [kind, [int(key) for key in keys], *rest]
    return found


def set_random_state(state: RandomState) -> None:
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(tuple(state["numpy"]))


def _check_kinds(what: str, given: object, kind: type) -> None:
    """Raise TypeError for anything but a mapping of names to objects of a type."""
    if not isinstance(given, Mapping):
        wrong = f"{what} is {type(given).__name__}"
    elif others := [name for name, item in given.items() if not isinstance(item, kind)]:
        wrong = f"{what}{[others[0]] if others[0] else ''} is {type(given[others[0]]).__name__}"
    else:
        return
    raise TypeError(
        f"{wrong}, not a torch {kind.__name__}. It is Checkpointer(model, optimizer, folder), and several are given by "
        'name: Checkpointer({"g": g, "d": d}, {"g": a, "d": b}, folder)'
    )


def _owners(optimizers: Mapping[str, Optimizer], names: Mapping[nn.Parameter, str]) -> dict[nn.Parameter, Optimizer]:
    """The optimizer of each parameter; ValueError for a parameter that no model has, or that two optimizers have."""
    found: dict[nn.Parameter, Optimizer] = {}
    for key, optimizer in optimizers.items():
        what = f"the optimizer {key!r}" if key else f"the optimizer ({type(optimizer).__name__})"
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in names:
                    raise ValueError(
                        f"{what} has a parameter of shape {tuple(parameter.shape)} that is in no model given here. "
                        "Make it from model.parameters() after fully_shard, and give every model that it trains"
                    )
                if parameter in found:
                    raise ValueError(f"{what} has {names[parameter]}, which another optimizer has too")
                found[parameter] = optimizer
    return found


def _check_distinct(names: Iterable[str]) -> None:
    """Raise ValueError for a name that two tensors would share in a checkpoint, since one of them would be lost."""
    found, twice = set(), []
    for name in names:
        twice += [name] if name in found else []
        found.add(name)
    if twice:
        raise ValueError(
            f"two tensors would both be called {twice[0]!r} in a checkpoint, where `module.` and `_orig_mod.`, which "
            "wrappers put before names, are left out. Give the model's own part called `module` another name"
        )


def _within(key: str, name: str) -> str:
    """With several models each name begins with the model's name."""
    return f"{key}.{_plain_name(name)}" if key else _plain_name(name)


def _plain_name(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _empty(slot: str, about: TensorStorageMetadata, parameter: nn.Parameter) -> Tensor:
    """An empty tensor, sharded like the parameter if it has the parameter's shape."""
    dtype = about.properties.dtype
    if slot == _COUNT:
        return torch.zeros(about.size, dtype=dtype)
    if about.size == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    return torch.zeros(about.size, dtype=dtype, device=parameter.device)
