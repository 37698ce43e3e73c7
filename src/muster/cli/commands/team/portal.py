"""`muster portal`: the workspace in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from muster.cli.console import notice, say
from muster.cli.options import RUN_HELP, Json, argument, complete_runs, print_json, switch
from muster.client.connect import connect


@dataclass(frozen=True)
class PortalAddress:
    """The portal's URL, which signs in the first browser that opens it."""

    url: str
    sign_in_url: str
    expires_at: float


def portal(
    run: Annotated[str | None, argument("RUN", f"Open this run. {RUN_HELP}", autocompletion=complete_runs)] = None,
    print_only: Annotated[bool, switch("Print the address, and open no browser.", "--print")] = False,
    as_json: Json = False,
) -> None:
    """Open the workspace in a browser, signed in.

    The address signs in whoever opens it first, once and within five minutes; after that the browser stays signed in
    for 12 hours. The workspace's own small server listens on 127.0.0.1 alone: from another machine, forward the port
    with `ssh -L`.

    \b
    Examples:
      muster portal
      muster portal @latest
      muster portal --print
    """
    client = connect()
    page = "/portal/" if run is None else f"/portal/runs/{quote(client.run(run).id)}"
    link = client.sign_in_link()
    base = link.url if client.address.url.startswith("unix:") else client.address.url
    found = PortalAddress(f"{base}{page}", f"{base}/portal/sign-in#link={link.link}&to={page}", link.expires_at)
    if as_json:
        print_json(found)
        return
    if not print_only and _has_browser() and webbrowser.open(found.sign_in_url):
        say(f"opened {found.url}")
        return
    if not print_only:
        notice("no browser was found here; open this address within five minutes:")
    print(found.sign_in_url)
    if base.startswith("http://127.0.0.1:") and os.environ.get("SSH_CONNECTION"):
        port = base.rpartition(":")[2]
        say(f"from your own machine first: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE")


def _has_browser() -> bool:
    """Whether a browser window can be opened; text browsers cannot show the portal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
