"""The process that builds one environment for an agent: `python -m muster.environments.venvs.build`.

It ends with its agent, as does everything that it started. Its output and that of its tools is the log.
"""

from __future__ import annotations

from pathlib import Path

from muster.environments.failures import Failure
from muster.environments.venvs.builder import Progress, ensure
from muster.environments.venvs.cache import Cache
from muster.environments.venvs.moved import unpacked
from muster.environments.venvs.request import (
    Answer,
    Doing,
    Failed,
    Finished,
    Request,
    WheelAnswer,
    WheelMade,
    WheelWanted,
)
from muster.host.children import Parent, end_own_group
from muster.wire.codec import from_json, to_json


def main() -> None:
    parent = Parent(ended=end_own_group)
    request = from_json(Request, parent.receive())

    def answer(message: Answer) -> None:
        parent.send(to_json(message))

    say, write = (lambda text: answer(Doing(text))), (lambda text: print(text, flush=True))
    progress = Progress(say=say, write=write, wheels=_Asked(parent))
    cache = Cache(Path(request.root), request.limit_bytes)
    try:
        if request.packed:
            built = unpacked(Path(request.packed), request.key, cache, progress)
        else:
            built = ensure(request.recipe, request.key, request.base, cache, progress)
    except Failure as failure:
        progress.write(f"error: {failure}")
        answer(Failed(failure.code, failure.message, failure.next, failure.lines))
        return
    answer(Finished(built.key))


class _Asked:
    """Compiled wheels, requested through the agent."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def find(self, key: str, folder: Path) -> bool:
        return self._ask(WheelWanted(key, str(folder)))

    def keep(self, key: str, wheel: Path) -> None:
        self._ask(WheelMade(key, str(wheel)))

    def close(self) -> None:
        return

    def _ask(self, question: Answer) -> bool:
        self._parent.send(to_json(question))
        return from_json(WheelAnswer, self._parent.receive()).found


if __name__ == "__main__":
    main()
