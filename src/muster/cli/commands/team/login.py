"""The server and workspace that commands use: `login`, `logout`, `workspaces`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path
from typing import Annotated

from muster.cli.console import print_lines, say
from muster.cli.options import Json, argument, option, print_json, print_result, switch
from muster.cli.text import table
from muster.client.api import Client
from muster.client.connect import refuse_plain, refuse_stranger
from muster.client.team.invitations import Link, join, read_link, sign_on
from muster.client.team.login import forget, pinned_certificate, refuse_own_runs, remember
from muster.client.team.sso import Code
from muster.client.workspace import find_folder, known_folders, locate, read_brief
from muster.errors import UserError
from muster.host.http import Address


@dataclass(frozen=True)
class KnownWorkspace:
    """One line of `muster workspaces`."""

    name: str
    root: str
    server: str | None
    """The address of a team's server; None where the workspace has its own."""
    current: bool
    """Commands from the current folder use it."""


def login(
    url: Annotated[str, argument("URL", "The server's address as `muster up` prints it, or the link you were sent.")],
    fingerprint: Annotated[
        str | None, option("SHA256:…", "The fingerprint of its certificate, as `muster up` prints it.")
    ] = None,
    certificate: Annotated[Path | None, option("FILE", "The certificate that the server must show (PEM).")] = None,
    token_file: Annotated[
        Path | None, option("FILE", "A file with your token; - reads it from a pipe. (default: it is asked for)")
    ] = None,
    sso: Annotated[bool, switch("Sign on at the team's sign-on service, with a browser.", "--sso")] = False,
    here: Annotated[bool, switch("For this folder only, instead of wherever no folder has a workspace.")] = False,
    as_json: Json = False,
) -> None:
    """Log in to a team's server, and use it from now on.

    The server is used wherever no folder has a workspace of its own; with --here, in this folder and below. Its
    certificate is checked against the fingerprint once, and from then on only that certificate is accepted. A link
    from `muster user invite` is good for one use and needs no token.

    \b
    Examples:
      muster login https://gpu-1:8910 --fingerprint SHA256:uq3…
      muster login 'https://gpu-1:8910/#muster_invite_…&SHA256:uq3…'
      muster login https://gpu-1:8910 --token-file token --here
      muster login https://gpu-1:8910 --sso
    """
    link = read_link(url)
    folder = Path.cwd() if here else None
    refuse_own_runs(folder)
    pinned = _given(certificate) if certificate is not None else _pinned(link, fingerprint)
    refuse_plain(Address(link.url, "secret"))
    refuse_stranger(Address(link.url, "", pinned))
    token = _joined(link, pinned, sso, token_file)
    me = Client(Address(link.url, token, pinned)).myself()
    root = remember(link.url, token, pinned, folder)
    found = {"server": link.url, "name": me.name, "role": me.role, "root": str(root)}
    print_result(found, [f"logged in to {link.url} as {me.name} ({me.role})"], as_json)
    own = find_folder(Path.cwd())
    if not here and own is not None and own == locate():
        say(f"This folder has its own workspace ({own}), which commands here go on using.")


def logout(here: Annotated[bool, switch("Forget the server of this folder.")] = False, as_json: Json = False) -> None:
    """Forget the server that you logged in to.

    \b
    Examples:
      muster logout
      muster logout --here
    """
    url = forget(Path.cwd() if here else None)
    line = f"logged out of {url}" if url else "not logged in" + (" in this folder" if here else "")
    print_result({"server": url}, [line], as_json)


def workspaces(as_json: Json = False) -> None:
    """List the workspaces and servers that you have used.

    The one that commands use from the current folder is marked.

    \b
    Examples:
      muster workspaces
      muster workspaces --json
    """
    current = locate()
    found = [
        KnownWorkspace(brief.name, str(root), brief.server.url if brief.server else None, root == current)
        for root in known_folders()
        if (brief := read_brief(root)) is not None
    ]
    if as_json:
        print_json(found)
    elif not found:
        say("no workspaces yet; `muster init` makes one, `muster login URL` uses a team's")
    else:
        rows = [("*" if one.current else "", one.name, one.server or str(Path(one.root).parent)) for one in found]
        print_lines(table(("", "NAME", "WHERE"), rows))
        say("`muster --workspace NAME COMMAND` uses another one")


def _pinned(link: Link, fingerprint: str | None) -> str | None:
    return pinned_certificate(link.url, fingerprint or link.fingerprint, str(link))


def _given(certificate: Path) -> str:
    try:
        return certificate.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the certificate {certificate} cannot be read: {error}", "Give a PEM file.") from error


def _joined(link: Link, pinned: str | None, sso: bool, token_file: Path | None) -> str:
    """The token: given, or by invitation or single sign-on."""
    if link.invite:
        return join(link, pinned)
    return sign_on(link, pinned, _show) if sso else _token(token_file)


def _show(code: Code) -> None:
    say(f"Open {code.whole_url or code.url} in a browser, and check that it shows the code {code.code}")


def _token(file: Path | None) -> str:
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    elif "MUSTER_TOKEN" in os.environ:
        text = os.environ["MUSTER_TOKEN"]
    elif sys.stdin.isatty():
        text = getpass("Token (it is not shown): ")
    else:
        raise UserError(
            "there is no terminal to ask for the token.", "Give it with --token-file FILE, or - for a pipe."
        )
    if not (token := text.strip()) or len(token.split()) != 1:
        raise UserError("the token is empty, or more than one word.", "`muster up --print-token` prints the owner's.")
    return token
