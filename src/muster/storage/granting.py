"""What a run is given to reach one input or output of a datastore: as narrow as the store can say it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from muster.storage.addresses import datastore_address
from muster.storage.grants import Grant, new_id, sign
from muster.storage.kinds import BUILT_IN, StoreSpec, endpoint_of
from muster.storage.sas import blob_sas, file_sas, is_narrow
from muster.wire.access import READ, Access, Scope

DATA_ROUTE = "/api/v1/data"


@dataclass(frozen=True)
class Asked:
    """One input or output, and for whom."""

    path: str
    """Below the datastore."""
    scope: Scope = READ
    folder: bool = True
    subject: str = ""


@dataclass(frozen=True)
class Terms:
    """What holds for all grants that are made at one moment."""

    key: bytes
    now: float
    lifetime_s: float
    same_machine: bool = False
    """The node sees the folders of the server's machine."""
    own_folder: str | None = None
    """Where the workspace's own datastore lies, if that is a plain folder."""

    @property
    def expires_at(self) -> float:
        return self.now + self.lifetime_s


def access_of(spec: StoreSpec, asked: Asked, terms: Terms) -> Access:
    """How a node gets at a path of a datastore."""
    label = datastore_address(spec.name, asked.path)
    folder = _plain_folder(spec, terms)
    if folder is not None:
        return Access("file", _joined(folder, asked.path), asked.scope, asked.folder, label)
    if spec.kind == "fsspec" and not spec.credential:
        url = _joined(str(spec.options["url"]), asked.path)
        kind = "http" if url.startswith(("http://", "https://")) and not asked.folder else "fsspec"
        return Access(kind, url, asked.scope, asked.folder, label, options=spec.options.get("options", {}))
    if spec.kind in ("azure-blob", "azure-file"):
        found = _azure(spec, asked, terms, label)
        if found is not None:
            return found
    return _through_server(spec, asked, terms, label)


def file_token(spec: StoreSpec, path: str, scope: Scope, terms: Terms) -> str:
    """The token of one file of a store that signs file by file."""
    inner = _inner(spec, path)
    account, key = str(spec.options["account"]), str(spec.credential["account_key"])
    https_only = endpoint_of(spec).startswith("https:")
    if spec.kind == "azure-file":
        return file_sas(
            account,
            key,
            str(spec.options["share"]),
            inner,
            scope=scope,
            now=terms.now,
            expires_at=terms.expires_at,
            https_only=https_only,
        )
    return blob_sas(
        account,
        key,
        str(spec.options["container"]),
        inner,
        scope=scope,
        now=terms.now,
        expires_at=terms.expires_at,
        https_only=https_only,
    )


def _plain_folder(spec: StoreSpec, terms: Terms) -> str | None:
    """The folder of a datastore that the node reads and writes itself."""
    if spec.kind == "nfs":
        return str(spec.options["path"])
    if spec.kind == "local" and terms.same_machine and not spec.options.get("encrypted"):
        return str(spec.options["path"])
    return terms.own_folder if spec.kind == BUILT_IN and terms.same_machine else None


def _azure(spec: StoreSpec, asked: Asked, terms: Terms, label: str) -> Access | None:
    """Straight to the service, where its credential can be made narrow; None: through the server."""
    place = spec.options.get("container") or spec.options.get("share")
    inner = _inner(spec, asked.path)
    url = f"{endpoint_of(spec)}/{place}/{quote(inner)}".rstrip("/")
    if "account_key" in spec.credential:
        if not asked.folder:
            token = file_token(spec, asked.path, asked.scope, terms)
            return Access(spec.kind, url, asked.scope, False, label, token, expires_at=terms.expires_at)
        if spec.kind == "azure-blob" and spec.options.get("hierarchical"):
            token = blob_sas(
                str(spec.options["account"]),
                str(spec.credential["account_key"]),
                str(spec.options["container"]),
                inner,
                scope=asked.scope,
                now=terms.now,
                expires_at=terms.expires_at,
                folder=True,
                https_only=url.startswith("https:"),
            )
            return Access(spec.kind, url, asked.scope, True, label, token, expires_at=terms.expires_at)
        return Access(
            spec.kind,
            url,
            asked.scope,
            True,
            label,
            per_file=True,
            expires_at=terms.expires_at,
            manifest_by_reference=asked.scope == READ,
        )
    if "sas" in spec.credential:
        sas = str(spec.credential["sas"])
        if is_narrow(sas, scope=asked.scope, folder=asked.folder, whole_store=not asked.path):
            return Access(spec.kind, url, asked.scope, asked.folder, label, sas)
        return None
    if spec.credential_kind == "none" and spec.kind == "azure-blob":
        listed = asked.folder and asked.scope == READ
        return Access(spec.kind, url, asked.scope, asked.folder, label, manifest_by_reference=listed)
    return None


def _through_server(spec: StoreSpec, asked: Asked, terms: Terms, label: str) -> Access:
    grant = Grant(
        new_id(), spec.name, asked.path, asked.folder, asked.scope, terms.now, terms.expires_at, asked.subject
    )
    url = f"{DATA_ROUTE}/{spec.name}/{asked.path}".rstrip("/")
    token = sign(grant, terms.key)
    return Access("muster", url, asked.scope, asked.folder, label, token, expires_at=terms.expires_at)


def _inner(spec: StoreSpec, path: str) -> str:
    return "/".join(part for part in (str(spec.options.get("path", "")), path) if part)


def _joined(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path}" if path else base
