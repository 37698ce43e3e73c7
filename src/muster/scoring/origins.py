"""Which web pages of other sites may call a replica (`AML_CORS_ORIGINS`), in the headers that browsers expect."""

from __future__ import annotations

import os
from typing import Dict, FrozenSet, Mapping, Optional

VARIABLE = "AML_CORS_ORIGINS"
_ANY = "*"
_METHODS = "GET, POST, OPTIONS"


class Origins:
    """The sites whose pages are allowed; none unless the deployment says so."""

    def __init__(self, environ: "Mapping[str, str]" = os.environ) -> None:
        given = (part.strip().rstrip("/") for part in environ.get(VARIABLE, "").split(","))
        self._allowed: FrozenSet[str] = frozenset(part for part in given if part)

    def headers(self, asked: Mapping[str, str]) -> Dict[str, str]:
        """The headers of an answer for a browser; none if no such page asked."""
        origin = asked.get("origin", "")
        if not self._allowed or not origin:
            return {}
        if _ANY in self._allowed:
            return {"access-control-allow-origin": _ANY}
        # Without the origin's name in `vary`, a cache would give one site's answer to another.
        found = {"vary": "Origin"}
        if origin in self._allowed:
            found["access-control-allow-origin"] = origin
        return found

    def preflight(self, method: str, asked: Mapping[str, str]) -> Optional[Dict[str, str]]:
        """The answer to a browser that asks first, without a key, whether it may call; None for any other request."""
        if method != "OPTIONS" or "access-control-request-method" not in asked or not self._allowed:
            return None
        said = {"access-control-allow-methods": _METHODS, "allow": _METHODS}
        if wanted := asked.get("access-control-request-headers"):
            said["access-control-allow-headers"] = wanted
        return said
