"""Retention: `muster gc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import Json, option, print_json, switch
from muster.cli.text import counted, parse_duration, size, table, time_text
from muster.client.connect import connect
from muster.defaults import GC_AGE_S
from muster.errors import UserError
from muster.wire.retention import Removable


def gc(
    dry_run: Annotated[bool, switch("Only show what would be removed.", "--dry-run")] = False,
    older_than: Annotated[str, option("TIME", "Only what is older, such as 12h or 30d.")] = time_text(GC_AGE_S),
    keep_last: Annotated[int, option("N", "How many of the newest unused code snapshots to keep.", min=0)] = 0,
    verbose: Annotated[bool, switch("List every item.", "--verbose", "-v")] = False,
    as_json: Json = False,
) -> None:
    """Remove unused code, unfinished uploads and superseded checkpoints.

    What a run, a model or a data asset refers to is never removed.

    \b
    Examples:
      muster gc --dry-run
      muster gc --older-than 30d --keep-last 5
    """
    older_than_s = 0 if older_than.strip("smhd") == "0" else parse_duration(older_than)
    if older_than_s is None:
        raise UserError(f"--older-than {older_than} is not a time.", "Write 12h, 30d or 0.")
    found = connect().collect(dry_run, older_than_s, keep_last)
    if as_json:
        print_json(found)
        return
    lines = _each(found.items) if verbose else _by_reason(found.items)
    if lines:
        print("\n".join(lines))
    verb = "would be removed" if dry_run else "removed"
    say(f"{counted(found.count, 'item')}, {size(found.size)} {verb}")


def _by_reason(items: Sequence[Removable]) -> list[str]:
    groups: dict[tuple[str, str], list[int]] = {}
    for item in items:
        groups.setdefault((item.kind, item.why), []).append(item.size)
    rows = [[kind, f"{len(sizes):,}", size(sum(sizes)), why] for (kind, why), sizes in sorted(groups.items())]
    return table(["WHAT", "COUNT", "SIZE", "WHY"], rows) if rows else []


def _each(items: Sequence[Removable]) -> list[str]:
    rows = [[item.kind, size(item.size), item.name, item.why] for item in items]
    return table(["WHAT", "SIZE", "NAME", "WHY"], rows) if rows else []
