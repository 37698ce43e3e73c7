"""Where bytes rest and how they travel: own certificates, a full disk, mounts, an encrypted workspace."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.conftest import MUSTER, wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Azurite, Container

from muster.client.connect import connect
from muster.client.storage import Storage
from muster.client.workspace import find_workspace
from muster.host import mounts
from muster.storage.connectors.base import TransferError
from muster.storage.connectors.opening import open_access
from muster.storage.staging.cache import Cache
from muster.storage.staging.model import Progress, stored_path
from muster.storage.staging.stage import stage
from muster.store.keyring import new_key
from muster.wire.data.access import Access

DATA = random.Random(2).randbytes(20 << 20)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    wait_until(lambda: str(tmp_path) not in Path("/proc/self/mountinfo").read_text(), 20.0, "the end of all mounts")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def reads(store: str, path: str, **more: Any) -> dict[str, Any]:
    item = {"type": "uri_folder", "path": f"azureml://datastores/{store}/paths/{path}", "mode": "ro_mount"}
    return {"command": "sha256sum < ${{inputs.data}}/a", "inputs": {"data": item}, **more}


# Own certificates


def authority(folder: Path) -> Path:
    """A certificate authority and a certificate of its own for 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))

    def made(subject: x509.Name, public: Any, is_authority: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(ca_name, subject, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
            now + datetime.timedelta(days=1)
        )
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=is_authority, encipher_only=False, decipher_only=False, **usage
            ),
            critical=True,
        )
        ski = x509.SubjectKeyIdentifier.from_public_key(public)
        builder = builder.add_extension(ski, critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(made(ca_name, ca_key.public_key(), True).public_bytes(pem))
    (folder / "cert.pem").write_bytes(made(name, key.public_key(), False).public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return folder / "ca.pem"


@pytest.fixture
def own_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trusted by whatever is started after it."""
    ca = authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca))
    return ca


@pytest.fixture
def secure_azurite(own_authority: Path) -> Iterator[Azurite]:
    folder = own_authority.parent
    server = Azurite(["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")], scheme="https")
    yield server
    server.close()


def test_blobs_travel_over_tls_with_an_authority_of_the_sites_own(
    secure_azurite: Azurite, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = Container(secure_azurite, secure_azurite.new_container(), Storage(site.client.calls))
    blob.register()
    blob.put("set/a", DATA)
    out = {"m": {"type": "uri_folder", "path": "azureml://datastores/blob/paths/out", "mode": "upload"}}
    job = reads("blob", "set", outputs=out)
    run = site.run(**{**job, "command": job["command"] + "; cp ${{inputs.data}}/a ${{outputs.m}}/b"})
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run).decode().split()[0] == sha(DATA)
    assert blob.get("out/b") == DATA
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    access = Access("azure-blob", f"{secure_azurite.endpoint}/{blob.name}/set", token="x")
    with pytest.raises(TransferError, match=r"certificate that is not trusted here.*SSL_CERT_FILE"):
        list(open_access(access).listing())


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounts.allowed():
        pytest.skip("a small disk needs the right to mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_half_way_leaves_nothing_that_seems_whole(small_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"f{number:02}").write_bytes(DATA[: 512 << 10])
    cache = Cache(small_disk / "cache", 1 << 30)
    remote = open_access(Access("file", str(source)))
    filler = small_disk / "filler"
    real = remote.read

    def read(entry: Any, offset: int, view: memoryview) -> None:
        if not filler.exists():
            # Somebody else takes the room that was there when it was looked at.
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(bytes(40 << 20))
        real(entry, offset, view)

    remote.read = read  # type: ignore[method-assign]
    with pytest.raises(TransferError, match=r"disk of .* is full") as caught:
        stage(remote, "file:x", "input 'x'", None, cache, Progress())
    assert caught.value.code == "disk_full"
    assert not list((cache.root / "trees").glob("[!.]*"))
    filler.unlink()
    remote.read = real  # type: ignore[method-assign]
    held, entries = stage(remote, "file:x", "input 'x'", None, cache, Progress())
    assert {sha((held.data / stored_path(entry)).read_bytes()) for entry in entries} == {sha(DATA[: 512 << 10])}
    held.release()


def test_what_was_promised_to_a_download_is_there_for_it_when_it_goes_on(small_disk: Path) -> None:
    cache = Cache(small_disk / "cache", 1 << 30)
    for _ in range(2):
        cache.admit("interrupted", 20 << 20, "input 'x'")
    with cache.filling("interrupted"), pytest.raises(TransferError, match=r"needs 20.00 MiB"):
        cache.admit("another", 20 << 20, "input 'y'")


def test_what_is_larger_than_the_disk_is_refused_with_figures(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "a").open("wb") as file:
        file.truncate(100 << 20)
    remote = open_access(Access("file", str(tmp_path / "source")))
    with pytest.raises(TransferError, match=r"needs 100.00 MiB .* its disk has [0-9.]+ MiB to give"):
        stage(remote, "file:x", "input 'x'", None, Cache(small_disk / "cache", 1 << 30), Progress())


# Mounts


def test_a_mounted_input_is_read_in_place_and_gone_after_the_agents_death(
    azurite: Azurite, workspace: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    if shutil.which("rclone") is None or not Path("/dev/fuse").exists():
        pytest.skip("rclone and FUSE are not installed (apt-get install rclone fuse3)")
    monkeypatch.setenv("MUSTER_RO_MOUNT", "mount")
    client = connect(find_workspace(workspace))
    site = Site(workspace, client)
    blob = Container(azurite, azurite.new_container(), Storage(client.calls))
    blob.register()
    blob.put("set/a", DATA)
    blob.put("set/sub/with space+ä.txt", b"text")
    job = reads("blob", "set", retry={"node_loss": 0})
    waits = "; cat ${{inputs.data}}/sub/*; touch ${{inputs.data}}/x; echo ready; sleep 600"
    run = site.run(**{**job, "command": job["command"] + waits})
    site.wait(run, "Running")
    wait_until(lambda: b"ready" in site.printed(run), 60.0, "its lines")
    printed = site.log(run).decode()
    assert printed.split()[0] == sha(DATA) and "text" in printed and "Read-only" in printed
    assert not (cache / "trees").exists()
    notes = [event.text for event, _ in client.stream(run, follow=False) if event.kind == "note"]
    assert any("too slow to feed GPUs" in note for note in notes)
    assert "fuse.rclone" in Path("/proc/self/mountinfo").read_text()
    site.agent().kill()
    assert site.wait(run)["status"] == "Failed"
    wait_until(lambda: str(workspace) not in Path("/proc/self/mountinfo").read_text(), 30.0, "the end of the mount")
    client.close()


# Encryption


def configure(workspace: Path, **encryption: Any) -> None:
    path = workspace / ".muster" / "workspace.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "encryption": encryption}))


def test_an_encrypted_workspace_works_gets_a_new_key_and_refuses_a_wrong_one(workspace: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(new_key())
    configure(workspace, key_file=str(tmp_path / "first"))
    with closing(connect(find_workspace(workspace))) as client:
        site = Site(workspace, client)
        place = "azureml://datastores/workspaceblobstore/paths/set"
        out = {"m": {"type": "uri_folder", "path": place, "mode": "upload"}}
        write = "echo a line that nobody may read; seq 300000 > ${{outputs.m}}/a; cp ${{outputs.m}}/a outputs/b"
        written = site.run(command=write, outputs=out)
        view = site.wait(written)
        assert view["status"] == "Completed", view["verdict"]
        text = "".join(f"{number}\n" for number in range(1, 300_001)).encode()
        run = site.run(**reads("workspaceblobstore", "set"))
        assert site.wait(run)["status"] == "Completed"
        assert site.log(run).decode().split()[0] == sha(text)
        assert client.read_file(written, "outputs/b") == text
        stored = [path.read_bytes() for path in (workspace / ".muster/store").rglob("*") if path.is_file()]
        assert len(stored) > 3
        assert not any(b"nobody may read" in data or b"\n299999\n" in data for data in stored)
        rotated = muster(workspace, "key", "rotate", "--file", str(tmp_path / "second"))
        assert "the old key is no longer needed" in rotated.stderr
        (tmp_path / "first").unlink()
        assert client.read_file(written, "outputs/b") == text
        assert b"nobody may read" in site.log(written)
        client.shutdown(force=True)
    wait_until(lambda: not (workspace / ".muster/server/server.json").exists(), 20.0, "the end of the server")
    (tmp_path / "third").write_text(new_key())
    second = json.loads((workspace / ".muster/workspace.json").read_text())["encryption"]
    assert second == {"key_file": str(tmp_path / "second")}
    configure(workspace, key_file=str(tmp_path / "third"))
    failed = muster(workspace, "ps")
    assert failed.returncode != 0
    assert "encryption/check is encrypted with the key" in failed.stderr
    configure(workspace, **second)
    assert b"nobody may read" in muster(workspace, "logs", written).stdout.encode()


def muster(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MUSTER, *arguments], cwd=folder, capture_output=True, text=True, check=False)
