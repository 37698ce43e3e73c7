"""Opens an access, as the server hands it out, for reading or writing."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from muster.host.extras import install_command
from muster.host.http import Address
from muster.storage.connectors.azure import Blob, Share
from muster.storage.connectors.base import ONE_FILE, TransferError
from muster.storage.connectors.credentials import Keys, Refresh
from muster.storage.connectors.files import Folder
from muster.storage.connectors.filesystems import Filesystem
from muster.storage.connectors.http import Http
from muster.storage.connectors.public import Public
from muster.storage.connectors.web import MusterStore, Web, WritableWeb
from muster.storage.kinds import extra_for
from muster.wire.data.access import Access

Writable = Folder | Filesystem | Blob | Share | MusterStore


def open_access(access: Access, server: Address | None = None, refresh: Refresh | None = None) -> Writable | Web:
    """The connector of an access (for plain HTTP it only reads); `server` is the address of the workspace's server."""
    label = access.label or access.url
    if access.kind == "file":
        return Folder(access.url, label)
    if access.kind == "fsspec":
        try:
            return Filesystem.at(access.url, access.options, label)
        except ImportError as error:
            extra = extra_for(access.url)
            hint = f"Install it where it is read: {install_command(extra)}" if extra else ""
            raise TransferError("data_unavailable", f"{label}: {error}", next=hint) from error
        except ValueError as error:
            raise TransferError("data_unavailable", f"{label}: {error}") from error
    keys = Keys(access.token, _tokens(access), refresh)
    if access.kind == "azure-blob":
        return Blob(access.url, keys, label)
    if access.kind == "azure-file":
        return Share(access.url, keys, label)
    if access.kind == "muster" and server is not None:
        return MusterStore(access.url, keys, label, Http(server))
    if access.kind == "http":
        return Public(access.url, label)
    raise TransferError("platform", f"{label}: this node does not know storage of the kind {access.kind!r}")


def open_output(access: Access, server: Address | None = None, refresh: Refresh | None = None) -> Writable:
    """The connector that writes to an access."""
    found = open_access(access, server, refresh)
    if isinstance(found, Folder | Filesystem | WritableWeb):
        return found  # type: ignore[return-value]
    raise TransferError("bad_input", f"{found.label}: plain HTTP can only be read. Name a datastore.")


def single_name(access: Access) -> str:
    """The file's name, for an access to one file."""
    if access.kind == "file":
        return access.url.rstrip("/").rpartition("/")[2]
    return unquote(urlsplit(access.url).path.rstrip("/").rpartition("/")[2]) or ONE_FILE


def _tokens(access: Access) -> dict[str, str] | None:
    if not access.per_file:
        return None
    return {entry.path: entry.token for entry in access.manifest or () if entry.token}
