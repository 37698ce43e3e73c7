"""A grant for one file is for one file: nothing is removed, written or read elsewhere through links or folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.conftest import Server

from muster.wire.data.access import GRANT_HEADER

KINDS = ["workspaceblobstore", "folder", "address"]


@pytest.fixture
def stores(server: Server, tmp_path: Path) -> dict[str, Path]:
    """The folder behind each datastore, with files, a folder and links; `outside` is in none of them."""
    own = server.context.files.store.local_root
    assert own is not None
    roots = {"workspaceblobstore": own / "data", "folder": tmp_path / "folder", "address": tmp_path / "address"}
    outside = tmp_path / "outside"
    for root in (*roots.values(), outside):
        (root / "many").mkdir(parents=True)
        (root / "granted").mkdir()
        for name in ("one.txt", "many/a.txt", "many/b.txt", "granted/mine.txt"):
            (root / name).write_text(f"{root.name}/{name}")
    for root in roots.values():
        (root / "out").symlink_to(outside)
        (root / "file-out").symlink_to(outside / "one.txt")
        (root / "granted" / "across").symlink_to(root / "many")
    for name, kind, options in (
        ("folder", "local", {"path": str(roots["folder"])}),
        ("address", "fsspec", {"url": f"file://{roots['address']}"}),
    ):
        body = {"name": name, "kind": kind, "options": options}
        assert server.call("POST", "/datastores", body)[0] == 201
    return {**roots, "outside": outside}


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def granted(server: Server, store: str, path: str, folder: bool) -> dict[str, str]:
    address = f"azureml://datastores/{store}/paths/{path}"
    status, grant = server.call("POST", "/grants", {"address": address, "scope": "write", "folder": folder})
    assert status == 201, grant
    return {GRANT_HEADER.lower().replace("-", "_"): grant["token"], "authorization": ""}


@pytest.mark.parametrize("store", KINDS)
def test_one_file_is_removed_and_nothing_else(server: Server, stores: dict[str, Path], store: str) -> None:
    before = tree(stores[store])
    holder = granted(server, store, "many/a.txt", folder=False)
    assert server.call_bytes("DELETE", f"/data/{store}/many/b.txt", **holder)[0] == 403
    assert server.call_bytes("DELETE", f"/data/{store}/many/a.txt", **holder)[0] == 204
    assert before - tree(stores[store]) == {"many/a.txt"}


@pytest.mark.parametrize("store", KINDS)
def test_a_folder_is_never_removed(server: Server, stores: dict[str, Path], store: str) -> None:
    before = tree(stores[store])
    holder = granted(server, store, "many", folder=False)
    for headers in (holder, {}):
        assert server.call_bytes("DELETE", f"/data/{store}/many", **headers)[0] == 409
    assert tree(stores[store]) == before


@pytest.mark.parametrize("store", KINDS)
@pytest.mark.parametrize("path", ["out", "out/one.txt", "out/many", "out/many/a.txt", "file-out", "out/new.txt"])
def test_links_lead_nowhere_else(server: Server, stores: dict[str, Path], store: str, path: str) -> None:
    before = tree(stores["outside"])
    holder = granted(server, store, path, folder=False)
    for headers in (holder, {}):
        for method in ("DELETE", "PUT", "GET"):
            assert server.call_bytes(method, f"/data/{store}/{path}", b"x", **headers)[0] in (403, 404), method
        assert server.call_bytes("GET", f"/data/{store}/{path}?list=1", **headers)[0] == 403
    assert tree(stores["outside"]) == before
    assert (stores["outside"] / "one.txt").read_text() == "outside/one.txt"


@pytest.mark.parametrize("store", KINDS)
def test_a_link_in_a_granted_folder_does_not_widen_it(server: Server, stores: dict[str, Path], store: str) -> None:
    before = tree(stores[store])
    holder = granted(server, store, "granted", folder=True)
    assert server.call_bytes("PUT", f"/data/{store}/granted/new.txt", b"x", **holder)[0] == 201
    for method in ("DELETE", "PUT", "GET"):
        assert server.call_bytes(method, f"/data/{store}/granted/across/a.txt", b"x", **holder)[0] == 403
    assert tree(stores[store]) - before == {"granted/new.txt"}
    assert (stores[store] / "many" / "a.txt").read_text().endswith("/many/a.txt")
