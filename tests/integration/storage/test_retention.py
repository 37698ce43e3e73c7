"""`muster gc` removes what nothing refers to, and nothing else; a dry run removes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases

from muster.client.models import Models
from muster.client.snapshot import push, scan
from muster.client.storage import Storage
from muster.errors import MusterError
from muster.wire.data.assets import NewAsset

EVERYTHING = {"older_than_s": 0}


def files(site: Site) -> set[str]:
    root = site.folder / ".muster/store"
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def collect(site: Site, **options: Any) -> dict[str, int]:
    found = site.client.collect(**{"dry_run": False, "older_than_s": 0, "keep_last": 0, **options})
    return dict(Counter(item.kind for item in found.items))


def test_only_what_nothing_refers_to_is_removed(site: Site, storage: Storage, tmp_path: Path) -> None:
    source = site.folder / "src"
    source.mkdir()
    (source / "train.py").write_text(
        "import os, pathlib\npathlib.Path('outputs').mkdir(exist_ok=True)\npathlib.Path('outputs/m').write_text('m')\n"
    )
    (source / "common.py").write_text("shared = 1\n")
    run = site.run(code="src", command="python train.py")
    assert site.wait(run)["status"] == "Completed"
    site.client.register_model("m", "outputs/m", run)
    storage.upload_asset(source, NewAsset("asset", ""), "workspaceblobstore")
    before = files(site)

    # Rubbish of every kind: code without a run, a put that broke off, an upload that became no asset, a removed run.
    (source / "train.py").write_text("print('never run')\n")
    digest = push(site.client, scan(source))
    storage.upload(source, "workspaceblobstore", "assets/none/0123456789ab")
    store = site.folder / ".muster/store"
    (store / "code/blobs/ab").mkdir(parents=True, exist_ok=True)
    (store / f"code/blobs/ab/.{'ab' * 32}.part-12345678").write_text("half")
    (store / "runs/gone-run/attempts/1").mkdir(parents=True)
    (store / "runs/gone-run/attempts/1/x").write_text("x")
    (store / f"runs/{run}/checkpoints/1/node_0/{'0' * 16}").mkdir(parents=True)
    (store / f"runs/{run}/checkpoints/1/node_0/{'0' * 16}/w").write_text("w")
    full = files(site)

    assert collect(site, dry_run=True)["file"] == 5
    assert files(site) == full
    assert collect(site, older_than_s=3600) == {}
    assert collect(site, keep_last=1) == {"file": 5}
    kinds = collect(site)
    assert kinds == {"code snapshot": 1, "code": 1}
    assert files(site) == before
    assert site.client.read_file(run, "outputs/m") == b"m"
    again = site.run(code="src", command="python train.py")
    assert site.wait(again)["status"] == "Completed"
    assert digest in {path.stem for path in (store / "code/snapshots").iterdir()}


@on_both_databases
def test_a_model_outlives_the_run_that_it_comes_from(site: Site, tmp_path: Path) -> None:
    run = site.run(command="mkdir -p outputs; echo m > outputs/m")
    site.wait(run)
    site.client.register_model("m", "outputs/m", run)
    site.client.remove(run)
    collect(site)
    models = Models(site.client.calls)
    assert models.download(models.details("m"), tmp_path / "back").read_text() == "m\n"


def test_an_upload_whose_server_is_killed_leaves_nothing_that_could_be_taken_for_a_file(
    site: Site, storage: Storage
) -> None:
    server = site.server()

    def pieces() -> Iterator[bytes]:
        yield b"x" * (4 << 20)
        wait_until(lambda: parts(site), 20.0, "the part of the upload")
        server.kill()
        yield b"x" * (4 << 20)

    with pytest.raises(MusterError):
        site.client.calls.send("PUT", "/data/workspaceblobstore/big", body=pieces(), again=False)
    assert not storage.files("workspaceblobstore")
    assert len(parts(site)) == 1
    assert collect(site) == {"file": 1}
    assert not parts(site)


def parts(site: Site) -> list[str]:
    return [name for name in files(site) if ".part-" in name]
