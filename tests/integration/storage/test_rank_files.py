"""`azureml://` in ranks: what is below the run's own inputs, by fsspec, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Container

from muster.client.storage import Storage
from muster.wire.data.assets import NewAsset

SCRIPT = """
import fsspec
fs, path = fsspec.url_to_fs("ADDRESS")
print(fs.ls(path, detail=False), sorted(fs.find(path)), fs.isdir(path))
with fsspec.open("ADDRESS/deep/large.bin") as file:
    file.seek(-3, 2)
    print(file.read(), fs.size(path + "/deep/large.bin"))
print(fs.cat_file(path + "/a.txt"), fs.cat_file(path + "/a.txt", 1, 3), fs.exists(path + "/nothing"))
for other in ("azureml://datastores/blob/paths/inside", "azureml://datastores/blob/paths/in/../secret"):
    try:
        print(fsspec.open(other + "/b.txt").open().read())
    except (OSError, ValueError) as error:
        print(type(error).__name__)
"""


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def test_a_rank_reads_its_input_by_fsspec_and_nothing_beside_it(site: Site, blob: Container, tmp_path: Path) -> None:
    blob.put("in/a.txt", b"hello")
    blob.put("in/deep/large.bin", b"x" * 9_000_000 + b"end")
    blob.put("inside/b.txt", b"secret")
    blob.put("secret/b.txt", b"secret")
    address = "azureml://datastores/blob/paths/in"
    (tmp_path / "read.py").write_text(SCRIPT.replace("ADDRESS", address))
    run = site.run(
        command=f"python {tmp_path}/read.py; echo ${{{{inputs.x}}}}",
        inputs={"x": {"type": "uri_folder", "path": address, "mode": "direct"}},
    )
    view = site.wait(run)
    log = site.log(run).decode()
    assert view["status"] == "Completed", log
    inner = "datastores/blob/paths/in"
    assert log.splitlines() == [
        f"['{inner}/a.txt', '{inner}/deep'] ['{inner}/a.txt', '{inner}/deep/large.bin'] True",
        "b'end' 9000003",
        "b'hello' b'el' False",
        "PermissionError",
        log.splitlines()[4],
        address,
    ]
    assert log.splitlines()[4] in ("PermissionError", "OSError")
    assert "secret'" not in log


def test_a_direct_asset_is_an_address_on_this_machine_too_and_cannot_be_spoilt(
    site: Site, storage: Storage, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("right")
    asset = storage.upload_asset(tmp_path / "in", NewAsset("kept", ""), "workspaceblobstore")
    (tmp_path / "read.py").write_text("import fsspec, sys\nprint(fsspec.open(sys.argv[1] + '/a.txt').open().read())")
    run = site.run(
        command=f"python {tmp_path}/read.py ${{{{inputs.x}}}}; echo ${{{{inputs.x}}}}",
        inputs={"x": {"type": "uri_folder", "path": "azureml:kept:1", "mode": "direct"}},
    )
    assert site.wait(run)["status"] == "Completed"
    assert site.log(run).decode().splitlines() == ["b'right'", asset.address]
