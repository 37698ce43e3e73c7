"""How far somebody who follows a run has come: a few numbers, however many ranks there are."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from muster import errors

_FORM = 2
"""The first one named an offset for every log."""
_MOST = 2**63 - 1


@dataclass
class Cursor:
    """Goes with every event, so that a follower can go on from there, at any server and at any time."""

    event: int = 0
    metric: int = 0
    entry: int = 0
    """The next entry in the index of the run's logs."""
    within: int = 0
    """How many of its bytes are read."""
    begun: int = 0
    """The entry at which reading began, where that was not the first; with `begun_within` its bytes."""
    begun_within: int = 0
    lines: int = 0
    """How many lines were counted, where lines are asked for by number."""
    ends: int = 0
    """How many logs were looked at for a last line without an end."""

    def encode(self) -> str:
        numbers = [_FORM, *vars(self).values()]
        while numbers[-1] == 0:
            numbers.pop()
        # As JSON would have it; one goes with every event.
        listed = f"[{','.join(map(str, numbers))}]"
        return base64.urlsafe_b64encode(listed.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str | None) -> Cursor:
        if not text:
            return cls()
        try:
            found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
            if isinstance(found, list) and found[:1] == [_FORM] and all(_is_number(item) for item in found):
                return cls(*found[1:])
        except (ValueError, TypeError, binascii.Error, RecursionError):
            pass
        raise errors.JobError(
            f"{text[:80]!r} is no cursor of a stream",
            "Send the last `id:` back as it came; without a cursor the stream begins at its beginning.",
        ) from None


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST
