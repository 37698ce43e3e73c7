"""What may be opened for users who are not administrators: no local file unless listed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import normpath
from urllib.parse import urlsplit

from muster.errors import AccessDenied, UserError
from muster.host.egress import Fence, networks
from muster.storage.addresses import Location
from muster.storage.kinds import BlobContainer, FsspecAddress, LocalFolder, Options, SharedFolder
from muster.wire.codec import Json

REMOTE = frozenset(
    (
        "s3",
        "s3a",
        "gs",
        "gcs",
        "az",
        "abfs",
        "abfss",
        "adl",
        "http",
        "https",
        "sftp",
        "ssh",
        "ftp",
        "hf",
        "oss",
        "webhdfs",
    )
)
"""Filesystems of fsspec that reach other machines and nothing of this one."""
_CLOUDS = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"))
_REACHING = ("target", "remote_", "cache_storage", "fo", "fs", "protocol", "path", "profile", "proxy", "trust_env")
_HINT = (
    "An administrator can register it as a datastore, or list it in workspace.json: "
    '{"reach": {"folders": ["/data"], "hosts": ["10.0.0.5"]}}.'
)


@dataclass(frozen=True)
class Reach:
    """The folders and hosts that the administrator has listed."""

    folders: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def fence(self) -> Fence:
        return Fence(networks(self.hosts))


def read_reach(config: Json) -> Reach:
    """The key `reach` of workspace.json."""
    if config is None:
        return Reach()
    if not isinstance(config, Mapping) or not config.keys() <= {"folders", "hosts"}:
        raise UserError("`reach` in workspace.json holds `folders` and `hosts`, each a list of texts.")
    folders, hosts = (_listed(config.get(name)) for name in ("folders", "hosts"))
    if wrong := [folder for folder in folders if not folder.startswith("/") or folder == "/"]:
        raise UserError(f"`reach.folders` in workspace.json: {wrong[0]!r} is no folder below the root.")
    return Reach(folders, hosts)


def _listed(value: Json) -> tuple[str, ...]:
    if value is not None and not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise UserError("`reach` in workspace.json holds `folders` and `hosts`, each a list of texts.")
    return tuple(str(text) for text in value or ())


def require_store(options: Options, secret: Mapping[str, Json], reach: Reach, what: str) -> None:
    """Refuse storage that reaches into the server's machine."""
    if isinstance(options, LocalFolder | SharedFolder):
        require_path(options.path, reach, what)
    elif isinstance(options, BlobContainer) and options.identity:
        raise _denied(what, "it would be opened with the server's own identity")
    elif isinstance(options, FsspecAddress):
        _require_url(options.url, what)
        _require_credential(options, secret, what)
        for given in (options.options, secret):
            _require_options(given, what)


def require_location(location: Location, reach: Reach, what: str) -> None:
    """Refuse the address of an input, an output or an asset that reaches into the machine which opens it."""
    if location.kind == "local":
        require_path(location.path, reach, what)
    elif location.kind == "fsspec":
        _require_url(location.url, what)


def require_path(path: str, reach: Reach, what: str) -> None:
    """Refuse a path that lies in no listed folder; links are resolved when it is opened."""
    inner = PurePosixPath(normpath(path))
    if not any(
        inner == PurePosixPath(normpath(folder)) or inner.is_relative_to(normpath(folder)) for folder in reach.folders
    ):
        raise _denied(what, f"{path} is a path of this machine, and several people use the workspace")


def _require_url(url: str, what: str) -> None:
    if "::" in url:
        raise _denied(what, f"{url[:200]!r} is a chain of filesystems")
    scheme = url.partition("://")[0].lower()
    if scheme not in REMOTE:
        raise _denied(what, f"{scheme}:// can reach into this machine (allowed: {', '.join(sorted(REMOTE))})")


def _require_credential(options: FsspecAddress, secret: Mapping[str, Json], what: str) -> None:
    """Cloud libraries look for the machine's own credentials if none are given."""
    is_public = options.options.get("anon") is True or options.options.get("token") == "anon"
    if options.url.partition("://")[0].lower() in _CLOUDS and not secret and not is_public:
        raise _denied(what, "it has no credential, and would be opened with the server's own (public data: anon=true)")


def _require_options(options: Mapping[str, Json], what: str) -> None:
    for key, value in options.items():
        if key.lower().startswith(_REACHING):
            raise _denied(what, f"the option {key} can lead to another filesystem")
        for text in _texts(value):
            if text.startswith(("/", "~", "./", "../")) or "::" in text or urlsplit(text).scheme in ("file", "local"):
                raise _denied(what, f"the option {key} names a file of this machine")


def _texts(value: Json) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list | tuple) else []


def _denied(what: str, why: str) -> AccessDenied:
    return AccessDenied(f"{what}: {why}", _HINT)
