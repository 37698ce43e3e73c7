"""The audit log: `muster audit`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from muster.cli.options import Json, option, print_result
from muster.cli.text import moment, table
from muster.client.connect import connect
from muster.wire.people import AuditEntry


def audit(
    count: Annotated[int, option("N", "At most this many lines.", "--count", "-n", min=1)] = 50,
    user: Annotated[str | None, option("NAME", "Only what this person did.")] = None,
    action: Annotated[str | None, option("ACTION", "Only this, such as run.cancel.")] = None,
    as_json: Json = False,
) -> None:
    """Show who did what to what, when and from where.

    The newest line comes last. For administrators.

    \b
    Examples:
      muster audit
      muster audit --user ada --action run.cancel -n 200
    """
    found = list(connect().audit(count, user, action))
    print_result(found, audit_lines(found[::-1], time.time()), as_json)


def audit_lines(entries: Sequence[AuditEntry], now: float) -> list[str]:
    rows = [
        [
            moment(item.at, now),
            item.who,
            item.source,
            item.action if item.outcome == "done" else f"{item.action} REFUSED",
            f"{item.target}  {item.detail}".strip(),
        ]
        for item in entries
    ]
    return table(["WHEN", "WHO", "FROM", "WHAT", "TO"], rows)
