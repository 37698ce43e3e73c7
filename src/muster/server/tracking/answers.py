"""A cache of responses that many clients request: computed once, valid until the next commit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

_KEPT = 64


@dataclass(frozen=True)
class Answer:
    """A page of a list, ready to be sent."""

    tag: str
    body: bytes
    headers: Mapping[str, str]
    made_at: float = field(default_factory=time.monotonic)


@dataclass
class Answers:
    """The last answers, by their address."""

    boot: str = field(default_factory=lambda: secrets.token_hex(4))
    """Counts of commits start over with the server."""
    kept: dict[str, Answer] = field(default_factory=dict)

    def tag(self, commits: int) -> str:
        """The `ETag` of the database's current state."""
        return f'"{self.boot}-{commits}"'

    def known(self, address: str, tag: str, age_s: float = 0.0) -> Answer | None:
        """The cached response of an address; with an age also an outdated one of that age."""
        found = self.kept.get(address)
        if found is None or (found.tag != tag and time.monotonic() - found.made_at >= age_s):
            return None
        return found

    def keep(self, address: str, answer: Answer) -> None:
        self.kept.pop(address, None)
        self.kept[address] = answer
        while len(self.kept) > _KEPT:
            self.kept.pop(next(iter(self.kept)))
