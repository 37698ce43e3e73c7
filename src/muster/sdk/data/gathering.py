"""Several files as one input, as v1's datasets allow: collected in a folder of this machine."""

from __future__ import annotations

import glob
import hashlib
import posixpath
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit

from muster.client.storage import Storage
from muster.errors import JobError
from muster.host.hashing import sha256_of
from muster.paths import environments_dir
from muster.sdk.data.datastore import DataPath
from muster.sdk.notices import tell

_WILD = "*?"
_TIMEOUT_S = 60.0

Part = str | DataPath
"""A local path, an address, or a path in a datastore; each may be a pattern."""


def is_several(parts: Sequence[Part]) -> bool:
    """Whether this is more than one file or folder; a pattern for all files below a folder counts as that folder."""
    return len(parts) > 1 or any(_is_pattern(part) for part in parts)


def gather(parts: Sequence[Part]) -> Path:
    """A folder with the files of all parts, each at its path below their common parent.

    It is named after a digest of its files and never changes: a job may read it after this process has ended.
    """
    found = [pair for part in parts for pair in _files(part)]
    if not found:
        raise JobError(f"no file is there for {', '.join(map(_shown, parts))}", "Correct the path or the pattern.")
    common = posixpath.commonpath([posixpath.dirname(name) for name, _ in found])
    root = environments_dir().parent / "gathered"
    root.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=root))
    try:
        for name, source in found:
            target = fresh / posixpath.relpath(name, common or ".")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.bring(target)
        folder = root / _digest(fresh)
        if not folder.exists():
            fresh.replace(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    tell(f"{len(found)} files are brought together in {folder}, and are one input")
    return folder


def _digest(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    lines = (f"{file.relative_to(folder).as_posix()} {sha256_of(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


class _Local:
    def __init__(self, path: str) -> None:
        self._path = path

    def bring(self, target: Path) -> None:
        shutil.copy2(self._path, target)


class _Web:
    def __init__(self, address: str) -> None:
        self._address = address

    def bring(self, target: Path) -> None:
        try:
            with urllib.request.urlopen(self._address, timeout=_TIMEOUT_S) as answer, target.open("wb") as kept:
                shutil.copyfileobj(answer, kept)
        except (URLError, OSError) as error:
            raise JobError(
                f"{self._address} cannot be fetched: {error}", "Download it, and give the path of the file."
            ) from error


class _Stored:
    def __init__(self, storage: Storage, store: str, path: str) -> None:
        self._storage, self._store, self._path = storage, store, path

    def bring(self, target: Path) -> None:
        inner = target.with_name(target.name + ".part")
        (fetched,) = self._storage.download_path(self._store, self._path, inner)
        Path(fetched).replace(target)
        shutil.rmtree(inner, ignore_errors=True)


def _files(part: Part) -> Iterator[tuple[str, _Local | _Web | _Stored]]:
    """Each file with the path that decides its place in the folder."""
    if isinstance(part, DataPath):
        yield from _stored(part)
    elif "://" in part:
        address = urlsplit(part)
        yield f"{address.netloc}{unquote(address.path)}", _Web(part)
    else:
        path = str(Path(part).expanduser().absolute())
        for match in sorted(glob.glob(path, recursive=True)):  # noqa: PTH207
            for file in [match] if Path(match).is_file() else sorted(map(str, Path(match).rglob("*"))):
                if Path(file).is_file():
                    yield file, _Local(file)


def _stored(part: DataPath) -> Iterator[tuple[str, _Stored]]:
    storage, store, wanted = part.datastore._storage, part.datastore.name, part.path_on_datastore
    fixed = wanted[: min((wanted.find(letter) for letter in _WILD if letter in wanted), default=len(wanted))]
    root = wanted if fixed == wanted else posixpath.dirname(fixed)
    for entry in storage.files(store, root):
        path = posixpath.join(root, entry.path) if entry.path else root
        if fixed == wanted or _matches(path, wanted):
            yield f"{store}/{path}", _Stored(storage, store, path)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern: `*` stands for a name or a part of one, `**` for any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.fullmatch("".join(meanings.get(part, re.escape(part)) for part in parts), path) is not None


def _shown(part: Part) -> str:
    return part.address if isinstance(part, DataPath) else part


def _is_pattern(part: Part) -> bool:
    text = part.path_on_datastore if isinstance(part, DataPath) else part
    plain = text.removesuffix("/**").removesuffix("/*")
    return "://" not in text and any(letter in plain for letter in _WILD)
