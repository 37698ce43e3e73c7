"""What fills the folders of a file server: one source for each, unless it never brought anything."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, update
from tests.unit.server.conftest import Server

from muster.server.database import tables
from muster.wire.codec import to_json
from muster.wire.data.fileservers import FillProgress

STORE = "azureml://datastores/workspaceblobstore/paths"


@pytest.mark.parametrize(
    ("progress", "gives_way"),
    [
        (FillProgress(1, "failed", text="No such file or directory"), True),
        (FillProgress(1, "failed", 0, 9, 0, 3), False),
        (FillProgress(1, "filled", 9, 9, 3, 3), False),
        (FillProgress(1, "waiting"), False),
    ],
)
def test_a_fill_that_came_to_nothing_gives_its_folder_to_the_next(
    server: Server, progress: FillProgress, gives_way: bool
) -> None:
    row = {
        "name": "images", "owner_key": "k", "cluster": "two", "size_bytes": 10**9, "clients": "127.0.0.1/32",
        "created_at": 0.0, "updated_at": 0.0, "attempt": 0, "port": 0, "used_bytes": 0, "has_served": False,
        "removes": False,
    }  # fmt: skip
    server.write(lambda t: t.execute(insert(tables.file_servers).values(**row)))
    assert server.call("POST", "/fileservers/images/fills", {"source": f"{STORE}/trian"})[0] == 200
    server.write(lambda t: t.execute(update(tables.fills).values(progress=to_json(progress))))
    status, said = server.call("POST", "/fileservers/images/fills", {"source": f"{STORE}/train"})
    assert status == (200 if gives_way else 409), said
    sources = [fill["source"] for fill in server.call("GET", "/fileservers/images")[1]["fills"]]
    assert sources == [f"{STORE}/train" if gives_way else f"{STORE}/trian"]
