"""Secrets reach ranks, and nothing else: not logs, records, files that others read, or process lists."""

from __future__ import annotations

import base64
import subprocess

import psutil
import pytest
from tests.conftest import MUSTER, processes_of, wait_until
from tests.integration.server.conftest import Site, on_both_databases
from tests.integration.storage.conftest import shared_by_module

from muster.client.storage import Storage
from muster.errors import JobError, NotFound

SECRET = 'Zm9v-hunter2/ü&"x"'


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    return shared_by_module(request)


@on_both_databases
def test_a_secret_that_a_rank_prints_is_masked_in_every_spelling(site: Site, storage: Storage) -> None:
    site.client.set_secret("TOKEN", SECRET)
    script = """
import base64, json, os, sys, time, urllib.parse
from muster import Run
secret = os.environ["THE_TOKEN"]
assert secret == os.environ["MIXED"][4:-4]
print("raw", secret)
for text in (base64.b64encode(secret.encode()).decode(), base64.b64encode(b"a" + secret.encode()).decode(),
             base64.b64encode(b"ab" + secret.encode()).decode(), urllib.parse.quote(secret, safe=""),
             json.dumps({"t": secret}), repr(secret)):
    print("as", text)
# Across pieces: the agent ships what there is while the rest is still to come.
os.write(1, b"half " + secret.encode()[:9]); time.sleep(0.3); os.write(1, secret.encode()[9:] + b" whole\\n")
Run.get_context().tag("mine", secret)
print("done")
"""
    (site.folder / "src").mkdir()
    (site.folder / "src/print.py").write_text(script)
    variables = {"THE_TOKEN": "${{secrets.TOKEN}}", "MIXED": "pre-${{secrets.TOKEN}}-end"}
    run = site.run(code="src", command="python print.py", environment_variables=variables)
    view = site.wait(run)
    log = site.log(run).decode()
    assert view["status"] == "Completed", log
    lines = log.splitlines()
    assert lines[0] == "raw " + "*" * len(SECRET.encode())
    assert "half " + "*" * len(SECRET.encode()) + " whole" in lines
    assert lines[-1] == "done"
    raw = SECRET.encode()
    for spelling in (SECRET, base64.b64encode(raw).decode()[:12], base64.b64encode(b"ab" + raw).decode()[4:16]):
        assert spelling not in log
    assert "hunter2" not in log and "hunter2" not in str(view)
    # Nothing that stays holds it, but the database, sealed.
    attempts = site.folder / ".muster/nodes/local-0/attempts"
    wait_until(lambda: not list(attempts.glob(f"{run}.*")), 30.0, "the end of the attempt's folder")
    kept = [path for path in (site.folder / ".muster").rglob("*") if path.is_file() and path.name != "order.json"]
    assert not [path for path in kept if raw in path.read_bytes()]


def test_a_secret_is_in_no_command_line(site: Site, storage: Storage) -> None:
    done = subprocess.run(
        [MUSTER, "secret", "set", "TOKEN"], input=SECRET, cwd=site.folder, capture_output=True, text=True, check=True
    )
    assert SECRET not in done.stdout + done.stderr
    run = site.run(command="sleep 60", environment_variables={"T": "${{secrets.TOKEN}}"})
    site.wait(run, "Running")
    for process in processes_of(site.folder):
        try:
            assert SECRET not in " ".join(process.cmdline())
        except psutil.Error:
            continue
    for path in (site.folder / ".muster/nodes").rglob("*.json"):
        assert path.stat().st_mode & 0o077 == 0 or SECRET.encode() not in path.read_bytes(), path
    site.client.cancel(run, force=True)
    site.wait(run)
    listed = subprocess.run(
        [MUSTER, "secret", "list"], cwd=site.folder, capture_output=True, text=True, check=True
    ).stdout
    assert "TOKEN" in listed and SECRET not in listed


def test_a_secret_that_is_not_there_or_stands_in_the_command_is_refused(site: Site, storage: Storage) -> None:
    with pytest.raises(NotFound, match="there is no secret 'NONE'"):
        site.run(command="true", environment_variables={"T": "${{secrets.NONE}}"})
    with pytest.raises(JobError, match="stands in the command"):
        site.run(command="echo ${{secrets.NONE}}")
    with pytest.raises(JobError, match="has 3 characters"):
        site.client.set_secret("SHORT", "abc")
    site.client.set_secret("GONE", "long enough")
    site.client.remove_secret("GONE")
    with pytest.raises(NotFound):
        site.client.remove_secret("GONE")
