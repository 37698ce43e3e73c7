"""The container, share or folder of a datastore, made where it is missing."""

from __future__ import annotations

import time
from pathlib import Path

from muster import errors
from muster.host.http import Address
from muster.storage.connectors.base import TransferError
from muster.storage.connectors.datastore import refusal_of
from muster.storage.connectors.filesystems import Filesystem
from muster.storage.connectors.http import Http
from muster.storage.granting import signer_of
from muster.storage.kinds import (
    BlobContainer,
    FileShare,
    FsspecAddress,
    LocalFolder,
    SharedFolder,
    StoreSpec,
    describe,
    endpoint_of,
    root_of,
)

_VERSION = "2021-12-02"
_LIFETIME_S = 300.0
_TIMEOUT_S = 10.0


def create_root(spec: StoreSpec) -> bool:
    """Create a datastore's container, share or folder; False if it exists already."""
    options = spec.options
    try:
        if isinstance(options, LocalFolder | SharedFolder):
            is_new = not Path(options.path).is_dir()
            Path(options.path).mkdir(parents=True, exist_ok=True)
            return is_new
        if isinstance(options, FsspecAddress):
            return Filesystem.at(options.url, {**options.options, **spec.credential.secret_options}).create()
        assert isinstance(options, BlobContainer | FileShare)
        return _azure(spec, options)
    except (TransferError, OSError, ImportError) as error:
        raise refusal_of(error, spec) from error


def _azure(spec: StoreSpec, options: BlobContainer | FileShare) -> bool:
    if not spec.credential.account_key:
        what = "share" if isinstance(options, FileShare) else "container"
        raise errors.JobError(
            f"{describe(spec)}: only the account's key can make a {what} here",
            f"Make it with Azure's own tools (`az storage {what} create`), or give --account-key.",
        )
    now = time.time()
    token = signer_of(options, spec.credential, now, now + _LIFETIME_S).creation()
    url = f"{endpoint_of(options)}/{root_of(options)}"
    kind = "share" if isinstance(options, FileShare) else "container"
    path = url.partition("://")[2].partition("/")[2]
    http = Http(Address(url), _TIMEOUT_S, tries=3)
    headers = {"x-ms-version": _VERSION, "Content-Length": "0"}
    answer = http.request("PUT", f"/{path}?restype={kind}&{token}", url, headers=headers, allowed=(409,))
    return answer.status != 409
