"""The MLflow store behind a path or an address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from muster.client.importing.mlflow_calls import MlflowCalls
from muster.client.importing.mlflow_sqlite import SqliteStore
from muster.client.importing.mlflow_stores import FileStore, ServerStore
from muster.errors import UserError
from muster.host.http import Address

Store = FileStore | ServerStore | SqliteStore


def open_store(uri: str, token: str = "") -> Store:
    """Open a folder, an SQLite file or a server; refuses anything else."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        shown = f"{parts.scheme}://{parts.netloc}"
        return ServerStore(MlflowCalls(Address(shown, token), parts.path.rstrip("/"), external=True))
    if parts.scheme == "sqlite":
        # Three slashes precede a relative path, four an absolute one.
        path = Path(unquote(uri.removeprefix("sqlite:///"))).expanduser()
    elif parts.scheme in ("", "file"):
        path = Path(unquote(parts.path) if parts.scheme == "file" else uri).expanduser()
    else:
        raise UserError(
            f"stores of the kind {parts.scheme!r} are not read by themselves",
            f"Start MLflow's server on it (`mlflow server --backend-store-uri {uri}`) and import from its address.",
        )
    if path.is_file():
        return SqliteStore(path)
    if (path / "mlruns").is_dir():
        path = path / "mlruns"
    if not path.is_dir():
        hint = "Give the path of an mlruns folder or of mlflow.db, or a server's address."
        raise UserError(f"there is no folder {path}", hint)
    return FileStore(path)
