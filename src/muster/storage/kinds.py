"""Kinds of datastores: the options and credentials of each. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from muster.errors import JobError
from muster.storage.addresses import DEFAULT_DATASTORE, parse_address, refuse_embedded_secret, safe_path
from muster.wire.codec import OMIT, Json, WireError, from_json
from muster.wire.message import wire

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SECRET_OPTION = re.compile(r"^key$|secret|password|passphrase|token$|_key$|connection_string")
BUILT_IN = "workspace"
"""The kind of the workspace's own store."""


@wire
class WorkspaceFolder:
    """The workspace's own datastore."""

    kind: ClassVar = BUILT_IN
    credentials: ClassVar[tuple[str, ...]] = ()


@wire
class LocalFolder:
    """A folder of the server's machine."""

    kind: ClassVar = "local"
    credentials: ClassVar[tuple[str, ...]] = ()
    path: str
    encrypted: bool = field(default=False, metadata=OMIT)


@wire
class SharedFolder:
    """A folder that the server and all nodes see by the same path."""

    kind: ClassVar = "nfs"
    credentials: ClassVar[tuple[str, ...]] = ()
    path: str
    server: str = field(default="", metadata=OMIT)
    export: str = field(default="", metadata=OMIT)


@wire
class BlobContainer:
    """A container of Azure Blob storage, or a folder of it."""

    kind: ClassVar = "azure-blob"
    credentials: ClassVar[tuple[str, ...]] = ("account_key", "sas", "client_secret")
    account: str
    container: str
    endpoint: str = field(default="", metadata=OMIT)
    path: str = field(default="", metadata=OMIT)
    hierarchical: bool = field(default=False, metadata=OMIT)
    identity: bool = field(default=False, metadata=OMIT)
    tenant_id: str = field(default="", metadata=OMIT)
    client_id: str = field(default="", metadata=OMIT)


@wire
class FileShare:
    """A share of Azure Files, or a folder of it."""

    kind: ClassVar = "azure-file"
    credentials: ClassVar[tuple[str, ...]] = ("account_key", "sas")
    account: str
    share: str
    endpoint: str = field(default="", metadata=OMIT)
    path: str = field(default="", metadata=OMIT)


@wire
class FsspecAddress:
    """Any filesystem that fsspec knows."""

    kind: ClassVar = "fsspec"
    credentials: ClassVar[tuple[str, ...]] = ("secret_options",)
    url: str
    options: Mapping[str, Json] = field(default_factory=dict, metadata=OMIT)


Options = WorkspaceFolder | LocalFolder | SharedFolder | BlobContainer | FileShare | FsspecAddress
KINDS: Mapping[str, type[Options]] = {
    kind.kind: kind for kind in (LocalFolder, SharedFolder, BlobContainer, FileShare, FsspecAddress)
}


@wire
class Credential:
    """A datastore's credential: at most one of these."""

    account_key: str = field(default="", repr=False, metadata=OMIT)
    sas: str = field(default="", repr=False, metadata=OMIT)
    client_secret: str = field(default="", repr=False, metadata=OMIT)
    secret_options: Mapping[str, Json] = field(default_factory=dict, repr=False, metadata=OMIT)

    @property
    def kind(self) -> str:
        """Which one it is, in a word that may be shown; empty: none."""
        return next((item.name for item in fields(self) if getattr(self, item.name)), "")


NO_CREDENTIAL = Credential()

_EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "http": "http",
    "https": "http",
    "abfs": "azure",
    "az": "azure",
}


@dataclass(frozen=True)
class StoreSpec:
    """A datastore as it is registered; the credential is kept apart from what may be shown."""

    name: str
    options: Options
    credential: Credential = NO_CREDENTIAL
    vouched: bool = False
    """An administrator registered it, so that it may reach whatever it names."""

    @property
    def kind(self) -> str:
        return self.options.kind

    @property
    def credential_kind(self) -> str:
        """The kind of its credential, in a word that may be shown."""
        identity = isinstance(self.options, BlobContainer) and self.options.identity
        return self.credential.kind or ("identity" if identity else "none")


def make_store(name: str, kind: str, options: Mapping[str, Json], credential: Mapping[str, Json]) -> StoreSpec:
    """A datastore from checked options; raises a JobError that names the mistake and what is allowed."""
    if not NAME.fullmatch(name) or name == DEFAULT_DATASTORE:
        raise JobError(
            f"{name!r} cannot be the name of a datastore",
            f"Use letters, digits, '_', '.' and '-', at most 64; {DEFAULT_DATASTORE} is the workspace's own.",
        )
    if kind not in KINDS:
        raise JobError(f"there is no kind of datastore {kind!r}", f"Kinds are: {', '.join(KINDS)}.")
    given = {key: value for key, value in options.items() if value not in (None, "")}
    secret = {key: value for key, value in credential.items() if value}
    _check_keys(kind, given, secret)
    try:
        return StoreSpec(name, _checked(read_options(kind, given)), _opened(from_json(Credential, secret)))
    except WireError as error:
        raise JobError(f"a datastore of kind {kind}: {error}", f"It takes: {_known(kind)}.") from None


def read_options(kind: str, given: Mapping[str, Json]) -> Options:
    """A datastore's options as they were stored."""
    return from_json(KINDS[kind], given)


def _checked(options: Options) -> Options:
    if isinstance(options, BlobContainer | FileShare):
        refuse_embedded_secret(options.endpoint)
        return replace(options, path=safe_path(options.path), endpoint=options.endpoint.rstrip("/"))
    if isinstance(options, LocalFolder | SharedFolder) and not options.path.startswith("/"):
        raise JobError(f"the path {options.path!r} of a datastore is not absolute", "Write it from the root: /data/….")
    if isinstance(options, FsspecAddress):
        _refuse_open_secrets(options.options)
        return replace(options, url=_fsspec_url(options.url))
    return options


def _opened(credential: Credential) -> Credential:
    if credential.account_key:
        _check_account_key(credential.account_key)
    return replace(credential, sas=_sas(credential.sas)) if credential.sas else credential


def endpoint_of(options: BlobContainer | FileShare) -> str:
    """The service's address of an Azure datastore, without a slash at its end."""
    service = "file" if isinstance(options, FileShare) else "blob"
    return options.endpoint or f"https://{options.account}.{service}.core.windows.net"


def root_of(options: BlobContainer | FileShare) -> str:
    """The container's or share's name."""
    return options.share if isinstance(options, FileShare) else options.container


def extra_for(url: str) -> str | None:
    """The extra of Muster that installs what an address needs; None if there is none."""
    return _EXTRAS.get(url.partition("://")[0].lower())


def describe(spec: StoreSpec) -> str:
    """Where a datastore lies, in one line without credentials."""
    options = spec.options
    if isinstance(options, LocalFolder | SharedFolder):
        return options.path
    if isinstance(options, FsspecAddress):
        return options.url
    if isinstance(options, WorkspaceFolder):
        return "the workspace store"
    return f"{endpoint_of(options)}/{root_of(options)}/{options.path}".rstrip("/")


def _check_keys(kind: str, options: Mapping[str, Json], credential: Mapping[str, Json]) -> None:
    needed, names = _names(kind, needed=True), _names(kind)
    missing = [key for key in needed if key not in options]
    if missing:
        raise JobError(f"a datastore of kind {kind} needs {' and '.join(missing)}", f"It takes: {_known(kind)}.")
    unknown = [key for key in options if key not in names]
    unknown += [key for key in credential if key not in KINDS[kind].credentials]
    if unknown:
        raise JobError(f"a datastore of kind {kind} takes no {unknown[0]}", f"It takes: {_known(kind)}.")
    if len(credential) > 1:
        raise JobError(f"two credentials are given: {' and '.join(credential)}", "Give one of them.")


def _names(kind: str, needed: bool = False) -> list[str]:
    """The options of a kind, or only the required ones."""
    found = fields(KINDS[kind])
    return [item.name for item in found if not needed or (item.default is MISSING and item.default_factory is MISSING)]


def _known(kind: str) -> str:
    credentials = KINDS[kind].credentials
    secret = f"; one credential of: {', '.join(credentials)}" if credentials else ""
    return f"{', '.join(_names(kind))}{secret}"


def _refuse_open_secrets(options: Mapping[str, Json]) -> None:
    """Options are kept and shown as they are."""
    found = sorted(key for key in options if _SECRET_OPTION.search(key.lower()))
    if found:
        raise JobError(
            f"the option {found[0]} is a credential, and options are kept and shown",
            "Write it into a file as JSON, and give that with --secret-options (in Python: secret_options).",
        )


def _fsspec_url(url: str) -> str:
    if "://" not in url:
        raise JobError(
            f"{url!r} is no address that fsspec knows", "Write s3://BUCKET/…, gs://…, sftp://HOST/…, https://…."
        )
    parse_address(url)
    return url.rstrip("/")


def _check_account_key(key: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise JobError(
            "the account key is not base64, as keys of storage accounts are",
            "Paste the key that Azure shows under `Access keys`, without quotes.",
        ) from None


def _sas(text: str) -> str:
    """A SAS without what users paste around it."""
    sas = text.strip().lstrip("?")
    if "://" in sas:
        sas = urlsplit(sas).query
    if "sig" not in dict(parse_qsl(sas)):
        raise JobError("the SAS has no signature (sig=…)", "Paste the query part that Azure shows: sv=…&sig=….")
    return sas
