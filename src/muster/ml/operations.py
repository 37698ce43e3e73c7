"""What calls that take long return: v2 scripts ask it for the result."""

from __future__ import annotations

from typing import Any


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
