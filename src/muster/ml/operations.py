"""What groups of calls of v2 have in common, and what calls that take long return."""

from __future__ import annotations

from typing import Any


class Operations:
    """A group of calls of an `MLClient`: what it does not have, it refuses with a list of what it has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(word for word in dir(type(self)) if not word.startswith("_"))
        raise AttributeError(f"{type(self).__name__} of Muster has no call {name!r}; it has {known}")


class Done:
    """What a long call of Azure's returns: here it is over already."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        pass

    def done(self) -> bool:
        return True
