"""Storage of others: servers of S3, GCS and plain HTTP, all real, through fsspec and the standard library."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from gcp_storage_emulator.server import APIThread
from gcp_storage_emulator.storage import Storage as GcsStorage
from moto.server import ThreadedMotoServer
from tests.integration.server.conftest import Site
from tests.integration.storage.test_chores import content, copy, make

from muster.client.storage import Storage
from muster.client.transfer import looking
from muster.client.transfer.places import parse_place
from muster.errors import AccessDenied, MusterError
from muster.storage.connectors.base import BLOCK_BYTES
from muster.wire.data.assets import NewAsset
from muster.wire.data.datastores import NewDatastore


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


@dataclass(frozen=True)
class Buckets:
    """A server of buckets, and what opens them."""

    protocol: str
    endpoint: str
    credential: dict[str, str]

    def register(self, storage: Storage, name: str) -> str:
        """A new bucket as a datastore; returns its name."""
        name = f"{name}-{self.protocol}"
        options = {"endpoint_url": self.endpoint, "skip_instance_cache": True}
        place = {"url": f"{self.protocol}://{name}", "options": options}
        credential = {"secret_options": self.credential}
        storage.create_datastore(NewDatastore(name, "fsspec", place, credential, create=True))
        return name


@pytest.fixture(scope="module", params=["s3", "gs"])
def buckets(request: pytest.FixtureRequest) -> Iterator[Buckets]:
    if request.param == "s3":
        s3 = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        s3.start()
        host, port = s3.get_host_and_port()
        yield Buckets("s3", f"http://{host}:{port}", {"key": "someone", "secret": "a secret"})
        s3.stop()
        return
    gcs = APIThread("127.0.0.1", 0, GcsStorage(use_memory_fs=True))
    gcs.start()
    gcs.is_running.wait()
    host, port = gcs._httpd.server_address
    yield Buckets("gs", f"http://{host}:{port}", {"token": "anon", "project": "tests"})
    gcs.join(timeout=1)


def test_a_bucket_is_made_filled_read_and_given_to_a_job(
    site: Site, storage: Storage, buckets: Buckets, tmp_path: Path
) -> None:
    name = buckets.register(storage, "photos")
    assert "writes, reads back and removes a file" in storage.test_datastore(name)
    made = make(tmp_path / "source")
    address = f"azureml://datastores/{name}/paths/in"
    assert len(copy(storage, tmp_path / "source", address)) == 4
    assert copy(storage, tmp_path / "source", address) == []
    copy(storage, address, tmp_path / "back")
    assert content(tmp_path / "back") == made
    asset = storage.create_asset(NewAsset(name, address))
    assert asset.num_files == 4
    run = site.run(
        command="cat ${{inputs.x}}/a.txt; cp ${{inputs.x}}/a.txt ${{outputs.y}}/b.txt",
        inputs={"x": {"type": "uri_folder", "path": f"azureml:{name}:1", "mode": "download"}},
        outputs={"y": {"path": f"azureml://datastores/{name}/paths/out"}},
    )
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run) == b"a"
    copy(storage, f"azureml://datastores/{name}/paths/out/b.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "a"


class Files(BaseHTTPRequestHandler):
    """A web server with ranges and versions; `/plain/` knows neither."""

    files: dict[str, bytes] = {}
    asked: list[str] = []
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        data = self.files.get(self.path.partition("?")[0].rpartition("/")[2])
        if data is None or self.path.startswith("/secret/"):
            self.send_response(403 if data is not None else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        given = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        status, part = 200, data
        if given and not self.path.startswith("/plain/"):
            status, part = 206, data[int(given[1]) : int(given[2]) + 1]
            self.asked.append(given[0])
        self.send_response(status)
        self.send_header("Content-Length", str(len(part)))
        if not self.path.startswith("/plain/"):
            self.send_header("ETag", f'"{len(data)}"')
        self.end_headers()
        if body:
            self.wfile.write(part)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_file_of_a_web_server_comes_in_ranges(site: Site, storage: Storage, web: str, tmp_path: Path) -> None:
    Files.files = {"train.bin": os.urandom(3 * BLOCK_BYTES + 1), "small.txt": b"small"}
    copy(storage, f"{web}/data/train.bin", tmp_path / "here.bin")
    assert (tmp_path / "here.bin").read_bytes() == Files.files["train.bin"]
    assert len({*Files.asked} - {"bytes=0-0"}) == 4
    copy(storage, f"{web}/plain/small.txt", tmp_path)
    assert (tmp_path / "small.txt").read_bytes() == b"small"
    copy(storage, f"{web}/data/train.bin", "azureml://datastores/workspaceblobstore/paths/web/")
    assert storage.files("workspaceblobstore", "web")[0].size == 3 * BLOCK_BYTES + 1
    run = site.run(
        command="cat ${{inputs.x}}",
        inputs={"x": {"type": "uri_file", "path": f"{web}/data/small.txt", "mode": "download"}},
    )
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run) == b"small"


def test_what_a_web_server_does_not_give_is_named(storage: Storage, web: str, tmp_path: Path) -> None:
    Files.files = {"train.bin": os.urandom(2 * BLOCK_BYTES)}
    with pytest.raises(MusterError, match=r"data/nothing: it is not there \(404\)"):
        copy(storage, f"{web}/data/nothing", tmp_path)
    with pytest.raises(AccessDenied, match="access was refused"):
        copy(storage, f"{web}/secret/train.bin", tmp_path)
    assert not list(tmp_path.glob("*.bin"))


def test_an_input_that_is_refused_is_named_with_the_way_to_other_data(site: Site, web: str) -> None:
    Files.files = {"small.txt": b"small"}
    run = site.run(
        command="true",
        inputs={"x": {"type": "uri_file", "path": f"{web}/secret/small.txt", "mode": "download"}},
    )
    verdict = site.wait(run)["verdict"]
    assert verdict["code"] == "data_unavailable"
    assert "Other data in its place: --input x=PATH." in verdict["next"]


def test_names_with_signs_that_patterns_have_arrive_as_they_are(
    storage: Storage, buckets: Buckets, tmp_path: Path
) -> None:
    store = buckets.register(storage, "odd")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("star*", "q?mark.txt", "[a-z].txt", "100%.txt", "%41.txt", "{a,b}"):
        (source / name).write_text(name)
    # As good names beside them as a pattern could find.
    (source / "starry").write_text("starry")
    copy(storage, source, f"azureml://datastores/{store}/paths/in")
    assert sorted(entry.path for entry in storage.files(store, "in")) == sorted(content(source))
    copy(storage, f"azureml://datastores/{store}/paths/in", tmp_path / "back")
    assert content(tmp_path / "back") == content(source)


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The web server that everybody has, which lists its folders as pages and knows no ranges; and its folder."""
    folder = tmp_path / "served"
    (folder / "below").mkdir(parents=True)
    (folder / "one.txt").write_text("one")
    (folder / "a b%41.txt").write_text("spaced")
    (folder / "below" / "two.txt").write_text("number two")
    handler = partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", folder
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def test_a_web_servers_folder_is_copied_with_its_content(
    site: Site, storage: Storage, pages: tuple[str, Path], tmp_path: Path
) -> None:
    address, folder = pages
    storage.create_datastore(NewDatastore("pages", "fsspec", {"url": address}))
    sizes = {path: len(data) for path, data in content(folder).items()}
    assert {entry.path: entry.size for entry in storage.files("pages", "")} == sizes
    stored = "azureml://datastores/pages/paths/"
    for number, source in enumerate((stored, address)):
        copy(storage, source, tmp_path / f"copy{number}")
        assert content(tmp_path / f"copy{number}") == content(folder)
    asset = storage.create_asset(NewAsset("pages", stored))
    assert (asset.type, asset.num_files, asset.size) == ("uri_folder", 3, sum(sizes.values()))
    for path in (stored, f"{stored}below", f"{address}below/"):
        run = site.run(
            command="find -L ${{inputs.x}}; find -L ${{inputs.x}} -name two.txt -exec cat {} +",
            inputs={"x": {"type": "uri_folder", "path": path, "mode": "download"}},
        )
        view = site.wait(run)
        assert view["status"] == "Completed", view["verdict"]
        assert site.log(run).endswith(b"number two"), (path, site.log(run))


def test_a_large_file_of_a_server_without_ranges_comes_in_one_piece(
    site: Site, storage: Storage, web: str, pages: tuple[str, Path], tmp_path: Path
) -> None:
    data = os.urandom(2 * BLOCK_BYTES + 3)
    Files.files = {"large.bin": data}
    address, folder = pages
    (folder / "large.bin").write_bytes(data)
    for number, source in enumerate((f"{web}/plain/large.bin", f"{address}large.bin")):
        copy(storage, source, tmp_path / f"{number}.bin")
        assert (tmp_path / f"{number}.bin").read_bytes() == data
        assert copy(storage, source, tmp_path / f"{number}.bin") == []
        assert b"".join(looking.content(storage, parse_place(source))) == data
    copy(storage, address, tmp_path / "all")
    assert content(tmp_path / "all") == content(folder)
    inputs = {"x": {"type": "uri_file", "path": f"{web}/plain/large.bin", "mode": "download"}}
    run = site.run(command="cat ${{inputs.x}} | wc -c", inputs=inputs)
    assert site.wait(run)["status"] == "Completed"
    assert int(site.log(run)) == len(data)
