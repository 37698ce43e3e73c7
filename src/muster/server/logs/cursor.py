"""The position of a follower of a run: a few numbers, however many ranks there are."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from muster import errors

_FORM = 2
"""Version of the cursor's format; version 1 had an offset for every log."""
_MOST = 2**63 - 1


@dataclass
class Cursor:
    """Sent with every event, so that a follower can resume from there at any time, even after a restart."""

    event: int = 0
    metric: int = 0
    entry: int = 0
    """The next entry in the index of the run's logs."""
    within: int = 0
    """How many of its bytes have been read."""
    begun: int = 0
    """The entry at which reading began, where that was not the first; `begun_within`: the offset in it."""
    begun_within: int = 0
    lines: int = 0
    """How many lines were counted, where lines are requested by number."""
    ends: int = 0
    """How many logs were checked for a last line without a line break."""

    def encode(self) -> str:
        numbers = [_FORM, *vars(self).values()]
        while numbers[-1] == 0:
            numbers.pop()
        # JSON by hand, which is faster: one goes with every event.
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
            f"{text[:80]!r} is not a cursor of a stream",
            "Send the last `id:` back as it came; without a cursor the stream begins at its beginning.",
        ) from None


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST
