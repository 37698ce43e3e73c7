"""Shared access signatures of Azure Storage: made with the account's key for one file or folder, and read. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode

from muster.wire.data.access import WRITE, Scope

_VERSION = "2020-02-10"
_EARLY_S = 300.0
"""Clocks differ: a signature begins a little before now."""
_PERMISSIONS = {"read": "r", "write": "rcwd"}
_WORDS = {"r": "read", "l": "list", "a": "append", "c": "create", "w": "write", "d": "delete"}
_LISTS = ("c", "d", "s")
"""Resources that hold files: permission to read them includes listing."""


@dataclass(frozen=True)
class Signer:
    """An account's key, and how long its signatures are valid."""

    service: Literal["blob", "file"]
    account: str
    key: str = field(repr=False)
    store: str
    """The container or share."""
    now: float
    expires_at: float
    https_only: bool = True
    addresses: str = ""
    """The only addresses it is valid from: one, or `FIRST-LAST`; empty: any."""

    def file(self, path: str, scope: Scope) -> str:
        """A signature for one file."""
        return self._signed("b" if self.service == "blob" else "f", path, scope, {})

    def folder(self, path: str, scope: Scope) -> str:
        """A signature for a folder, in accounts with a hierarchical namespace."""
        return self._signed("d", path, scope, {"sdd": str(len(path.split("/")) if path else 0)})

    def whole(self, scope: Scope) -> str:
        """A signature for the whole container or share."""
        return self._signed("c" if self.service == "blob" else "s", "", scope, {})

    def creation(self) -> str:
        """An account signature that can only create containers or shares: their own signatures cannot."""
        fields = {
            "sv": _VERSION,
            "ss": self.service[0],
            "srt": "c",
            "sp": "c",
            "st": _time(self.now - _EARLY_S),
            "se": _time(self.expires_at),
            "spr": "https" if self.https_only else "https,http",
        }
        text = [self.account, *(fields[name] for name in ("sp", "ss", "srt", "st", "se")), "", fields["spr"], _VERSION]
        return urlencode({**fields, "sig": self._mac([*text, ""])}, quote_via=quote)

    def _mac(self, text: Sequence[str]) -> str:
        secret = base64.b64decode(self.key)
        return base64.b64encode(hmac.new(secret, "\n".join(text).encode(), hashlib.sha256).digest()).decode()

    def _signed(self, resource: str, path: str, scope: Scope, more: Mapping[str, str]) -> str:
        fields = {
            "sv": _VERSION,
            "st": _time(self.now - _EARLY_S),
            "se": _time(self.expires_at),
            "sr": resource,
            "sp": _PERMISSIONS[scope] + ("l" if resource in _LISTS else ""),
            "spr": "https" if self.https_only else "",
            "sip": self.addresses,
        }
        canonical = f"/{self.service}/{self.account}/{self.store}/{path}".rstrip("/")
        text = [fields["sp"], fields["st"], fields["se"], canonical, "", fields["sip"], fields["spr"], _VERSION]
        text += [resource, "", *[""] * 5] if self.service == "blob" else [""] * 5
        signature = self._mac(text)
        shown = {name: value for name, value in {**fields, **more}.items() if value}
        return urlencode({**shown, "sig": signature}, quote_via=quote)


def is_narrow(sas: str, *, scope: Scope, folder: bool, whole_store: bool) -> bool:
    """Whether a user's SAS gives access to no more than is asked for, so that it may be handed on.

    It was given for a datastore; `whole_store` says that all of the datastore is asked for.
    """
    fields = dict(parse_qsl(sas))
    writes = bool(set(fields.get("sp", "")) & set("acwdxyup"))
    resource = fields.get("sr", "")
    return whole_store and (scope == WRITE or not writes) and resource == ("d" if folder else "b")


def permissions(sas: str) -> str:
    """What a user's SAS allows and until when, in words."""
    fields = dict(parse_qsl(sas))
    allowed = fields.get("sp", "")
    words = [word for letter, word in _WORDS.items() if letter in allowed]
    named = f"may {', '.join(words)}" if words else "says nothing of what it may do (a stored policy decides)"
    ends = f", until {fields['se']}" if "se" in fields else ""
    return f"its SAS {named}{ends}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
