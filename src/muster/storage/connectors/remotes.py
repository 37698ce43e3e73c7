"""From an access, as the server hands it out, to what reads or writes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from muster.storage.connectors.blob import Blob, Share
from muster.storage.connectors.credentials import Keys, Refresh
from muster.storage.connectors.files import Folder, Fsspec
from muster.storage.connectors.http import Http
from muster.storage.connectors.web import MusterStore, Web
from muster.storage.staging.model import ONE_FILE, TransferError
from muster.wire.access import Access

Remote = Folder | Fsspec | Web


def open_remote(access: Access, server: Mapping[str, Any], refresh: Refresh | None = None) -> Remote:
    """What reads (or, but for plain HTTP, writes) there; `server` says how the workspace's server is reached."""
    label = access.label or access.url
    if access.kind == "file":
        return Folder(access.url, label)
    if access.kind == "fsspec":
        return Fsspec(access.url, access.options, label)
    keys = Keys(access.token, _tokens(access), refresh)
    if access.kind == "azure-blob":
        return Blob(access.url, keys, label)
    if access.kind == "azure-file":
        return Share(access.url, keys, label)
    if access.kind == "muster":
        return MusterStore(access.url, keys, label, _server(server))
    if access.kind == "http":
        return Web(access.url, keys, label)
    raise TransferError("platform", f"{label}: this node does not know storage of the kind {access.kind!r}")


def single_name(access: Access) -> str:
    """What the file is called where the access is to one file."""
    if access.kind == "file":
        return access.url.rstrip("/").rpartition("/")[2]
    return unquote(urlsplit(access.url).path.rstrip("/").rpartition("/")[2]) or ONE_FILE


def _tokens(access: Access) -> dict[str, str] | None:
    if not access.per_file:
        return None
    return {entry.path: entry.token for entry in access.manifest or () if entry.token}


def _server(server: Mapping[str, Any]) -> Http:
    url = str(server["url"])
    if url.startswith("unix:"):
        return Http("http://localhost", unix=url.removeprefix("unix:"))
    if url.startswith("file:"):
        return Http("http://localhost", spool=url.removeprefix("file:"))
    return Http(url, server.get("pinned_certificate"))
