"""Logging in to a team's server: `muster login`."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import argument, option, switch
from muster.client.invitations import log_in, read_link, sign_on
from muster.client.sso import Code
from muster.errors import NotFound, UserError


def login(
    url: Annotated[str, argument("URL", "The server's address, or the link that you were sent.")],
    folder: Annotated[Path, option("PATH", "The folder that is to use it (default: the current one).")] = Path(),
    certificate: Annotated[Path | None, option("FILE", "The certificate that the server must show (PEM).")] = None,
    sso: Annotated[bool, switch("Sign on at the team's sign-on service, with a browser.", "--sso")] = False,
) -> None:
    """Log in to a team's server. From then on commands in this folder, and below it, speak to it.

    A link from `muster user invite` is used up by this. With a plain address the token is prompted for, or read from
    standard input. It is kept in the folder's .muster, in a file that only you can read.

    \b
    Examples:
      muster login 'https://gpu-1:8910/#muster_invite_…'
      muster login https://gpu-1:8910 --certificate server.crt
      muster login https://gpu-1:8910 --sso
    """
    link = read_link(url)
    if certificate is not None and not certificate.is_file():
        raise NotFound(f"there is no file {certificate}.")
    pinned = certificate.read_text() if certificate is not None else None
    token = "" if link.invite else sign_on(link, pinned, _show) if sso else _token()
    ref, me = log_in(folder, link, token, pinned)
    say(f"{ref.root.parent} uses {link.url} as {me.name} ({me.role})")


def _show(code: Code) -> None:
    say(f"Open {code.whole_url or code.url} in a browser, and check that it shows the code {code.code}")


def _token() -> str:
    token = getpass.getpass("token (not shown): ") if sys.stdin.isatty() else sys.stdin.read()
    if not token.strip():
        raise UserError("no token was given.", "Type it, or write it to standard input; or use the link you were sent.")
    return token.strip()
