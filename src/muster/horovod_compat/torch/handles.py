"""Operations that are under way."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .group import GROUP

_NUMBERS = itertools.count()
_PENDING: Dict[int, Tuple[List[Any], Callable[[], Any]]] = {}


def started(works: Sequence[Optional[Any]], finish: Callable[[], Any]) -> int:
    """A handle for works of torch.distributed, with the function that makes their result."""
    handle = next(_NUMBERS)
    _PENDING[handle] = ([work for work in works if work is not None], finish)
    return handle


def poll(handle: int) -> bool:
    """Whether the operation has ended, so that `synchronize` would not wait."""
    if handle not in _PENDING:
        raise ValueError(f"{handle} is no handle of an operation that is under way")
    return all(work.is_completed() for work in _PENDING[handle][0])


def synchronize(handle: int) -> Any:
    """Wait for an operation; returns its result."""
    if handle not in _PENDING:
        return None
    works, finish = _PENDING.pop(handle)
    for work in works:
        GROUP.wait(work)
    return finish()


def mapped(handle: int, change: Callable[[Any], Any]) -> int:
    """Replace a handle by one whose result is `change` of the first one's result."""
    works, finish = _PENDING.pop(handle)
    return started(works, lambda: change(finish()))
