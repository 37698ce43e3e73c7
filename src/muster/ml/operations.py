"""The base of v2's groups of calls, and the result of its long-running calls."""

from __future__ import annotations

from typing import Any


class Operations:
    """A group of calls of an `MLClient`; an unknown call raises an error that lists the existing ones."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(word for word in dir(type(self)) if not word.startswith("_"))
        raise AttributeError(f"{type(self).__name__} of Muster has no call {name!r}; it has {known}")


class Done:
    """The result of a call that takes long in Azure; here it is finished at once."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        pass

    def done(self) -> bool:
        return True
