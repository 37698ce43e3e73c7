"""People of the workspace: `muster user …`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from muster.cli.console import notice, say
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of
from muster.cli.text import moment, table
from muster.client.connect import connect, public_url
from muster.client.team.invitations import Link
from muster.errors import UserError
from muster.wire.people import MEMBER, ROLES, PersonView, Role

Name = Annotated[str, argument("NAME", "Small letters, digits and any of _.@+-")]
RoleOption = Annotated[str, option("ROLE", f"One of {', '.join(ROLES)}.")]


def add(
    name: Name,
    role: RoleOption = MEMBER,
    unix: Annotated[str | None, option("ACCOUNT", "Their account here, for a server that is root.")] = None,
    as_json: Json = False,
) -> None:
    """Add somebody to the workspace. `muster user invite` makes the link that they log in with.

    A reader can look; a member can run jobs and change what is theirs; an admin can do everything.

    \b
    Examples:
      muster user add ada
      muster user add bob --role reader
    """
    made = connect().add_person(name, role_of(role), unix)
    say(f"{made.name} is here as {made.role}; `muster user invite {made.name}` makes a link for them")
    _print(made, as_json)


def invite(
    name: Name,
    role: Annotated[str | None, option("ROLE", "For somebody new (default: member).")] = None,
    expires: Annotated[str, option("TIME", "How long the link is good for.")] = "7d",
    url: Annotated[str | None, option("URL", "The server's address as they see it.")] = None,
    as_json: Json = False,
) -> None:
    """Print a link by which a colleague logs in for the first time. It is good for one use.

    People who are new are added. An earlier link becomes invalid.

    \b
    Examples:
      muster user invite ada
      muster user invite cleo --role reader --expires 1d
    """
    client = connect()
    lifetime_s = seconds_of("--expires", expires)
    if not any(person.name == name for person in client.people()):
        client.add_person(name, role_of(role or MEMBER))
    elif role is not None:
        raise UserError(f"{name} is here already.", f"`muster user role {name} {role}` changes the role.")
    made = client.invite(name, lifetime_s)
    served = url or public_url(client)
    link = str(Link((served or "https://SERVER:PORT").rstrip("/"), made.token, made.fingerprint))
    print_result({"link": link, "name": name, "role": made.role, "expires_at": made.expires_at}, [link], as_json)
    say(f"for {name} ({made.role}), once, until {moment(made.expires_at, time.time())}: `muster login 'LINK'`")
    if not served:
        notice("the server does not serve others yet: start `muster up --host 0.0.0.0 --tls`, and invite again")


def list_(as_json: Json = False) -> None:
    """List the people of the workspace with their roles.

    \b
    Examples:
      muster user list
    """
    found = connect().people()
    print_result(found, people_lines(found, time.time()), as_json)


def role(
    name: Name, role: Annotated[str, argument("ROLE", f"One of {', '.join(ROLES)}.")], as_json: Json = False
) -> None:
    """Give somebody another role, at once.

    \b
    Examples:
      muster user role ada admin
    """
    changed = connect().change_person(name, role=role_of(role))
    say(f"{changed.name} is {changed.role} now")
    _print(changed, as_json)


def unix(
    name: Name,
    account: Annotated[str, argument("ACCOUNT", "On the server's machine; - for none.")],
    as_json: Json = False,
) -> None:
    """Run somebody's ranks as an account of the machine, if the server is root.

    Without one they run as an account that nobody else has, and that has no name.

    ACCOUNT is an existing account on the machine, such as theirs; - removes it again.

    \b
    Examples:
      muster user unix ada -
    """
    changed = connect().change_person(name, unix_user="" if account == "-" else account)
    whose = f"as {changed.unix_user}" if changed.unix_user else "as an account that only they have"
    say(f"ranks of {changed.name} run {whose} from now on, in a sandbox")
    _print(changed, as_json)


def disable(name: Name, as_json: Json = False) -> None:
    """Lock somebody out at once. Their runs go on.

    \b
    Examples:
      muster user disable ada
    """
    changed = connect().change_person(name, disabled=True)
    say(f"{name} is locked out; `muster user enable {name}` lets them in again")
    _print(changed, as_json)


def enable(name: Name, as_json: Json = False) -> None:
    """Let somebody in again, with the tokens that they had.

    \b
    Examples:
      muster user enable ada
    """
    changed = connect().change_person(name, disabled=False)
    say(f"{name} is let in again")
    _print(changed, as_json)


def rm(name: Name, as_json: Json = False) -> None:
    """Remove somebody with their tokens. What they made stays, and so nobody else gets the name.

    \b
    Examples:
      muster user rm ada
    """
    connect().remove_person(name)
    say(f"{name} is removed")
    if as_json:
        print_json({"removed": name})


COMMANDS = (add, invite, list_, role, unix, disable, enable, rm)


def _print(person: PersonView, as_json: bool) -> None:
    if as_json:
        print_json(person)


def people_lines(people: Sequence[PersonView], now: float) -> list[str]:
    rows = [
        [item.name, item.role, moment(item.created_at, now), item.created_by or "", _standing(item)] for item in people
    ]
    return table(["NAME", "ROLE", "SINCE", "BY", ""], rows)


def _standing(person: PersonView) -> str:
    account = f"ranks run as {person.unix_user}" if person.unix_user else ""
    known = "owner of the folder" if person.owner else "locked out" if person.disabled else ""
    return ", ".join(word for word in (known, account) if word)


def role_of(text: str) -> Role:
    """Parse the role of an option."""
    if text not in ROLES:
        raise UserError(f"there is no role {text!r}.", f"Roles are {', '.join(ROLES)}.")
    return text
