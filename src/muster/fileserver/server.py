"""Calls to the workspace's server, through the address that the node's agent keeps for its ranks."""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import urlsplit

from muster.host.http import Address
from muster.scoring.link import Link
from muster.scoring.link import Unreachable as Unreachable
from muster.wire.codec import from_neighbour, to_json
from muster.wire.data.access import Access
from muster.wire.data.fileservers import FileServerOrders, FileServerReport, FillSource

_LISTING_S = 600.0


class Server:
    """Calls of one file server."""

    def __init__(self) -> None:
        self._link = Link()
        self.attempt = int(os.environ.get("MUSTER_ATTEMPT", "1"))

    def report(self, report: FileServerReport) -> FileServerOrders:
        return from_neighbour(FileServerOrders, self._link.call("POST", "fileserver", to_json(report)))

    def source(self, fill: int) -> tuple[Access, Address]:
        """The access to a fill's source, and the server's address for what goes through the server."""
        what = f"fileserver/fills/{fill}?attempt={self.attempt}"
        found = from_neighbour(FillSource, self._link.call("GET", what, wait_s=_LISTING_S)).access
        here = urlsplit(os.environ.get("MLFLOW_TRACKING_URI", ""))
        address = Address(f"{here.scheme}://{here.netloc}", os.environ.get("MLFLOW_TRACKING_TOKEN", ""))
        return (replace(found, url=here.path + found.url) if found.kind == "muster" else found), address
