"""Logging in to a server, and which workspace is meant."""

import json
import os
from pathlib import Path

import pytest

from muster.client.connect import NothingKept, connect_to_read
from muster.client.team import known, login
from muster.client.team.invitations import Link, read_link
from muster.client.workspace import create_workspace, find_workspace, locate
from muster.errors import AccessDenied, Conflict, NotFound, UserError
from muster.host.fingerprints import fingerprint, is_fingerprint_of
from muster.host.network import reachable
from muster.server.http.invitation import invitation
from muster.server.http.tls import self_signed


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return self_signed(tmp_path / "tls", "127.0.0.1")[0]


def test_a_fingerprint_is_known_in_the_forms_of_ssh_and_openssl(certificate: Path) -> None:
    pem = certificate.read_text()
    shown = fingerprint(pem)
    assert shown.startswith("SHA256:")
    assert len(shown) == 50
    import hashlib
    import ssl

    plain = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    colons = ":".join(plain[i : i + 2].upper() for i in range(0, 64, 2))
    for text in (shown, shown.removeprefix("SHA256:"), plain, colons, f"sha256 Fingerprint={colons}"):
        assert is_fingerprint_of(text, pem), text
    for text in ("", "SHA256:", shown[:-1], plain[:-1], "x" * 64):
        assert not is_fingerprint_of(text, pem), text


def test_the_line_to_paste_names_an_address_that_others_reach(certificate: Path) -> None:
    said = invitation("https://10.0.0.5:8910", certificate)
    assert f"  muster login https://10.0.0.5:8910 --fingerprint {fingerprint(certificate.read_text())}\n" in said
    assert "0.0.0.0" not in reachable("https://0.0.0.0:8910")
    assert reachable("https://[::]:8910").endswith(":8910")
    assert invitation("http://127.0.0.1:8910", None).count("--fingerprint") == 0
    assert all(len(line) <= 80 for line in said.splitlines() if "muster login" not in line)


def test_the_owner_is_not_told_to_hand_out_the_own_token(certificate: Path) -> None:
    said = invitation("https://10.0.0.5:8910", certificate)
    assert said.index("muster user invite") < said.index("--print-token")
    assert max(map(len, said.replace(fingerprint(certificate.read_text()), "").splitlines())) <= 100


def test_a_link_carries_the_fingerprint_of_a_certificate_that_nobody_vouches_for() -> None:
    link = Link("https://10.0.0.5:8910", "muster_invite_abc", "SHA256:lx+/x")
    assert str(link) == "https://10.0.0.5:8910/#muster_invite_abc&SHA256:lx+/x"
    assert read_link(str(link)) == link
    plain = Link("https://10.0.0.5:8910", "muster_invite_abc")
    assert read_link(str(plain)) == plain
    assert read_link("https://10.0.0.5:8910") == Link("https://10.0.0.5:8910")
    with pytest.raises(UserError, match="not an invitation"):
        read_link("https://10.0.0.5:8910/#SHA256:lx")


@pytest.mark.parametrize("text", ["", "ftp://x", "https://", "https://h:99999", "https://h/path", "https://u:p@h:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        login.server_url(text)


def test_an_address_gets_scheme_and_port() -> None:
    assert login.server_url("gpu-1") == "https://gpu-1:8910"
    assert login.server_url("https://gpu-1:77/") == "https://gpu-1:77"
    assert login.server_url("https://[::1]:77") == "https://[::1]:77"


def test_another_certificate_than_expected_is_refused(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "certificate_of", lambda url: certificate.read_text())
    with pytest.raises(AccessDenied, match="another certificate"):
        login.pinned_certificate("https://h:1", "SHA256:abc")
    assert login.pinned_certificate("https://h:1", fingerprint(certificate.read_text())) == certificate.read_text()


def test_the_users_server_is_used_where_no_folder_has_a_workspace(home: Path, tmp_path: Path) -> None:
    root = login.remember("https://gpu-1:8910", "t0ken", None)
    found = find_workspace()
    assert found.server is not None
    assert (found.server.url, found.server.read_token()) == ("https://gpu-1:8910", "t0ken")
    assert (root / login.TOKEN).stat().st_mode & 0o077 == 0
    own = create_workspace(tmp_path / "project")
    os.chdir(tmp_path / "project")
    assert find_workspace().root == own.root
    assert login.forget() == "https://gpu-1:8910"
    assert login.forget() is None
    os.chdir(home)
    assert locate() == home / ".muster"


def test_a_server_for_one_folder_does_not_hide_its_own_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    login.remember("https://gpu-1:8910", "t", None, project)
    assert find_workspace(project / "..").server is None
    ref = find_workspace(project)
    assert ref.server is not None
    assert ref.server.url == "https://gpu-1:8910"
    other = create_workspace(tmp_path / "other")
    other.paths.server_dir.mkdir()
    with pytest.raises(Conflict, match="its own workspace"):
        login.refuse_own_runs(tmp_path / "other")


def test_a_workspace_is_chosen_by_folder_name_or_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = create_workspace(tmp_path / "one"), create_workspace(tmp_path / "other", "vision")
    server = login.remember("https://gpu-1:8910", "t", None)
    for text, root in (
        (str(tmp_path / "one"), one.root),
        (str(one.root), one.root),
        ("vision", other.root),
        ("https://gpu-1:8910", server),
    ):
        monkeypatch.setenv("MUSTER_WORKSPACE", text)
        assert find_workspace().root == root
    create_workspace(tmp_path / "third", "vision")
    monkeypatch.setenv("MUSTER_WORKSPACE", "vision")
    with pytest.raises(Conflict, match="2 workspaces are called 'vision'"):
        find_workspace()
    monkeypatch.setenv("MUSTER_WORKSPACE", "nobody")
    with pytest.raises(NotFound, match="no workspace 'nobody'"):
        find_workspace()


def test_a_command_that_only_reads_makes_nothing(home: Path) -> None:
    with pytest.raises(NothingKept, match="no workspace in or above"):
        connect_to_read()
    assert not (home / ".muster").exists()


@pytest.mark.parametrize("text", ["", "{", '{"server": 3}', '{"server": "../../etc"}', "[]"])
def test_a_damaged_login_is_none(home: Path, text: str) -> None:
    known.config_dir().mkdir(parents=True)
    (known.config_dir() / "login.json").write_text(text)
    (known.config_dir() / "trusted").mkdir()
    (known.config_dir() / "trusted" / "x.json").write_text(json.dumps({"workspace": 3}))
    assert known.user_server() is None
    assert known.used_workspaces() == []
