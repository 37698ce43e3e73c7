"""NFS shares of a node: mounted by this process, and unmounted when it ends."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from muster.host import mounts
from muster.host.network import source_of
from muster.storage.connectors.base import TransferError

_STAGE = "Or let the node fetch the data: name a datastore as the job's input."
_REACH_S = 10.0


class MountedShare:
    """One share, until it is closed."""

    def __init__(self, host: str, port: int, export: str, target: Path, read_only: bool) -> None:
        self._target = target
        address = _reached(host, port)
        options = (
            f"vers=4.2,proto=tcp,port={port},addr={address},clientaddr={_own(address)},sec=sys,timeo=100,retrans=3"
        )
        for version in ("4.2", "4.1", "4.0"):
            found = mounts.mount_nfs(
                f"{host}:{export}", target, options.replace("vers=4.2", f"vers={version}"), read_only
            )
            if found not in (errno.EPROTONOSUPPORT, errno.EINVAL):
                break
        if found:
            raise _trouble(found, f"{host}:{export}")

    def close(self) -> None:
        mounts.unmount(self._target)


def _reached(host: str, port: int) -> str:
    """The server's address; refused here if it cannot be reached, since the mount would hang in the kernel."""
    try:
        address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        with socket.create_connection((address, port), _REACH_S):
            return address
    except OSError as error:
        raise TransferError(
            "data_unavailable",
            f"no NFS server answers at {host}:{port}: {error.strerror or error}",
            next="Check that it runs and that this node's network leads to it: `muster fileserver list`.",
        ) from error


def _own(address: str) -> str:
    try:
        return source_of(address)
    except OSError:
        return "0.0.0.0"


def _trouble(number: int, share: str) -> TransferError:
    if number == errno.ENODEV:
        return TransferError(
            "environment",
            f"{share} cannot be mounted: this node's kernel has no NFS client (No such device)",
            next=f"Load it there (`modprobe nfsv4`), or use nodes whose kernel has it. {_STAGE}",
        )
    if number in (errno.EPERM, errno.EACCES) and not mounts.allowed():
        return TransferError(
            "environment",
            f"{share} cannot be mounted: only root may mount NFS, and the agent runs as user {os.geteuid()} or in a "
            "container that may not",
            next="Have the site mount it on the nodes, and name that folder: `muster datastore create NAME --nfs "
            f"FOLDER`. {_STAGE}",
        )
    said = {
        errno.EACCES: "the server lets this node not read it",
        errno.EPERM: "the server lets this node not read it",
        errno.ENOENT: "the server has no such export",
        errno.ETIMEDOUT: "the server does not answer",
    }.get(number, os.strerror(number))
    return TransferError("data_unavailable", f"{share} cannot be mounted: {said}", next="Check the server's exports.")
