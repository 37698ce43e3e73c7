"""Answers that many ask for at once: made once, and good until the next commit."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

_KEPT = 64


@dataclass(frozen=True)
class Answer:
    """A page of a list, ready to be sent."""

    tag: str
    body: bytes
    headers: Mapping[str, str]


@dataclass
class Answers:
    """The last answers, by their address."""

    boot: str = field(default_factory=lambda: secrets.token_hex(4))
    """Counts of commits start over with the server."""
    kept: dict[str, Answer] = field(default_factory=dict)

    def tag(self, commits: int) -> str:
        """What all that can be read now is called, as an `ETag`."""
        return f'"{self.boot}-{commits}"'

    def known(self, address: str, tag: str) -> Answer | None:
        found = self.kept.get(address)
        return found if found is not None and found.tag == tag else None

    def keep(self, address: str, answer: Answer) -> None:
        self.kept.pop(address, None)
        self.kept[address] = answer
        while len(self.kept) > _KEPT:
            self.kept.pop(next(iter(self.kept)))
