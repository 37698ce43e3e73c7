"""File servers: nodes that hold data and serve them to clusters over NFS."""

from __future__ import annotations

from muster.client.fileservers.calls import FileServers, new_file_server, parse_size
from muster.errors import UserError
from muster.sdk.connected import Connected
from muster.sdk.data.datastore import DataPath, Datastore
from muster.wire.codec import Json, to_json
from muster.wire.data.fileservers import FileServerView, FillView


class FileServer:
    """A file server of the workspace, by name."""

    def __init__(self, workspace: Connected, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self._view = FileServers(workspace.client.calls).show(name)

    @staticmethod
    def create(
        workspace: Connected,
        name: str,
        size: str | int,
        cluster: str = "local",
        folder: str | None = None,
        clients: str | None = None,
        description: str | None = None,
    ) -> FileServer:
        """Create a file server that may hold `size` (`"500GB"`, or bytes), and wait until it serves."""
        servers = FileServers(workspace.client.calls)
        servers.create(
            new_file_server(name, size, cluster=cluster, folder=folder, clients=clients, description=description)
        )
        return FileServer(workspace, name)._served(servers.until_served(name))

    @staticmethod
    def list(workspace: Connected) -> list[FileServer]:
        """Every file server of the workspace."""
        return [FileServer(workspace, view.name) for view in FileServers(workspace.client.calls).list()]

    @property
    def state(self) -> str:
        """`serving`, `starting`, `failed`, `stopped` or `deleting`, now."""
        return self._look().state

    @property
    def address(self) -> str | None:
        """The address for NFS clients: `nfs://HOST:PORT/NAME`; None while it does not serve."""
        view = self._look()
        return f"nfs://{view.address}:{view.port}{view.export}" if view.address and view.port else None

    def get_status(self) -> dict[str, Json]:
        """Everything known about the file server, with the progress of its fills."""
        found: dict[str, Json] = to_json(self._look())
        return found

    def fill(self, source: str | DataPath, to: str = "", show_output: bool = False) -> None:
        """Copy the files of a datastore's folder or a data asset to it; returns once they are there and verified."""
        address = source if isinstance(source, str) else source.address
        servers = FileServers(self.workspace.client.calls)
        servers.fill(self.name, address, to)
        found = servers.until_filled(self.name, address, to, _print if show_output else _keep_silent)
        if found.progress.state != "filled":
            why = found.progress.text or self._look().why or self._look().state
            raise UserError(
                f"{address} could not be brought to {self.name}: {why}", found.progress.next or "See its status."
            )

    def path(self, path: str = "") -> DataPath:
        """A path on the file server, as an input of jobs."""
        return Datastore(self.workspace, self.name).path(path)

    def resize(self, size: str | int) -> None:
        """Change its capacity; never below its current content."""
        wanted = parse_size(size) if isinstance(size, str) else size
        self._view = FileServers(self.workspace.client.calls).resize(self.name, wanted)

    def restart(self) -> None:
        """Restart it and wait until it serves; its data stay."""
        servers = FileServers(self.workspace.client.calls)
        servers.restart(self.name)
        self._served(servers.until_served(self.name))

    def delete(self, keep_data: bool = False) -> None:
        """Delete the file server with its data; with `keep_data` the node's folder stays."""
        servers = FileServers(self.workspace.client.calls)
        servers.delete(self.name, keep_data)
        servers.until_gone(self.name)

    def _look(self) -> FileServerView:
        self._view = FileServers(self.workspace.client.calls).show(self.name)
        return self._view

    def _served(self, view: FileServerView) -> FileServer:
        if view.state != "serving":
            raise UserError(f"the file server {self.name} does not serve: {view.why or view.state}", "Mend that.")
        return self


def _print(view: FileServerView, fill: FillView) -> None:
    now = fill.progress
    print(f"{fill.source}: {now.done_files} of {now.total_files} files, {now.text}".rstrip(", "))


def _keep_silent(view: FileServerView, fill: FillView) -> None:
    pass
