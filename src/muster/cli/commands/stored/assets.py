"""`muster data archive`, `diff`: the later life of data assets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import Json, argument, print_json, print_result, switch
from muster.cli.text import counted, size, table
from muster.client.connect import connect, connect_to_read
from muster.client.storage import Storage
from muster.client.transfer.looking import difference
from muster.errors import UserError
from muster.storage.addresses import parse_address
from muster.wire.data.assets import AssetUses
from muster.wire.text import printable

Version = Annotated[str, argument("ASSET", "NAME:VERSION.")]


def archive(
    asset: Version,
    undo: Annotated[bool, switch("Show it again.", "--undo")] = False,
    as_json: Json = False,
) -> None:
    """Hide a version of a data asset from lists and from `latest`. Jobs that name it still get it.

    \b
    Examples:
      muster data archive digits:1
      muster data archive digits:1 --undo
    """
    storage = Storage(connect().calls)
    name, version = named(asset)
    changed = storage.archive_asset(name, version, archived=not undo)
    if as_json:
        print_json(changed)
        return
    say(f"{name}:{version} is {'shown again' if undo else 'archived; --undo shows it again'}")
    if not undo and (used := used_by(storage.asset_uses(name, version))):
        say(f"it is used by {used}")


def diff(
    left: Annotated[str, argument("LEFT", "NAME:VERSION.")],
    right: Annotated[str, argument("RIGHT", "NAME:VERSION.")],
    as_json: Json = False,
) -> None:
    """Compare two versions of data assets: files that were added, removed or changed.

    \b
    Examples:
      muster data diff digits:1 digits@latest
    """
    storage = Storage(connect_to_read().calls)
    first, second = (_asset(text) for text in (left, right))
    found = difference(storage.manifest(*first), storage.manifest(*second))
    rows = [[change.what, size(change.size), printable(change.path)] for change in found.changes]
    if rows or as_json:
        print_result(found, table(["WHAT", "SIZE", "FILE"], rows), as_json)
    unknown = f"; of {found.unknown:,} only the size is known" if found.unknown else ""
    say(f"{counted(len(rows), 'difference')}, {counted(found.same, 'file')} the same{unknown}")


def remove_asset(storage: Storage, asset: str, yes: bool, ask: Callable[[str, bool], None], dry_run: bool) -> AssetUses:
    """Delete a version of a data asset; prints what used it."""
    name, version = named(asset)
    found = storage.asset_uses(name, version)
    used = used_by(found)
    if dry_run:
        say(f"{name}:{version} would be removed" + (f"; it was used by {used}" if used else ""))
        return found
    ask(f"the data asset {name}:{version}" + (f", used by {used}," if used else ""), yes)
    storage.delete_asset(name, version)
    say(f"{name}:{version} is removed" + (f"; it was used by {used}" if used else ""))
    say("what `muster data create` copied for it goes with `muster gc` once it is a day old; other files stay")
    return found


def used_by(uses: AssetUses) -> str:
    """What uses a version, in short; empty: nothing."""
    parts = []
    if uses.active:
        parts.append(f"{', '.join(uses.active[:3])} ({counted(len(uses.active), 'active run')})")
    if uses.ended:
        parts.append(f"{counted(uses.ended, 'ended run')}, the last {uses.last[0]}")
    return " and ".join(parts)


def named(asset: str) -> tuple[str, str]:
    """A data asset with its version resolved, so that it cannot change a moment later."""
    name, version = _asset(asset)
    if version is None:
        raise UserError(f"{asset} names no version.", f"Write {name}:VERSION; `muster data list {name}` lists them.")
    return name, version


def _asset(text: str) -> tuple[str, str | None]:
    location = parse_address(text if text.startswith("azureml:") else f"azureml:{text}")
    return location.store, location.version
