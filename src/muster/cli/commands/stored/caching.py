"""`muster cache`: the data that jobs on this machine have staged."""

from __future__ import annotations

import time
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.text import ago, counted, size, table
from muster.errors import NotFound, UserError
from muster.paths import data_cache_dir
from muster.storage.staging.cache import Cache, Cached
from muster.wire.text import printable


def list_(as_json: Json = False) -> None:
    """List what this machine's cache of staged data holds, what was used last first.

    \b
    Examples:
      muster cache list
    """
    cache = Cache(data_cache_dir())
    found, now = cache.trees(), time.time()
    rows = [
        [
            item.digest[:12],
            size(item.size),
            f"{item.files:,}",
            "now" if item.in_use else ago(item.used_at, now),
            printable(item.first_file),
        ]
        for item in found
    ]
    limit = cache.limit_bytes
    if rows or as_json:
        shown = {"folder": str(cache.root), "limit_bytes": limit, "entries": found}
        print_result(shown, table(["KEY", "SIZE", "FILES", "USED", "FIRST FILE"], rows), as_json)
    if not as_json:
        held = sum(item.size for item in found)
        say(f"{cache.root}: {size(held)} of at most {size(limit)}, in {counted(len(found), 'data set')}")


def clear(
    keys: Annotated[list[str] | None, argument("KEY", "As `muster cache list` shows them, or their beginning.")] = None,
    every: Annotated[bool, switch("All that no job uses.", "--all")] = False,
    older: Annotated[str | None, option("TIME", "What was not used for so long.", "--older-than")] = None,
    as_json: Json = False,
) -> None:
    """Remove staged data from this machine's cache. What a running job uses stays; a later job fetches it again.

    \b
    Examples:
      muster cache clear --older-than 30d
      muster cache clear --all
    """
    cache = Cache(data_cache_dir())
    chosen = _chosen(cache.trees(), keys or [], every, older)
    removed = [item for item in chosen if not item.in_use and cache.remove(item.digest)]
    kept = len(chosen) - len(removed)
    freed = sum(item.size for item in removed)
    if as_json:
        print_json({"removed": [item.digest for item in removed], "bytes": freed, "in_use": kept})
        return
    in_use = f"; {counted(kept, 'data set')} in use and kept" if kept else ""
    say(f"removed {counted(len(removed), 'data set')}, {size(freed)}{in_use}")


def _chosen(found: list[Cached], keys: list[str], every: bool, older: str | None) -> list[Cached]:
    if bool(keys) + every + (older is not None) != 1:
        raise UserError("it is not clear what to remove.", "Give keys, --all, or --older-than TIME.")
    if older is not None:
        limit = time.time() - seconds_of("--older-than", older)
        return [item for item in found if item.used_at < limit]
    if every:
        return found
    chosen = []
    for key in keys:
        matching = [item for item in found if item.digest.startswith(key)]
        if len(matching) != 1:
            many = "several data sets" if matching else "no data set"
            raise NotFound(
                f"{many} in the cache with a key that begins with {key!r}.", "`muster cache list` lists them."
            )
        chosen += matching
    return chosen


COMMANDS = (list_, clear)
