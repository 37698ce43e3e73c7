"""Kinds of datastores: what each needs to be told, and what of that is a credential. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from muster.errors import JobError
from muster.storage.addresses import DEFAULT_DATASTORE, parse_address, refuse_embedded_secret, safe_path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SECRET_OPTION = re.compile(r"^key$|secret|password|passphrase|token$|_key$|connection_string")
BUILT_IN = "workspace"
"""The kind of the workspace's own store."""


@dataclass(frozen=True)
class Kind:
    """What a datastore of one kind is made of."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    """At most one of these, except for fsspec, where `secret_options` is a mapping."""


KINDS: Mapping[str, Kind] = {
    "local": Kind(("path",), ("encrypted",)),
    "nfs": Kind(("path",), ("server", "export")),
    "azure-blob": Kind(
        ("account", "container"),
        ("endpoint", "path", "hierarchical", "identity", "tenant_id", "client_id"),
        ("account_key", "sas", "client_secret"),
    ),
    "azure-file": Kind(("account", "share"), ("endpoint", "path"), ("account_key", "sas")),
    "fsspec": Kind(("url",), ("options",), ("secret_options",)),
}


@dataclass(frozen=True)
class StoreSpec:
    """A datastore as it is registered; the credential is kept apart from what may be shown."""

    name: str
    kind: str
    options: Mapping[str, Any]
    credential: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def credential_kind(self) -> str:
        """What opens it, in a word that may be shown."""
        if self.credential:
            return next(iter(self.credential))
        if self.kind == "azure-blob" and self.options.get("identity"):
            return "identity"
        return "none"


def make_store(name: str, kind: str, options: Mapping[str, Any], credential: Mapping[str, Any]) -> StoreSpec:
    """Check what was given; raises JobError that names the thing and what is allowed."""
    if not NAME.fullmatch(name) or name == DEFAULT_DATASTORE:
        raise JobError(
            f"{name!r} cannot be the name of a datastore",
            f"Use letters, digits, '_', '.' and '-', at most 64; {DEFAULT_DATASTORE} is the workspace's own.",
        )
    if kind not in KINDS:
        raise JobError(f"there is no kind of datastore {kind!r}", f"Kinds are: {', '.join(KINDS)}.")
    rules = KINDS[kind]
    given = {key: value for key, value in options.items() if value not in (None, "")}
    secret = {key: value for key, value in credential.items() if value}
    _check_keys(kind, rules, given, secret)
    if "path" in given and kind in ("azure-blob", "azure-file"):
        given["path"] = safe_path(str(given["path"]))
    if kind in ("local", "nfs") and not str(given["path"]).startswith("/"):
        raise JobError(f"the path {given['path']!r} of a datastore is not absolute", "Write it from the root: /data/….")
    if kind == "fsspec":
        given["url"] = _fsspec_url(str(given["url"]))
        _refuse_open_secrets(given.get("options") or {})
    if "account_key" in secret:
        _check_account_key(str(secret["account_key"]))
    if "sas" in secret:
        secret["sas"] = _sas(str(secret["sas"]))
    if "endpoint" in given:
        given["endpoint"] = str(given["endpoint"]).rstrip("/")
        refuse_embedded_secret(given["endpoint"])
    return StoreSpec(name, kind, given, secret)


def endpoint_of(spec: StoreSpec) -> str:
    """The service's address of an Azure datastore, without a slash at its end."""
    service = "file" if spec.kind == "azure-file" else "blob"
    return str(spec.options.get("endpoint") or f"https://{spec.options['account']}.{service}.core.windows.net")


def describe(spec: StoreSpec) -> str:
    """Where a datastore lies, in one line without credentials."""
    options = spec.options
    if spec.kind in ("local", "nfs"):
        return str(options["path"])
    if spec.kind == "fsspec":
        return str(options["url"])
    if spec.kind == BUILT_IN:
        return "the workspace store"
    inner = options.get("container") or options.get("share")
    return f"{endpoint_of(spec)}/{inner}/{options.get('path', '')}".rstrip("/")


def _check_keys(kind: str, rules: Kind, options: Mapping[str, Any], credential: Mapping[str, Any]) -> None:
    missing = [key for key in rules.needed if key not in options]
    if missing:
        raise JobError(f"a datastore of kind {kind} needs {' and '.join(missing)}", f"It takes: {_known(rules)}.")
    unknown = [key for key in options if key not in (*rules.needed, *rules.optional)]
    unknown += [key for key in credential if key not in rules.credentials]
    if unknown:
        raise JobError(f"a datastore of kind {kind} takes no {unknown[0]}", f"It takes: {_known(rules)}.")
    if len(credential) > 1:
        raise JobError(f"two credentials are given: {' and '.join(credential)}", "Give one of them.")


def _known(rules: Kind) -> str:
    secret = f"; one credential of: {', '.join(rules.credentials)}" if rules.credentials else ""
    return f"{', '.join((*rules.needed, *rules.optional))}{secret}"


def _refuse_open_secrets(options: Mapping[str, Any]) -> None:
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
