"""Two people with accounts of their own: what each may not do to the other is tried, over every way there is."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.trust.conftest import Site

from muster import errors
from muster.client.api import Client
from muster.client.submit import submit
from muster.job.explain import make_spec

HERS = """
import os, pathlib, time
pathlib.Path("outputs/hers.txt").write_text("what only ada may read: " + os.environ["WORD"])
print("uid", os.getuid(), os.environ["USER"], flush=True)
time.sleep(600)
"""

TRY = """
import json, os, pathlib, signal, socket, subprocess, sys
asked = json.loads(sys.argv[1])
found = {}

def attempt(name, work):
    try:
        found[name] = str(work())
    except (OSError, subprocess.SubprocessError) as error:
        found[name] = "refused"

def read(path):
    return pathlib.Path(path).read_text(errors="replace")

for path in asked["files"]:
    attempt(path, lambda: read(path) if not os.path.isdir(path) else os.listdir(path))
for path in asked["written"]:
    attempt("write " + path, lambda: pathlib.Path(path).open("a"))
for path in asked["sockets"]:
    attempt("socket " + path, lambda: socket.socket(socket.AF_UNIX).connect(path))
for pid in asked["pids"]:
    attempt(f"kill {pid}", lambda: os.kill(pid, signal.SIGKILL))
    for name in ("environ", "mem", "maps", "cwd/outputs/hers.txt", "root/etc/hostname", "fd"):
        look = os.listdir if name == "fd" else read
        attempt(f"/proc/{pid}/{name}", lambda: look(f"/proc/{pid}/{name}"))
attempt("ports", lambda: os.listdir("/tmp/muster-ports"))
print(json.dumps(found))
"""


class Member:
    """Somebody with a token of their own."""

    def __init__(self, site: Site, name: str, account: str) -> None:
        site.client.add_person(name, "member", account)
        token = site.client.create_token("test", name, None, 3600.0).token
        self.name, self.account, self.folder = name, account, site.folder
        self.client = Client(replace(site.client.address, token=token))

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.account).pw_uid

    def run(self, **job: object) -> str:
        return submit(self.client, make_spec(job), self.folder, python=sys.executable).id


@pytest.fixture
def people(site: Site, accounts: tuple[str, str]) -> tuple[Member, Member]:
    return Member(site, "ada", accounts[0]), Member(site, "bob", accounts[1])


def test_neither_reaches_what_is_the_others(site: Site, people: tuple[Member, Member]) -> None:
    ada, bob = people
    ada.client.set_secret("word", "correct horse")
    for name, script in (("hers.py", HERS), ("try.py", TRY)):
        (site.folder / name).write_text(script)
    hers = ada.run(command="python hers.py", code=".", environment_variables={"WORD": "${{secrets.word}}"})
    site.wait(hers, "Running")
    wait_for_line(site, hers, f"uid {ada.uid} {ada.account}")
    asked = targets(site, hers)

    # As a program of bob's own, with his account, on the same machine.
    own = as_account(bob, [sys.executable, "-c", TRY, json.dumps(asked)])
    assert own.pop("ports")
    assert {name: said for name, said in own.items() if said != "refused"} == {}
    # As ranks of his.
    his = bob.run(command=["python", "try.py", json.dumps(asked)], code=".")
    assert site.wait(his)["status"] == "Completed", site.log(his)
    inside = json.loads(site.log(his))
    assert {name: said for name, said in inside.items() if said != "refused"} == {}
    # Over REST.
    tries_over_rest(bob, hers)
    assert site.view(hers)["status"] == "Running"
    spec = site.view(his)["spec"]
    assert spec["isolation"] == "sandbox" and site.view(his)["submitted_by"] == "bob"
    ada.client.cancel(hers, force=True)
    site.wait(hers)
    assert b"correct horse" not in site.log(hers)
    # The folder of an attempt goes a moment after its end.
    wait_until(lambda: not open_sockets(site.folder / ".muster" / "nodes"), 30, "no socket that others could use")


def targets(site: Site, run: str) -> dict[str, object]:
    """What of the server and of somebody's run could be tried."""
    root = site.folder / ".muster"
    attempt = root / "nodes" / "local-0" / "attempts" / f"{run}.1"
    server = [root / "server" / name for name in ("workspace.key", "admin.token", "muster.db", "server.json")]
    files = [*server, root / "nodes" / "local-0" / "agent.json", attempt / "order.json", attempt / "launch.json"]
    files += [attempt / "work" / "outputs" / "hers.txt", attempt / "work", Path("/etc/shadow")]
    written = [root / "server" / "muster.db", attempt / "work" / "new.txt", attempt / "streams" / "user_logs" / "x"]
    agent = site.agent()
    keepers = [item.pid for item in agent.children(recursive=True)]
    return {
        "files": [str(path) for path in files],
        "written": [str(path) for path in written],
        "sockets": [site.client.address.url.removeprefix("unix:"), str(attempt / "inside" / "container.sock")],
        "pids": [site.client.health().pid, agent.pid, *keepers],
    }


def open_sockets(folder: Path) -> list[Path]:
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_socket() and path.stat().st_mode & 0o007:
                found.append(path)
    return found


def as_account(member: Member, command: list[str]) -> dict[str, str]:
    """What a program of a member's finds that they start by hand."""
    # Root's own Python may lie where they cannot look; the system's is everybody's.
    python = "/usr/bin/python3"
    entered = ["setpriv", "--reuid", member.account, "--regid", str(member.uid), "--clear-groups", python, *command[1:]]
    done = subprocess.run(entered, capture_output=True, text=True, check=True, cwd="/", env={"PATH": os.defpath})
    found: dict[str, str] = json.loads(done.stdout)
    return found


def tries_over_rest(bob: Member, hers: str) -> None:
    denied = [
        lambda: bob.client.cancel(hers, force=True),
        lambda: bob.client.remove(hers),
        lambda: bob.client.change_person("bob", role="admin"),
        lambda: bob.client.change_person("bob", unix_user="ada"),
        lambda: bob.client.remove_secret("word"),
        lambda: bob.client.set_secret("word", "another"),
        lambda: bob.client.shutdown(),
        lambda: bob.run(command="env", environment_variables={"WORD": "${{secrets.word}}"}),
        lambda: bob.run(command="id", isolation="none"),
        lambda: bob.run(command="cat ${{inputs.x}}", inputs={"x": {"type": "uri_file", "path": "/etc/shadow"}}),
    ]
    for number, call in enumerate(denied):
        with pytest.raises(errors.AccessDenied):
            call()
            raise AssertionError(f"call {number} was let through")


def wait_for_line(site: Site, run: str, line: str) -> None:
    def is_there() -> bool:
        try:
            return line.encode() in site.log(run)
        except errors.NotFound:
            return False

    wait_until(is_there, 20.0, line)


def test_an_account_is_named_by_an_administrator_and_is_never_root(site: Site, accounts: tuple[str, str]) -> None:
    with pytest.raises(errors.UserError, match="is root"):
        site.client.add_person("eve", "member", "root")
    with pytest.raises(errors.NotFound, match="no account 'nobody-here'"):
        site.client.add_person("eve", "member", "nobody-here")
    made = site.client.add_person("eve", "member", accounts[0])
    assert made.unix_user == accounts[0]
    assert site.client.change_person("eve", unix_user="").unix_user is None
