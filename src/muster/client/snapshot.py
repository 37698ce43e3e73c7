"""Code folders as content-addressed snapshots: what belongs in one, and how it is uploaded."""

from __future__ import annotations

import heapq
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from muster.client.api import Client
from muster.client.calls import PIECE_BYTES
from muster.client.ignore import IgnoreRules
from muster.defaults import CODE_LIMIT_BYTES
from muster.errors import JobError, ServerUnavailable
from muster.host.files import is_below
from muster.host.hashing import Measuring, measure_open
from muster.wire import code
from muster.wire.codec import to_json

_BATCH_BYTES = 64 << 20
_TRIES = 3
_RESULTS = frozenset({"outputs", "logs"})
"""Folders of a rank's working directory whose files are kept with the run."""
_PLACEHOLDERS = frozenset({".gitignore", ".gitkeep"})


Sent = Callable[[int, int], None]
"""Called with the bytes sent so far, and with how many there are to send."""


class FileChanged(JobError):
    """A file was written to while it was being read."""


@dataclass(frozen=True)
class Manifest:
    """The files of a snapshot and their local paths."""

    folder: Path
    files: code.Manifest
    """Sorted by path."""
    notices: tuple[str, ...] = ()
    elsewhere: Mapping[str, Path] = field(default_factory=dict)
    """Files that are outside of the folder."""

    def path_of(self, name: str) -> Path:
        return self.elsewhere.get(name) or self.folder / name

    @cached_property
    def digest(self) -> str:
        """The name of the snapshot."""
        return code.digest_of(self.files)


def scan(folder: Path | str, limit_bytes: int = CODE_LIMIT_BYTES, is_code: bool = True) -> Manifest:
    """What is sent of a folder (or single file); JobError when it is too large or leads out of the folder.

    Of code, ignored files and results of earlier runs are left out.
    """
    root = Path(folder).resolve()
    if root.is_file():
        return Manifest(root.parent, {root.name: _entry(root)})
    if not root.is_dir():
        raise JobError(f"there is no code folder {folder}", "Give the folder that holds the script.")
    walk = _Walk(root, limit_bytes, IgnoreRules(root, is_code), _RESULTS if is_code else frozenset())
    files = {name: _entry(path) for name, path in sorted(walk.run().items())}
    return Manifest(root, files, tuple(walk.notices))


def with_includes(manifest: Manifest | None, includes: Sequence[Path]) -> Manifest:
    """Code with further files and folders next to it, each under its own name."""
    whole = manifest or Manifest(Path.cwd(), {})
    for include in includes:
        found = scan(include)
        prefix = "" if include.resolve().is_file() else f"{include.resolve().name}/"
        added = {prefix + name: entry for name, entry in found.files.items()}
        if taken := sorted(name for name in added if name in whole.files and whole.files[name] != added[name]):
            raise JobError(
                f"additional_includes: {include} brings {taken[0]}, which the code has already",
                "Rename one of them.",
            )
        paths = {prefix + name: found.path_of(name) for name in found.files}
        whole = Manifest(
            whole.folder,
            dict(sorted({**whole.files, **added}.items())),
            (*whole.notices, *found.notices),
            {**whole.elsewhere, **paths},
        )
    return whole


def push(client: Client, manifest: Manifest, progress: Sent = lambda done, total: None) -> str:
    """Send what the server does not have; return the digest that names the snapshot."""
    for attempt in range(1, _TRIES + 1):
        try:
            lacking = client.missing_blobs(manifest.files)
            if lacking.known:
                return manifest.digest
            batches = list(_batches(manifest, set(lacking.missing)))
            counted = _Counted(sum(size for batch in batches for _, size, _ in batch), progress)
            for batch in batches:
                client.put_blobs(counted.passing(_frames(batch)))
            break
        except ServerUnavailable:
            if attempt == _TRIES:
                raise
    client.put_snapshot(manifest.digest, manifest.files)
    return manifest.digest


@dataclass
class _Counted:
    """Counts bytes that pass through."""

    total: int
    progress: Sent
    done: int = 0

    def passing(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self.done = min(self.total, self.done + len(piece))
            self.progress(self.done, self.total)


class _Walk:
    """One pass over a folder that checks only names and sizes, and stops as soon as it is too large."""

    def __init__(self, root: Path, limit_bytes: int, rules: IgnoreRules, results: frozenset[str]) -> None:
        self.notices: list[str] = []
        self._root = root
        self._limit_bytes = limit_bytes
        self._rules = rules
        self._results = results
        self._found: dict[str, Path] = {}
        self._sizes: list[tuple[int, str]] = []
        self._total = 0
        self._escaping: list[str] = []

    def run(self) -> dict[str, Path]:
        self._folder(self._root, "", (self._root,))
        if self._escaping:
            raise JobError(
                "links in the code folder lead outside of it: " + ", ".join(self._escaping[:10]),
                f"Copy what they point to into the folder, or name them in {self._rules.file_to_write}.",
            )
        return self._found

    def _folder(self, folder: Path, prefix: str, above: tuple[Path, ...]) -> None:
        self._rules.enter(folder, prefix)
        for entry in self._entries(folder):
            name = prefix + entry.name
            if not _is_text(name):
                raise JobError(f"the file name {name!r} is not valid UTF-8", f"Rename it. {self._ignore_hint()}")
            if self._rules.ignores(name, is_folder=entry.is_dir()):
                continue
            if name in self._results and entry.is_dir() and self._is_of_earlier_runs(Path(entry.path), name):
                continue
            if entry.is_symlink() and not self._link_stays(entry, name):
                continue
            if entry.is_dir():
                self._subfolder(Path(entry.path), name, above)
            elif entry.is_file():
                self._file(Path(entry.path), name, entry.stat().st_size)
            else:
                self.notices.append(f"code: {name} is not a regular file and was left out")

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            return sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise JobError(f"the code folder cannot be read: {error}", self._ignore_hint()) from error

    def _is_of_earlier_runs(self, folder: Path, name: str) -> bool:
        """Whether a folder holds results of earlier runs, which a run would keep as its own; a package is code."""
        held = {entry.name for entry in self._entries(folder)}
        if "__init__.py" in held:
            return False
        if held - _PLACEHOLDERS:
            self.notices.append(
                f"{name}/ in the code folder is not sent: it is where a run puts its own results; "
                "what the job needs of it belongs in another folder"
            )
        return True

    def _link_stays(self, entry: os.DirEntry[str], name: str) -> bool:
        target = Path(entry.path).resolve()
        if not is_below(target, self._root):
            self._escaping.append(f"{name} -> {target}")
            return False
        if not target.exists():
            self.notices.append(f"code: the link {name} leads nowhere and was left out")
            return False
        return True

    def _subfolder(self, folder: Path, name: str, above: tuple[Path, ...]) -> None:
        real = folder.resolve()
        if real in above:
            raise JobError(f"the link {name} in the code folder leads back to a folder above it", self._ignore_hint())
        if (folder / "pyvenv.cfg").is_file():
            return
        self._folder(folder, name + "/", (*above, real))

    def _file(self, path: Path, name: str, size: int) -> None:
        self._found[name] = path
        self._sizes.append((size, name))
        self._total += size
        if self._total > self._limit_bytes:
            largest = "\n".join(f"  {_human(size):>10}  {name}" for size, name in heapq.nlargest(10, self._sizes))
            raise JobError(
                f"the code folder {self._root} is larger than {_human(self._limit_bytes)}. "
                f"The largest files up to there:\n{largest}",
                f"{self._ignore_hint()} Data belongs in an input, not in the code.",
            )

    def _ignore_hint(self) -> str:
        return f"Name what the job does not need in {self._rules.file_to_write}, as in a .gitignore."


def _entry(path: Path) -> tuple[str, int, int]:
    """(sha256, size, mode) of a file that does not change while it is read."""
    for _ in range(_TRIES):
        try:
            with path.open("rb") as stream:
                before = os.fstat(stream.fileno())
                digest, size = measure_open(stream)
                after = os.fstat(stream.fileno())
        except OSError as error:
            raise JobError(f"a file of the code cannot be read: {error}", "Make it readable, or ignore it.") from error
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if is_same and size == after.st_size:
            return digest, size, 0o755 if after.st_mode & stat.S_IXUSR else 0o644
    raise FileChanged(f"{path} keeps changing while it is being read", "Submit when nothing writes to the code folder.")


def _batches(manifest: Manifest, missing: set[str]) -> Iterator[list[tuple[str, int, Path]]]:
    batch: list[tuple[str, int, Path]] = []
    total = 0
    for name, (sha256, size, _) in manifest.files.items():
        if sha256 not in missing:
            continue
        missing.discard(sha256)
        batch.append((sha256, size, manifest.path_of(name)))
        total += size
        if total >= _BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _frames(batch: list[tuple[str, int, Path]]) -> Iterator[bytes]:
    """A JSON line and the bytes of each file; FileChanged when they differ from the scan."""
    for sha256, size, path in batch:
        yield json.dumps(to_json(code.BlobHead(sha256, size))).encode() + b"\n"
        sent = Measuring()
        with path.open("rb") as stream:
            while piece := stream.read(min(PIECE_BYTES, size - sent.size)):
                sent.add(piece)
                yield piece
        if sent.sha256 != sha256:
            raise FileChanged(
                f"{path} changed while it was being sent", "Submit when nothing writes to the code folder."
            )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
