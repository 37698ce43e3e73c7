"""File servers: `muster fileserver …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.console import columns, is_terminal, notice, say
from muster.cli.options import Json, argument, option, print_json, print_result, switch
from muster.cli.text import counted
from muster.cli.text import size as _size
from muster.cli.views import fileservers as views
from muster.client.connect import connect, connect_to_read
from muster.client.fileservers.calls import FileServers, new_file_server, parse_size
from muster.clusters.file_server import FileServerFile, load_file_server
from muster.errors import UserError
from muster.wire.data.fileservers import FileServerView, FillView


def complete_file_servers(incomplete: str) -> Iterator[str]:
    """File servers of a running server."""
    try:
        found = FileServers(connect(start=False).calls).list()
    except Exception:
        return
    yield from (view.name for view in found if view.name.startswith(incomplete))


Name = Annotated[str, argument("NAME", "The file server's name.", autocompletion=complete_file_servers)]
Size = Annotated[str | None, option("SIZE", "The most that it may hold, such as 500GB or 2TB.", "--size")]
NoWait = Annotated[bool, switch("Return at once.", "--no-wait")]
Yes = Annotated[bool, switch("Do not ask.", "--yes", "-y")]


def create(
    name: Annotated[str | None, argument("NAME", "The file server's name (default: the one in the file).")] = None,
    size: Size = None,
    cluster: Annotated[str, option("NAME", "The cluster, one node of which it runs on (default: local).")] = "local",
    folder: Annotated[str | None, option("FOLDER", "Where the node keeps the data (default: in a home).")] = None,
    clients: Annotated[
        str | None, option("NETWORK", "Who may read, such as 10.1.0.0/16 (default: the cluster's subnet).")
    ] = None,
    file: Annotated[Path | None, option("FILE", "A file server's file of Batch AI (.json).", "--file", "-f")] = None,
    description: Annotated[str | None, option("TEXT", "What it is for.")] = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Create a file server: a node that holds data and serves it read-only over NFS (version 4).

    By nfs-ganesha where it is installed and the node's agent runs as root, else by Muster's own server.

    \b
    Examples:
      muster fileserver create imagenet --size 200GB
      muster fileserver create imagenet --size 2TB --cluster gpu --clients 10.1.0.0/16 --folder /data/imagenet
    """
    settings = load_file_server(file) if file is not None else FileServerFile(None, 0)
    chosen = name or settings.name
    if chosen is None:
        raise UserError("the file server has no name.", "Write `muster fileserver create NAME --size SIZE`.")
    if size is None and not settings.size_bytes:
        raise UserError("the file server has no size.", "Give the most that it may hold: --size 500GB.")
    for text in settings.notices:
        notice(text)
    new = new_file_server(
        chosen, size or settings.size_bytes, cluster=cluster, folder=folder, clients=clients, description=description
    )
    servers = FileServers(connect().calls)
    made = servers.create(new)
    _wait_and_show(servers, made, no_wait, as_json)


def list_(as_json: Json = False) -> None:
    """List file servers, with what they hold and where they serve it.

    \b
    Examples:
      muster fileserver list
    """
    found = FileServers(connect_to_read().calls).list()
    if not found and not as_json:
        say("no file servers yet; `muster fileserver create NAME --size SIZE` makes one")
        return
    print_result(found, views.listing(found, time.time(), columns(sys.stdout)), as_json)


def show(name: Name, as_json: Json = False) -> None:
    """Show a file server: its address, what it holds, and how far its fills are.

    \b
    Examples:
      muster fileserver show imagenet
    """
    view = FileServers(connect_to_read().calls).show(name)
    print_result(view, views.description(view, time.time(), columns(sys.stdout)), as_json)


def fill(
    name: Name,
    source: Annotated[str, argument("SOURCE", "azureml://datastores/NAME/paths/FOLDER, or azureml:ASSET:VERSION.")],
    to: Annotated[str, option("SUBFOLDER", "The folder that gets the files (default: its root).", "--to")] = "",
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Copy the files of a datastore's folder or a data asset to a file server.

    Every file is verified before clients see it. A fill that is interrupted goes on where it was; the same one typed
    again fetches what is new or has changed.

    \b
    Examples:
      muster fileserver fill imagenet azureml://datastores/scratch --to train
    """
    servers = FileServers(connect().calls)
    view = servers.fill(name, source, to)
    if no_wait:
        print_json(view) if as_json else say(f"{source} is on its way; `muster fileserver show {name}` says how far")
        return
    shown = _Line(not as_json)
    found = servers.until_filled(name, source, to, shown.tell)
    shown.end()
    view = servers.show(name)
    if as_json:
        print_json(view)
    elif found.progress.state == "filled":
        done = found.progress
        say(f"{counted(done.total_files, 'file')} ({_size(done.total_bytes)}) on {name}, verified")
    if found.progress.state != "filled":
        raise UserError(
            f"{source} could not be brought to {name}: {found.progress.text or view.why or view.state}",
            found.progress.next
            or f"`muster fileserver show {name}` has more. A fill that brought nothing yet gives way to the next one "
            "of its folder: where the source is mistyped, type it again.",
        )


def resize(name: Name, size: Size = None, as_json: Json = False) -> None:
    """Change how much a file server may hold; it never becomes smaller than what it holds.

    \b
    Examples:
      muster fileserver resize imagenet --size 400GB
    """
    if size is None:
        raise UserError("the new size is missing.", "Give it: --size 400GB.")
    view = FileServers(connect().calls).resize(name, parse_size(size))
    if as_json:
        print_json(view)
        return
    say(f"{name} may hold {_size(view.size_bytes)} from now on")


def restart(name: Name, no_wait: NoWait = False, as_json: Json = False) -> None:
    """Start a file server that failed or was stopped, or restart one that serves. Its data stays.

    \b
    Examples:
      muster fileserver restart imagenet
    """
    servers = FileServers(connect().calls)
    _wait_and_show(servers, servers.restart(name), no_wait, as_json)


def delete(
    name: Name,
    yes: Yes = False,
    keep_data: Annotated[bool, switch("Leave the data on the node.", "--keep-data")] = False,
    as_json: Json = False,
) -> None:
    """Delete a file server with its data. What it was filled from stays.

    \b
    Examples:
      muster fileserver delete imagenet --yes
    """
    servers = FileServers(connect().calls)
    view = servers.show(name)
    held = "leaving" if keep_data else "with"
    if not yes and not typer.confirm(f"Delete {name} {held} {_size(view.used_bytes)} of data?"):
        raise typer.Exit(1)
    servers.delete(name, keep_data)
    servers.until_gone(name)
    if as_json:
        print_json({"deleted": name})
        return
    stays = keep_data or view.state != "serving"
    left = f"; what it held stays in {view.folder} of {view.node}" if stays and view.folder else ""
    say(f"{name} is deleted{left}")


def _wait_and_show(servers: FileServers, view: FileServerView, no_wait: bool, as_json: bool) -> None:
    if not no_wait:
        view = servers.until_served(view.name)
    if as_json:
        print_json(view)
    elif view.state == "serving":
        say(
            f"{view.name} serves at {views.address(view)}; `muster fileserver fill {view.name} azureml://…` brings data"
        )
    elif no_wait:
        say(f"{view.name} is starting; `muster fileserver show {view.name}` says how far it is")
    if not no_wait and view.state != "serving":
        raise UserError(f"{view.name} does not serve: {view.why or view.state}", "Mend that, and restart it.")


class _Line:
    """The progress line of a fill on the terminal."""

    def __init__(self, wanted: bool) -> None:
        self._visible = wanted and is_terminal(sys.stderr)

    def tell(self, view: FileServerView, fill: FillView) -> None:
        if self._visible:
            state = f"{view.name} is {view.state}" if view.state != "serving" else fill.progress.state
            sys.stderr.write(f"\r\x1b[K{state}: {views.progress(fill)}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


COMMANDS = (create, list_, show, fill, resize, restart, delete)
