"""Inputs on the node: read in place, staged through the host's cache, copied, or mounted. Runs in a worker thread."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from muster.agent.link import Backoff, Link
from muster.agent.mover import Failed, Mover, Rate, Renew, Serving
from muster.agent.peers import Peers, Shared
from muster.defaults import LISTING_RETRY_S
from muster.errors import UserError
from muster.host import mounts
from muster.host.children import Abandoned
from muster.host.hashing import sha256_of
from muster.paths import AttemptPaths
from muster.storage.connectors.base import ONE_FILE, TransferError
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.staging.cache import Cache, Held
from muster.storage.staging.messages import Bring, Copy, Done, Mount, ProgressReport, Report, Stage
from muster.wire.data.access import Access, FileEntry, HashedFile, file_etag
from muster.wire.node.agents import InputOrder, Order
from muster.wire.node.peers import BlocksAnswer, BlocksReport
from muster.wire.states import Level

log = logging.getLogger(__name__)


@dataclass
class Inputs:
    """Puts the inputs of one attempt in place."""

    order: Order
    paths: AttemptPaths
    link: Link
    mover: Mover
    doing: Callable[[str], None]
    """Called with the progress; empty at the end."""
    note: Callable[[Level, str], None]
    """Sends a note to the followers of the run: level and text."""
    peers: Peers
    held: list[Held] = field(default_factory=list)
    """Locks on the cached trees that the job uses."""
    mounted: list[Serving] = field(default_factory=list)
    """Mounts that live as long as the job."""

    def prepare(self) -> dict[str, str]:
        """Where the job finds each input; raises Failed."""
        try:
            return {item.name: self._prepared(item) for item in self.order.inputs}
        except BaseException:
            self.close()
            raise
        finally:
            self.doing("")

    def close(self) -> None:
        """The job has ended: release its inputs."""
        for held in self.held:
            held.lock.release()
        self.held.clear()
        for serving in self.mounted:
            serving.close()
        self.mounted.clear()
        self.doing("")

    def _prepared(self, item: InputOrder) -> str:
        try:
            return self._prepare(item)
        except Failed as error:
            # Without more details, the verdict says the same.
            if error.code != "data_unavailable" or not error.next:
                raise
            other = f"Other data in its place: --input {item.name}=PATH."
            raise Failed(error.code, error.message, error.final, f"{error.next} {other}") from error

    def _prepare(self, item: InputOrder) -> str:
        access = self._access(item)
        if access.kind == "refused":
            why, hint = access.options.get("message"), access.options.get("next") or ""
            raise Failed("data_unavailable", f"input {item.name!r}: {why}", next=str(hint))
        if access.kind == "file":
            return self._prepare_local(item, access)
        if item.mode == "direct":
            return access.label or access.url
        if item.mode == "stream" and _can_show():
            return self._stream(item, access)
        if item.mode == "ro_mount" and _wish() == "mount":
            return self._mount(item, access, "as this node is set to do (MUSTER_RO_MOUNT=mount)")
        try:
            return self._stage(item, access)
        except Failed as error:
            if item.mode != "ro_mount" or error.code != "disk_full" or _wish() == "stage" or not _can_mount():
                raise
            return self._mount(item, access, "because it does not fit the node's cache")

    def _access(self, item: InputOrder) -> Access:
        if item.access is None:
            return Access(
                "file", item.source.removeprefix("file://"), folder=item.type != "uri_file", label=item.source
            )
        access = item.access
        if access.mount:
            access = replace(access, url=str(self.paths.mounts / access.mount / access.url), mount="")
        is_listed = access.kind != "file" or access.asset is not None
        if access.manifest_by_reference and item.mode != "direct" and is_listed:
            return replace(access, manifest=self._manifest(item), manifest_by_reference=False)
        return access

    def _manifest(self, item: InputOrder) -> tuple[FileEntry, ...]:
        """The manifest of an input; a failing storage is retried for a while, and the run says why it waits."""
        deadline, backoff = time.monotonic() + LISTING_RETRY_S, Backoff(most_s=5.0)
        while not self.mover.unwanted.is_set():
            try:
                return self.link.manifest(self.order, item.name).files
            except UserError as error:
                if error.code != "storage" or time.monotonic() > deadline:
                    code = error.code if error.code == "bad_input" else "data_unavailable"
                    raise Failed(code, f"input {item.name!r}: {error.message}", next=error.hint or "") from error
                self.doing(f"input {item.name} cannot be listed, trying again: {error.message}")
            self.mover.unwanted.wait(backoff.next_s())
        raise Abandoned("nobody wants the data any more")

    def _prepare_local(self, item: InputOrder, access: Access) -> str:
        """Prepare an input that the node sees as files itself: without the cache."""
        source = Path(access.url)
        check_local(item, source)
        if item.mode == "direct" and "://" in access.label:
            # A path into a datastore could be written to, and its files may belong to an asset.
            return access.label
        if item.mode == "direct" and access.asset is None:
            return str(source)
        target = self._target(item, source.name)
        if item.mode != "download":
            if access.asset is not None:
                check_registered(item, access)
            if access.asset is not None and _can_show() and not mounts.below(source):
                _show(source, target)
            else:
                with suppress(FileExistsError):
                    target.symlink_to(source)
            return str(target)
        folder = target if source.is_dir() else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        request = Copy(f"input {item.name!r}", access, str(folder))
        with self._moving(request, item, f"copying input {item.name}") as done:
            self._report_hashes(item, done.found)
        return str(target)

    def _stage(self, item: InputOrder, access: Access) -> str:
        copied = item.mode == "download" or not _can_show()
        target = self.paths.inputs / item.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if copied:
            target.mkdir(exist_ok=True)
        copy_to = str(target) if copied else None
        request = Stage(
            f"input {item.name!r}",
            access,
            str(self.peers.cache(item.own_cache)),
            self.link.reached_at(),
            copy_to=copy_to,
            shared=item.shared,
            node=self.peers.node,
        )
        with self._moving(request, item, f"fetching input {item.name}") as done:
            self._report_hashes(item, done.found)
            if not copied:
                self._hold(item, done.digest)
                data, name = Path(done.data), done.one_file
                if name:
                    target.mkdir(exist_ok=True)
                _show(data / ONE_FILE if name else data, target / name if name else target)
        return str(target / done.one_file) if done.one_file else str(target)

    def _stream(self, item: InputOrder, access: Access) -> str:
        """Show the input's files as they arrive; the job starts with the first of them."""
        target, wishes = self.paths.inputs / item.name, self.paths.tmp / f".muster-wishes-{item.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        wishes.parent.mkdir(parents=True, exist_ok=True)
        wishes.touch()
        request = Bring(
            f"input {item.name!r}",
            access,
            str(self.peers.cache(item.own_cache)),
            str(wishes),
            self.link.reached_at(),
            item.shared,
            self.peers.node,
        )
        rate, began = Rate(f"fetching input {item.name}"), time.monotonic()

        def hear(report: Report) -> None:
            if report.progress is not None:
                self.doing(rate.text(report.progress))
            if report.failed is not None:
                self.note("error", f"no more of input {item.name} arrives: {report.failed.message}")
            if report.arrived:
                self.note("info", f"all of input {item.name} is there after {time.monotonic() - began:.0f} s")
            if report.progress is None:
                self.doing("")

        serving = self.mover.serve(request, self._renew(item), partial(self._exchange, item), hear)
        self.mounted.append(serving)
        _show(Path(serving.done.data), target)
        return str(target)

    def _mount(self, item: InputOrder, access: Access, why: str) -> str:
        target = self.paths.inputs / item.name
        target.mkdir(parents=True, exist_ok=True)

        def hear(report: Report) -> None:
            if report.failed is not None:
                self.note("error", f"input {item.name} is no longer mounted: {report.failed.message}")

        request = Mount(access, str(target), self.link.reached_at())
        serving = self.mover.serve(request, self._renew(item), on_report=hear)
        self.mounted.append(serving)
        self.note(
            "warning",
            f"input {item.name} is mounted, {why}: every read goes to the storage, which is too slow to feed GPUs. "
            "Where it fits a disk, a staged copy is faster: see MUSTER_CACHE_BYTES and MUSTER_CACHE_DIR.",
        )
        return str(target / serving.done.one_file) if serving.done.one_file else str(target)

    def _hold(self, item: InputOrder, digest: str) -> None:
        try:
            held = Cache(self.peers.cache(item.own_cache)).hold(digest)
        except TransferError as error:
            raise Failed(error.code, error.message) from error
        if held is None:
            raise Failed("platform", f"the staged data {digest} went away")
        self.held.append(held)

    def _moving(self, request: Stage | Copy, item: InputOrder, what: str) -> AbstractContextManager[Done]:
        rate = Rate(what)

        def tell(progress: ProgressReport) -> None:
            self.doing(rate.text(progress))

        return self.mover.run(request, tell, self._renew(item), partial(self._exchange, item))

    def _exchange(self, item: InputOrder, report: BlocksReport) -> BlocksAnswer | None:
        """What other nodes have of an input; problems that came to light are reported at once."""
        answer = self.peers.exchange(self.order.key, Shared("input", item.name, item.own_cache), report)
        for text in answer.notices if answer else ():
            self.note("warning", text)
        return answer

    def _renew(self, item: InputOrder) -> Renew:
        def renew(paths: tuple[str, ...]) -> FreshTokens:
            try:
                fresh = self.link.grants(self.order, {}).inputs.get(item.name)
            except UserError as error:
                raise Failed("data_unavailable", f"no fresh grant for input {item.name!r}: {error}") from error
            if fresh is None:
                return FreshTokens()
            tokens = {entry.path: entry.token for entry in self._manifest(item)} if fresh.per_file else {}
            return FreshTokens(fresh.token, tokens)

        return renew

    def _report_hashes(self, item: InputOrder, found: Sequence[HashedFile]) -> None:
        """Report the hashes of a first download of a data asset; later downloads are checked against them."""
        if found:
            self.link.hashes(self.order, item.name, found)

    def _target(self, item: InputOrder, name: str) -> Path:
        self.paths.inputs.mkdir(parents=True, exist_ok=True)
        target = self.paths.inputs / item.name
        if item.type != "uri_file":
            return target
        # The name of a file often tells its type.
        target.mkdir(exist_ok=True)
        return target / name


def check_local(item: InputOrder, source: Path) -> None:
    """Refuse a local input that is missing, of another type or not readable."""
    try:
        is_dir = stat.S_ISDIR(source.stat().st_mode)
    except OSError as error:
        message = f"input {item.name!r}: {source}: {error.strerror}. It must exist on every node that reads it."
        raise Failed("data_unavailable", message) from error
    if item.type == "uri_file" and is_dir:
        raise Failed("bad_input", f"input {item.name!r}: {source} is a folder. Give it the type uri_folder.")
    if item.type == "uri_folder" and not is_dir:
        raise Failed("bad_input", f"input {item.name!r}: {source} is a file. Give it the type uri_file.")
    if not os.access(source, os.R_OK):
        raise Failed("data_unavailable", f"input {item.name!r}: {source} may not be read by this user.")


def check_registered(item: InputOrder, access: Access) -> None:
    """Refuse a data asset in a folder that has changed; only files that look changed are read."""
    source = Path(access.url)
    for entry in access.manifest or ():
        file = source / entry.path if entry.path else source
        try:
            status = file.stat()
            same = status.st_size == entry.size and (
                file_etag(status.st_size, status.st_mtime) == entry.etag or sha256_of(file) == entry.sha256
            )
        except OSError:
            same = False
        if not same:
            raise Failed(
                "data_unavailable",
                f"input {item.name!r}: {file} is not what was registered as {access.asset}. Register a new version.",
            )


def _wish() -> str:
    """A site's choice for `ro_mount`: staged (and mounted where that does not fit), only staged, or always mounted."""
    wish = os.environ.get("MUSTER_RO_MOUNT", "fit")
    if wish not in ("fit", "stage", "mount"):
        raise Failed("bad_input", f"MUSTER_RO_MOUNT is {wish!r} on this node; it may be fit, stage or mount")
    return wish


def _can_mount() -> bool:
    return shutil.which("rclone") is not None and os.access("/dev/fuse", os.R_OK | os.W_OK)


def _can_show() -> bool:
    """Whether data can be shown to a job that cannot change it: only a mount keeps root from writing."""
    return os.getuid() != 0 or mounts.allowed()


def _show(source: Path, target: Path) -> None:
    """Show data at the path where the job looks for it, read-only and without a copy."""
    if os.getuid() != 0:
        # The files are read-only for this user, so a link is enough.
        with suppress(FileExistsError):
            target.symlink_to(source)
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    if str(target.resolve()) not in mounts.below(target.parent) and not mounts.bind_read_only(source, target):
        raise Failed("platform", f"{source} could not be mounted at {target}")
