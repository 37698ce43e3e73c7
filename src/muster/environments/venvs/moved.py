"""An environment that another node has built: unpacked, with its paths changed to the new folder."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from muster.environments.failures import Failure
from muster.environments.venvs.builder import Progress
from muster.environments.venvs.cache import RECORD, BuildRecord, Built, Cache
from muster.host.files import unpack
from muster.wire.codec import from_json
from muster.wire.node.builds import FOLDER_HEADER

_SCRIPT_BYTES = 1 << 20


def unpacked(packed: Path, key: str, cache: Cache, progress: Progress) -> Built:
    """The environment, unpacked if it is not there yet; raises Failure."""
    with cache.building(key, lambda: progress.say("waiting for another job that builds it")):
        found = cache.find(key)
        if found is None:
            cache.discard(key)
            try:
                found = _unpack(packed, key, cache, progress)
            except BaseException:
                cache.discard(key)
                raise
    for gone in (*cache.sweep(), *cache.make_room(keep=(key,)).removed):
        progress.write(f"removed {gone}")
    return found


def _unpack(packed: Path, key: str, cache: Cache, progress: Progress) -> Built:
    folder = cache.folder(key)
    progress.write(f"unpacking {key}, which another node has built")
    try:
        with tarfile.open(packed) as tar:
            built_in = tar.pax_headers.get(FOLDER_HEADER, "")
            head = tar.extractfile(f"./{RECORD}")
            record = from_json(BuildRecord, json.loads(head.read() if head else b""))
            # The record makes it complete, so it comes last.
            unpack(tar, folder, (item for item in tar if item.name != f"./{RECORD}"), links=True)
    except (tarfile.TarError, OSError, ValueError, KeyError) as error:
        raise Failure(
            "environment", f"the environment of another node cannot be unpacked: {error}", "Try again."
        ) from error
    if built_in and built_in != str(folder):
        for path in _naming_folders(folder):
            content = path.read_bytes()
            if built_in.encode() in content and b"\0" not in content:
                path.write_bytes(content.replace(built_in.encode(), str(folder).encode()))
    cache.complete(key, record)
    found = cache.find(key)
    if found is None:
        raise Failure("environment", f"the interpreter of {folder} is not on this node", "Submit again.")
    progress.write(f"{key} is ready: {len(record.lock)} packages, {record.size >> 20} MiB")
    return found


def _naming_folders(folder: Path) -> Iterator[Path]:
    """The files of an environment that may name its folder."""
    for path in (folder / "pyvenv.cfg", *(folder / "bin").iterdir(), *folder.glob("lib/python*/site-packages/*.pth")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _SCRIPT_BYTES:
            yield path
