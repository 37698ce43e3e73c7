"""Shared access signatures of Azure Storage: made with the account's key for one file or folder, and read. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlencode

from muster.errors import JobError
from muster.wire.access import WRITE

_VERSION = "2020-02-10"
_EARLY_S = 300.0
"""Clocks differ: a signature begins a little before now."""
_PERMISSIONS = {"b": {"read": "r", "write": "rcwd"}, "d": {"read": "rl", "write": "rcwdl"}}
_FILE_PERMISSIONS = {"read": "r", "write": "rcwd"}


def blob_sas(
    account: str,
    key: str,
    container: str,
    path: str,
    *,
    scope: str,
    now: float,
    expires_at: float,
    folder: bool = False,
    https_only: bool = True,
) -> str:
    """A signature for one blob, or (`folder`, in accounts with a hierarchical namespace) for a directory."""
    resource = "d" if folder else "b"
    fields = {
        "sv": _VERSION,
        "st": _time(now - _EARLY_S),
        "se": _time(expires_at),
        "sr": resource,
        "sp": _PERMISSIONS[resource][scope],
        "spr": "https" if https_only else "",
    }
    canonical = f"/blob/{account}/{container}/{path}".rstrip("/")
    text = [
        fields["sp"],
        fields["st"],
        fields["se"],
        canonical,
        "",
        "",
        fields["spr"],
        _VERSION,
        resource,
        "",
        *[""] * 5,
    ]
    if folder:
        fields["sdd"] = str(len(path.split("/")) if path else 0)
    return _signed(fields, "\n".join(text), key)


def file_sas(
    account: str, key: str, share: str, path: str, *, scope: str, now: float, expires_at: float, https_only: bool = True
) -> str:
    """A signature for one file of an Azure file share."""
    fields = {
        "sv": _VERSION,
        "st": _time(now - _EARLY_S),
        "se": _time(expires_at),
        "sr": "f",
        "sp": _FILE_PERMISSIONS[scope],
        "spr": "https" if https_only else "",
    }
    canonical = f"/file/{account}/{share}/{path}"
    text = [fields["sp"], fields["st"], fields["se"], canonical, "", "", fields["spr"], _VERSION, *[""] * 5]
    return _signed(fields, "\n".join(text), key)


def is_narrow(sas: str, *, scope: str, folder: bool, whole_store: bool) -> bool:
    """Whether a SAS that somebody gave opens no more than what is asked for, so that it may be handed on.

    It was given for a datastore; `whole_store` says that all of that is asked for.
    """
    fields = dict(parse_qsl(sas))
    writes = bool(set(fields.get("sp", "")) & set("acwdxyup"))
    resource = fields.get("sr", "")
    return whole_store and (scope == WRITE or not writes) and resource == ("d" if folder else "b")


def _signed(fields: dict[str, str], text: str, key: str) -> str:
    try:
        secret = base64.b64decode(key, validate=True)
    except binascii.Error:
        raise JobError("the account key is not base64", "Paste the key as Azure shows it.") from None
    signature = base64.b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()).decode()
    return urlencode({**{name: value for name, value in fields.items() if value}, "sig": signature}, quote_via=quote)


def _time(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
