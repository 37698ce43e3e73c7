"""Parts of Horovod that this layer does not have, refused by name when a script uses them."""

from __future__ import annotations

from typing import Any, NoReturn

_REAL = "Real Horovod has it: `environment: horovod-torch` or `horovod-tensorflow` (compiled once on the node)."


def refuse(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not in horovod-compat. {instead} {_REAL}")


class Refused:
    """Stands in for a function, class or module of Horovod: using it raises an error that says why it is missing."""

    def __init__(self, name: str, instead: str) -> None:
        self._name, self._instead = name, instead

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        refuse(self._name, self._instead)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"{self._name}.{name}", self._instead)


class GlobalProcessSet:
    """All ranks: the only process set."""

    process_set_id = 0

    def included(self) -> bool:
        return True


_SETS = "Collectives are over all ranks."
_TIMELINE = "Profile with the framework's own profiler."
_ELASTIC = "A job whose rank dies is started again from its checkpoint by `retry` in the job file."

global_process_set = GlobalProcessSet()
ProcessSet = Refused("hvd.ProcessSet", _SETS)
add_process_set = Refused("hvd.add_process_set", _SETS)
remove_process_set = Refused("hvd.remove_process_set", _SETS)
start_timeline = Refused("hvd.start_timeline", _TIMELINE)
stop_timeline = Refused("hvd.stop_timeline", _TIMELINE)
elastic = Refused("hvd.elastic", _ELASTIC)
run = Refused("horovod.run", "Start the ranks with `distribution: {type: mpi}`.")


def check_process_set(process_set: object) -> None:
    """Refuse any process set but that of all ranks."""
    if process_set is not None and process_set is not global_process_set:
        refuse("process_set", _SETS)
