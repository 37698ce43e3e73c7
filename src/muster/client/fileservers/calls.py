"""Calls about file servers."""

from __future__ import annotations

import time
from collections.abc import Callable

from muster.client.calls import Group, checking, segment
from muster.errors import NotFound, UserError
from muster.wire.data.fileservers import (
    FileServerChanges,
    FileServerView,
    FillView,
    NewFileServer,
    NewFill,
    read_size,
)

_LOOK_S = 0.3


class FileServers(Group):
    """What a client does with file servers."""

    def list(self) -> list[FileServerView]:
        return list(self.calls.each(FileServerView, "/fileservers"))

    def create(self, new: NewFileServer) -> FileServerView:
        return self.calls.read(FileServerView, "POST", "/fileservers", message=new, again=False)

    def show(self, name: str) -> FileServerView:
        return self.calls.read(FileServerView, "GET", _path(name))

    def resize(self, name: str, size_bytes: int) -> FileServerView:
        """Change how much it may hold."""
        with checking():
            changes = FileServerChanges(size_bytes)
        return self.calls.read(FileServerView, "PATCH", _path(name), message=changes)

    def fill(self, name: str, source: str, to: str = "") -> FileServerView:
        """Fill it from a source; repeated, it fetches what has changed since."""
        message = NewFill(source, to)
        return self.calls.read(FileServerView, "POST", f"{_path(name)}/fills", message=message, again=False)

    def restart(self, name: str) -> FileServerView:
        """Restart a file server, or start one that failed or was stopped."""
        return self.calls.read(FileServerView, "POST", f"{_path(name)}/restart", again=False)

    def delete(self, name: str, keep_data: bool = False) -> None:
        """Delete it with its data; with `keep_data` the node's folder stays."""
        self.calls.send("DELETE", _path(name), query={"keep_data": keep_data})

    def until_served(self, name: str, told: Callable[[FileServerView], None] = lambda view: None) -> FileServerView:
        """Wait until it serves, or fails."""
        while True:
            view = self.show(name)
            told(view)
            if view.state not in ("starting",):
                return view
            time.sleep(_LOOK_S)

    def until_filled(
        self,
        name: str,
        source: str,
        to: str,
        told: Callable[[FileServerView, FillView], None] = lambda view, fill: None,
    ) -> FillView:
        """Wait until a source is filled in, or fails."""
        while True:
            view = self.show(name)
            fill = fill_of(view, source, to)
            told(view, fill)
            if fill.progress.state in ("filled", "failed") or view.state in ("failed", "stopped"):
                return fill
            time.sleep(_LOOK_S)

    def until_gone(self, name: str) -> None:
        """Wait until it is deleted."""
        while True:
            try:
                self.show(name)
            except NotFound:
                return
            time.sleep(_LOOK_S)


def fill_of(view: FileServerView, source: str, to: str) -> FillView:
    """One of a file server's fills; its address may have had its version fixed."""
    inside = [fill for fill in view.fills if fill.to == to.strip("/")]
    if not inside:
        raise UserError(f"{source} is not being brought to {view.name} any more", "Somebody has taken it back.")
    return inside[-1]


def new_file_server(name: str, size: str | int, **fields: object) -> NewFileServer:
    """A file server to be created, checked."""
    with checking():
        return NewFileServer(name, read_size(size) if isinstance(size, str) else size, **fields)  # type: ignore[arg-type]


def parse_size(size: str) -> int:
    """A size in bytes, or a refusal."""
    with checking():
        return read_size(size)


def _path(name: str) -> str:
    return f"/fileservers/{segment(name, 'file server')}"
