"""Single sign-on with a real provider, as people type it and click it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import MUSTER
from tests.sites import sign_on
from tests.sites.browser import fill_in

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.team.sso import id_token
from muster.client.workspace import ServerRef, find_workspace
from muster.errors import AccessDenied
from muster.host.http import Address
from muster.wire.people import SsoView


@pytest.fixture
def provider(workspace: Path) -> Iterator[str]:
    """A provider at which the workspace's people sign on."""
    issuer = sign_on.named(workspace)
    with sign_on.serving(issuer):
        yield issuer


def test_a_colleague_signs_on_with_a_browser(provider: str, team: ServerRef, workspace: Path, tmp_path: Path) -> None:
    hers = tmp_path / "hers"
    hers.mkdir()
    certificate = str(team.certificate)
    assert _sign_on(hers, team.url, certificate, "ada@example.org")[0] != 0, "nobody has added her"
    added = subprocess.run([MUSTER, "user", "add", "ada@example.org"], cwd=workspace, capture_output=True, check=False)
    assert added.returncode == 0
    code, said = _sign_on(hers, team.url, certificate, "ada@example.org")
    assert code == 0 and "as ada@example.org (member)" in said
    assert connect(find_workspace(hers)).myself().name == "ada@example.org"
    code, said = _sign_on(tmp_path, team.url, certificate, "unverified@example.org")
    assert code != 0 and "no verified mail address" in said


def test_what_another_program_was_given_opens_nothing_and_nothing_twice(
    provider: str, team: ServerRef, workspace: Path
) -> None:
    owner = connect(find_workspace(workspace))
    owner.add_person("ada@example.org", "reader")
    anybody = Client(Address(team.url, "", team.read_certificate()))
    answers = {"login": "ada@example.org", "password": "x"}
    others = id_token(SsoView(provider, "another"), lambda code: _click(code.whole_url, answers))
    with pytest.raises(AccessDenied, match="another program"):
        anybody.sign_on(others)
    mine = id_token(anybody.sso(), lambda code: _click(code.whole_url, answers))
    assert anybody.sign_on(mine).role == "reader"
    with pytest.raises(AccessDenied, match="used already"):
        anybody.sign_on(mine)


def _click(url: str, answers: dict[str, str]) -> None:
    fill_in(url, answers)


def _sign_on(folder: Path, url: str, certificate: str, name: str) -> tuple[int, str]:
    """Log in as somebody: what the command asks for is done in a browser."""
    command = [MUSTER, "login", url, "--sso", "--here", "--certificate", certificate]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and process.stdout is not None
        first = process.stderr.readline()
        found = re.search(r"Open (\S+) in a browser", first)
        assert found is not None, first + process.stderr.read()
        fill_in(found[1], {"login": name, "password": "x"})
        rest = process.stderr.read() + process.stdout.read()
        return process.wait(60), rest
