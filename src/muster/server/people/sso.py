"""Single sign-on: an ID token of the workspace's sign-on service is exchanged for a token of the workspace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from muster import errors
from muster.defaults import CONNECT_S, TOKEN_S
from muster.host.http import is_loopback
from muster.server.database.connection import Transaction
from muster.server.people.access import Tokens
from muster.server.people.identity import Identity, key_id_of, verify
from muster.wire.codec import Json
from muster.wire.people import PERSON, ROLES, IssuedToken, Role, SsoView

_KEYS_S = 3600.0
_ASK_AGAIN_S = 10.0
"""For an unknown key the service is queried again, at most this often."""


@dataclass(frozen=True)
class SsoConfig:
    """The key `sso` of workspace.json."""

    issuer: str
    client_id: str
    role: Role | None = None
    """The role of people whom nobody has added; None: they are refused."""

    @property
    def view(self) -> SsoView:
        return SsoView(self.issuer, self.client_id)


def read_sso(config: Json) -> SsoConfig | None:
    """How people sign on; None: only with tokens."""
    if config is None:
        return None
    wanted = "`sso` in workspace.json holds `issuer` (https://…), `client_id` and, for newcomers, `role`."
    if not isinstance(config, Mapping) or not config.keys() <= {"issuer", "client_id", "role"}:
        raise errors.UserError(wanted)
    issuer, client_id, role = (config.get(name) for name in ("issuer", "client_id", "role"))
    if not isinstance(issuer, str) or not isinstance(client_id, str) or role not in (None, *ROLES):
        raise errors.UserError(wanted)
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise errors.UserError(f"`sso.issuer` {issuer!r} has no TLS.", wanted)
    return SsoConfig(issuer.rstrip("/"), client_id, role)


@dataclass
class SsoState:
    """The service's keys, and the tokens that were used already."""

    config: SsoConfig
    keys: Sequence[Mapping[str, Json]] = ()
    asked_at: float = float("-inf")
    used: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def identify(self, token: str) -> Identity:
        """The identity of an ID token, which is accepted once. Fetches the service's keys where they are unknown."""
        key_id, config = key_id_of(token), self.config
        with self.lock:
            age_s = time.monotonic() - self.asked_at
            is_known = any(key.get("kid") == key_id for key in self.keys)
            if age_s > _KEYS_S or (not is_known and age_s > _ASK_AGAIN_S):
                self.keys, self.asked_at = _fetch_keys(config.issuer), time.monotonic()
            now = time.time()
            found = verify(token, self.keys, config.issuer, config.client_id, now)
            self.used = {text: until for text, until in self.used.items() if until > now}
            signature = token.rpartition(".")[2]
            if signature in self.used:
                raise errors.AccessDenied("the ID token was used already", "Log in again: `muster login URL --sso`.")
            self.used[signature] = found.expires_at + 120.0
            return found

    def service(self) -> Mapping[str, Json]:
        """How the service describes itself: its addresses."""
        return _describe(self.config.issuer)

    def redeem(self, code: str, verifier: str, redirect_uri: str) -> Identity:
        """The identity for a code that the service gave to a browser."""
        form = {"grant_type": "authorization_code", "client_id": self.config.client_id, "code": code}
        form |= {"code_verifier": verifier, "redirect_uri": redirect_uri}
        token = _call(str(self.service().get("token_endpoint")), form).get("id_token")
        if not isinstance(token, str):
            raise errors.AccessDenied("the sign-on service gave no ID token", "Its client needs the scope `openid`.")
        return self.identify(token)


def sign_on(
    tokens: Tokens, transaction: Transaction, found: Identity, newcomers: Role | None, label: str
) -> IssuedToken:
    """A token for an identity: of somebody who signed on before, was added by mail address, or is new."""
    people = tokens.people
    person = people.by_sso(found.key)
    if person is None:
        if not found.email or not PERSON.fullmatch(found.email):
            raise errors.AccessDenied(
                "the sign-on service gave no verified mail address, and nobody here has its id",
                "An administrator adds people by their mail address: `muster user add ada@example.org`.",
            )
        known = next((item for item in people.all() if item.name == found.email), None)
        if known is not None and known.sso is None:
            people.bind(transaction, known.name, found.key)
            person = known
        elif known is None and newcomers is not None:
            person = people.add(transaction, found.email, newcomers, "single sign-on", found.key)
        else:
            raise errors.AccessDenied(
                f"{found.email} may not use this workspace",
                f"An administrator adds them: `muster user add {found.email}`.",
            )
    if not person.is_active:
        raise errors.AccessDenied(f"{person.name} is locked out", "An administrator can let them in again.")
    token, kept = tokens.add(transaction, person.role, person.name, TOKEN_S, label or "single sign-on")
    return IssuedToken(**vars(kept.view(person.role)), token=token)


def _fetch_keys(issuer: str) -> Sequence[Mapping[str, Json]]:
    keys = _call(str(_describe(issuer)["jwks_uri"])).get("keys")
    return [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


def _describe(issuer: str) -> Mapping[str, Json]:
    described = _call(f"{issuer}/.well-known/openid-configuration")
    if described.get("issuer") != issuer or not isinstance(described.get("jwks_uri"), str):
        raise errors.UserError(f"{issuer} describes itself as {described.get('issuer')!r}", "Correct `sso.issuer`.")
    return described


def _call(url: str, form: Mapping[str, str] | None = None) -> Mapping[str, Json]:
    body = urlencode(form).encode() if form is not None else None
    try:
        with urlopen(Request(url, body, {"Accept": "application/json"}), timeout=CONNECT_S) as answer:
            found = json.loads(answer.read(1 << 20))
    except HTTPError as error:
        if form is None:
            raise errors.UserError(f"the sign-on service answers {error.code}", f"Is {url} right?", "sso") from error
        raise errors.AccessDenied("the sign-on service refuses the code", "Sign in again.") from error
    except (OSError, ValueError) as error:
        raise errors.UserError(f"the sign-on service does not answer: {error}", f"Is {url} right?", "sso") from error
    return found if isinstance(found, dict) else {}
