"""Datastore files: an Azure storage account, the part of it to use, and the credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import mapping, read_asset_file
from muster.wire.codec import Json

_KEYS = (
    "name", "type", "account_name", "container_name", "file_share_name", "filesystem", "endpoint", "protocol",
    "credentials", "description", "store_name", "one_lake_workspace_name", "artifact", "hdfs_server",
)  # fmt: skip
_SILENT = ("$schema", "id", "tags", "properties")
_CREDENTIALS = (
    "account_key", "sas_token", "tenant_id", "client_id", "client_secret", "resource_url", "authority_url", "type",
    "certificate", "thumbprint",
)  # fmt: skip
_REGISTER = "Register what fsspec knows by its address: `muster datastore create NAME --url URL`."
_REFUSED = {
    "azure_data_lake_gen1": ("Azure ended this kind of storage in 2024", "Move the data, and use Data Lake Gen2."),
    "one_lake": ("OneLake is not a kind of storage here", _REGISTER),
    "hdfs": ("HDFS is not a kind of storage here", _REGISTER),
}


@dataclass(frozen=True)
class _Kind:
    """The counterpart of a type of Azure ML's."""

    kind: str
    service: str
    place: str
    """The key that names the part of the account."""
    option: str
    hierarchical: bool = False


_KINDS = {
    "azure_blob": _Kind("azure-blob", "blob", "container_name", "container"),
    "azure_file": _Kind("azure-file", "file", "file_share_name", "share"),
    "azure_data_lake_gen2": _Kind("azure-blob", "blob", "filesystem", "container", hierarchical=True),
}


@dataclass(frozen=True)
class DatastoreFile:
    """The content of a datastore's file, in Muster's vocabulary."""

    name: str
    kind: str
    options: Mapping[str, Json]
    credential: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def read_datastore_file(file: Path, name: str | None = None) -> DatastoreFile:
    """Read a datastore's file; raises JobError with the file and the key."""
    sections = {"credentials": _CREDENTIALS}
    return datastore_of(str(file), read_asset_file(file, "datastore file", _KEYS, _SILENT, sections), name)


def datastore_of(where: str, values: Mapping[str, Json], name: str | None = None) -> DatastoreFile:
    """A datastore from its values; errors start with `where`."""
    given, kind = name or values.get("name"), str(values.get("type") or "").lower()
    if kind in _REFUSED:
        reason, hint = _REFUSED[kind]
        raise JobError(f"{where}: type: {kind}: {reason}", hint)
    if kind not in _KINDS:
        said = f"{kind!r} is not allowed" if kind else "is missing"
        raise JobError(f"{where}: type: {said}", f"Allowed are {', '.join(_KINDS)}.")
    known = _KINDS[kind]
    account, place = values.get("account_name"), values.get(known.place)
    for key, value in (("name", given), ("account_name", account), (known.place, place)):
        if not isinstance(value, str) or not value:
            raise JobError(f"{where}: `{key}` is missing, or is no text", f"Write {key}: ….")
    credential, public = _credential(where, mapping(values, "credentials"))
    options = {
        "account": account,
        known.option: place,
        "endpoint": _endpoint(where, str(account), known.service, values),
        **({"hierarchical": True} if known.hierarchical else {}),
        **({"identity": True} if known.hierarchical and not credential else {}),
        **public,
    }
    described = values.get("description")
    return DatastoreFile(
        str(given),
        known.kind,
        {key: value for key, value in options.items() if value is not None},
        credential,
        None if described is None else str(described),
    )


def _credential(where: str, given: Mapping[str, Json]) -> tuple[dict[str, str], dict[str, Json]]:
    """The secret part of the credentials, and the part that may be shown."""
    if given.get("certificate") or given.get("thumbprint"):
        raise JobError(
            f"{where}: credentials.certificate: certificates open no storage here",
            "Give a client_secret, an account_key or a sas_token; or none, where the server's identity has the right.",
        )
    names = {"account_key": "account_key", "sas_token": "sas", "client_secret": "client_secret"}
    sealed = {to: str(given[key]) for key, to in names.items() if given.get(key)}
    return sealed, {key: given[key] for key in ("tenant_id", "client_id") if given.get(key)}


def _endpoint(where: str, account: str, service: str, values: Mapping[str, Json]) -> str | None:
    """The service's address; Azure ML gives only its domain, and `wasbs` or `abfss` as its protocol."""
    protocol, domain = str(values.get("protocol") or "https").lower(), values.get("endpoint")
    if protocol not in ("https", "http", "wasbs", "wasb", "abfss", "abfs"):
        raise JobError(f"{where}: protocol: {protocol!r} is not known", "Write https, or http for a test.")
    scheme = "https" if protocol in ("wasbs", "abfss") else "http" if protocol in ("wasb", "abfs") else protocol
    if isinstance(domain, str) and "://" in domain:
        return domain
    if scheme == "https" and domain in (None, "core.windows.net"):
        return None
    return f"{scheme}://{account}.{service}.{domain or 'core.windows.net'}"
