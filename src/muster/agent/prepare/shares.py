"""Shares that a cluster mounts on its nodes: mounted before an attempt's ranks start, unmounted after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from muster.agent.link import Link
from muster.agent.mover import Failed, Mover, Serving
from muster.errors import UserError
from muster.paths import AttemptPaths
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.staging.messages import Mount, MountShare, Report
from muster.wire.node.agents import Order
from muster.wire.node.mounts import MountOrder
from muster.wire.states import Level


@dataclass
class Shares:
    """Mounts the shares of one attempt. Each has a process that unmounts it when the agent is gone."""

    order: Order
    paths: AttemptPaths
    link: Link
    mover: Mover
    doing: Callable[[str], None]
    note: Callable[[Level, str], None]
    mounted: list[Serving] = field(default_factory=list)

    def prepare(self) -> dict[str, str]:
        """Where the job finds each share; raises Failed."""
        try:
            return {item.name: self._prepare(item) for item in self._wanted()}
        except BaseException:
            self.close()
            raise
        finally:
            self.doing("")

    def close(self) -> None:
        """The job has ended: unmount everything."""
        for serving in self.mounted:
            serving.close()
        self.mounted.clear()

    def _wanted(self) -> tuple[MountOrder, ...]:
        return self.link.mounts(self.order).mounts

    def _prepare(self, item: MountOrder) -> str:
        self.doing(f"mounting {item.source}")
        what = f"the cluster's mount {item.name!r}"
        if item.kind == "refused":
            raise Failed("data_unavailable", f"{what}: {item.why}", next=item.next)
        target = self.paths.mounts / item.name
        self.paths.mounts.mkdir(parents=True, exist_ok=True)
        if item.kind == "folder":
            with suppress(FileExistsError):
                target.symlink_to(item.folder)
            return str(target)
        target.mkdir(exist_ok=True)
        try:
            request = self._request(item, target)
            hear = partial(self._hear, what)
            self.mounted.append(self.mover.serve(request, lambda paths: self._renewed(item.name), on_report=hear))
        except Failed as error:
            raise Failed(error.code, f"{what}: {error.message}", error.final, error.next) from error
        return str(target)

    def _hear(self, what: str, report: Report) -> None:
        if report.failed is not None:
            self.note("error", f"{what} is no longer there: {report.failed.message}")

    def _request(self, item: MountOrder, target: Path) -> Mount | MountShare:
        if item.kind == "nfs":
            return MountShare(item.host, item.port, item.export, str(target), item.read_only)
        if shutil.which("rclone") is None or shutil.which("fusermount3") is None:
            raise Failed(
                "environment",
                "mounting it over FUSE needs the programs rclone and fusermount3, which are not on this node",
                next="Install them (`apt-get install rclone fuse3`), or name the datastore as the job's input.",
            )
        assert item.access is not None
        return Mount(item.access, str(target), self.link.reached_at())

    def _renewed(self, name: str) -> FreshTokens:
        try:
            item = next(found for found in self._wanted() if found.name == name)
        except (UserError, StopIteration) as error:
            raise Failed("data_unavailable", f"no fresh grant for the mount {name!r}: {error}") from error
        if item.access is None:
            return FreshTokens()
        return FreshTokens(item.access.token, {entry.path: entry.token for entry in item.access.manifest or ()})
