"""Tokens for storage: one for a folder or one for each file, renewed when they are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import field

from muster.wire.message import wire


@wire
class FreshTokens:
    """Tokens that replace refused ones."""

    token: str | None = field(default=None, repr=False)
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By path."""


Refresh = Callable[[list[str]], FreshTokens]
"""Asks for fresh tokens; the list names files that have none yet."""


class Keys:
    """Tokens of one access, for all threads that use it."""

    def __init__(
        self, token: str = "", tokens: Mapping[str, str] | None = None, refresh: Refresh | None = None
    ) -> None:
        self._token = token
        self._tokens = dict(tokens or {})
        self._per_file = tokens is not None
        self._refresh = refresh
        self._lock = threading.Lock()

    def token(self, path: str) -> str:
        if not self._per_file:
            return self._token
        if path not in self._tokens:
            self.renew(path, "")
        return self._tokens.get(path, "")

    def fetch(self, paths: list[str]) -> None:
        """Request the tokens of many files at once."""
        missing = [path for path in paths if path not in self._tokens]
        if self._per_file and missing and self._refresh is not None:
            with self._lock:
                self._take(self._refresh(missing))

    def renew(self, path: str, refused: str) -> bool:
        """Fetch a fresh token if needed; whether it differs from the refused one."""
        if self._refresh is None:
            return False
        with self._lock:
            # Another thread may have asked meanwhile.
            if self._now(path) == refused:
                self._take(self._refresh([path]))
        return self._now(path) != refused

    def _now(self, path: str) -> str:
        return self._tokens.get(path, "") if self._per_file else self._token

    def _take(self, fresh: FreshTokens) -> None:
        self._token = fresh.token or self._token
        self._tokens.update(fresh.tokens)
