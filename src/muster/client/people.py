"""Calls about people, their tokens, and what they did."""

from __future__ import annotations

from collections.abc import Iterator

from muster.client.calls import Group, checking, segment
from muster.wire.people import (
    AuditEntry,
    Invitation,
    IssuedToken,
    Join,
    Myself,
    NewInvite,
    NewPerson,
    NewToken,
    PersonChanges,
    PersonView,
    Role,
    SsoLogin,
    SsoView,
    TokenView,
)
from muster.wire.portal.sessions import SignInLink


class People(Group):
    """People of the workspace."""

    def myself(self) -> Myself:
        """Who this client is to the server."""
        return self.calls.read(Myself, "GET", "/me")

    def sign_in_link(self) -> SignInLink:
        """A secret that signs a browser in once, and the portal's URL."""
        return self.calls.read(SignInLink, "POST", "/sign-in-links", again=False)

    def portal_url(self) -> str:
        """The URL at which a browser reaches the server."""
        url = self.calls.address.url
        return url if url.startswith("http") else self.sign_in_link().url

    def people(self) -> list[PersonView]:
        return list(self.calls.each(PersonView, "/people"))

    def add_person(self, name: str, role: Role, unix_user: str | None = None) -> PersonView:
        with checking():
            person = NewPerson(name, role, unix_user)
        return self.calls.read(PersonView, "POST", "/people", message=person, again=False)

    def change_person(
        self, name: str, role: Role | None = None, disabled: bool | None = None, unix_user: str | None = None
    ) -> PersonView:
        """Give somebody another role or account, lock them out, or let them in again."""
        with checking():
            changes = PersonChanges(role, disabled, unix_user)
        return self.calls.read(PersonView, "PATCH", f"/people/{segment(name, 'person')}", message=changes)

    def remove_person(self, name: str) -> None:
        self.calls.send("DELETE", f"/people/{segment(name, 'person')}", again=False)

    def invite(self, name: str, lifetime_s: float) -> Invitation:
        """Create an invitation, which can be exchanged once for a token; earlier ones end."""
        with checking():
            asked = NewInvite(lifetime_s)
        path = f"/people/{segment(name, 'person')}/invite"
        return self.calls.read(Invitation, "POST", path, message=asked, again=False)

    def join(self, invite: str, label: str = "") -> IssuedToken:
        """Exchange an invitation for a token."""
        return self.calls.read(IssuedToken, "POST", "/join", message=Join(invite, label), again=False)

    def sso(self) -> SsoView:
        """The sign-on service of the workspace."""
        return self.calls.read(SsoView, "GET", "/sso")

    def sign_on(self, id_token: str, label: str = "") -> IssuedToken:
        """Exchange an ID token of the sign-on service for a token."""
        return self.calls.read(IssuedToken, "POST", "/sso", message=SsoLogin(id_token, label), again=False)

    def tokens(self, everybody: bool = False) -> list[TokenView]:
        """One's own tokens, without their secrets."""
        return list(self.calls.each(TokenView, "/tokens", {"everybody": "1" if everybody else None}))

    def create_token(
        self, label: str, person: str | None = None, role: Role | None = None, lifetime_s: float | None = None
    ) -> IssuedToken:
        with checking():
            asked = NewToken(label, person, role, lifetime_s)
        return self.calls.read(IssuedToken, "POST", "/tokens", message=asked, again=False)

    def rotate_token(self, token_id: str) -> IssuedToken:
        """Replace a token, which ends at once, by a new one."""
        path = f"/tokens/{segment(token_id, 'token')}/rotate"
        return self.calls.read(IssuedToken, "POST", path, again=False)

    def revoke_token(self, token_id: str) -> None:
        self.calls.send("DELETE", f"/tokens/{segment(token_id, 'token')}", again=False)

    def audit(
        self, limit: int | None = None, who: str | None = None, action: str | None = None
    ) -> Iterator[AuditEntry]:
        """Who did what, the newest first."""
        return self.calls.each(AuditEntry, "/audit", {"who": who, "action": action}, limit)
