"""Connections to the workspace's server: they send the protocol's version, and turn refusals into errors."""

from __future__ import annotations

import json

from muster import errors
from muster.defaults import PROTOCOL_VERSION
from muster.host.http import Address, Connection
from muster.wire.workspace import VERSION_HEADER

_BY_CODE: dict[str, type[errors.MusterError]] = {
    kind.code: kind
    for kind in (
        errors.JobError,
        errors.NotFound,
        errors.Conflict,
        errors.AccessDenied,
        errors.DiskFull,
        errors.MissingExtra,
        errors.ProtocolMismatch,
        errors.ServerUnavailable,
    )
}


class ServerConnection(Connection):
    """One keep-alive connection to the server; not shared between threads."""

    def __init__(self, address: Address, timeout_s: float = 60.0) -> None:
        super().__init__(address, timeout_s, headers={VERSION_HEADER: str(PROTOCOL_VERSION)}, refused=_refused)


def _refused(status: int, raw: bytes) -> errors.MusterError:
    try:
        data = json.loads(raw)["error"]
        refused = errors.UserError if 400 <= status < 500 else errors.MusterError
        kind = _BY_CODE.get(data["code"], refused)
        return kind(data["message"], data.get("hint", ""), code=data["code"])
    except (ValueError, KeyError, TypeError):
        summary = f"the server answered {status}: {raw[:500].decode(errors='replace')}"
        if status >= 500:
            # Not the server's own error format: it was shutting down, or a proxy answered.
            return errors.ServerUnavailable(summary, "It may be restarting: try it again.")
        return errors.MusterError(summary)
