"""Drills: a workspace is backed up in use, lost, and brought back; a damaged database is rebuilt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.conftest import MUSTER, wait_until
from tests.integration.server.conftest import Site, on_both_databases

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import ServerUnavailable
from muster.server.database.backup import AutomaticBackups

LOGGING = f"{sys.executable} -c \"from muster import Run; Run.get_context().log('loss', 0.5); print('hello')\""


def muster(site: Site, *words: str, code: int = 0) -> str:
    done = subprocess.run([MUSTER, *words], cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def completed(site: Site, **job: object) -> str:
    """A run that has completed and whose record is in the store."""
    run_id = site.run(command=LOGGING, **job)
    assert site.wait(run_id)["status"] == "Completed"
    record = site.folder / f".muster/store/runs/{run_id}/record.json"

    def status() -> str:
        return json.loads(record.read_text())["runs"][0]["status"] if record.exists() else ""

    wait_until(lambda: status() == "Completed", what="the record in the store")
    return run_id


def kill_server(site: Site) -> None:
    """With its agents, so that nothing of the workspace is in use."""
    agents = [node.pid for node in site.client.cluster("local").nodes if node.pid and psutil.pid_exists(node.pid)]
    living = [site.server(), *map(psutil.Process, agents)]
    for process in living:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(living, 10)


def told(site: Site, run_id: str) -> dict[str, object]:
    """What a person would miss of a run."""
    view = site.view(run_id)
    kept = {key: view[key] for key in ("id", "status", "tags", "started_at", "ended_at", "spec", "metrics", "files")}
    return kept | {"ranks": view["attempts"][0]["ranks"], "log": site.log(run_id)}


@on_both_databases
def test_a_workspace_is_backed_up_in_use_and_brought_back(site: Site, tmp_path: Path) -> None:
    site.client.set_secret("HF_TOKEN", "s3cret")
    before = told(site, completed(site, tags={"kind": "first"}))
    file = tmp_path / "backup.tar"
    assert "keep it as safe" in muster(site, "backup", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    after = told(site, completed(site))
    assert "muster down" in muster(site, "restore", str(file), code=2)
    site.client.shutdown(force=True)
    for name in ("muster.db", "muster.db-wal", "muster.db-shm", "workspace.key", "admin.token"):
        (site.folder / ".muster/server" / name).unlink(missing_ok=True)
    said = muster(site, "restore", str(file))
    assert f"put back from the store: 1 run\n  {after['id']}" in said
    fresh = Site(site.folder, connect(find_workspace(site.folder)))
    assert told(fresh, str(before["id"])) == before
    assert told(fresh, str(after["id"])) == after
    assert [secret.name for secret in fresh.client.secrets()] == ["HF_TOKEN"]
    again = fresh.run(command="test $TOKEN = s3cret", environment_variables={"TOKEN": "${{secrets.HF_TOKEN}}"})
    assert fresh.wait(again)["status"] == "Completed"
    assert len(fresh.client.runs()) == 3
    fresh.client.close()


def test_a_damaged_database_is_said_and_rebuilt_from_the_backup_and_the_store(site: Site) -> None:
    first = told(site, completed(site))
    paths = find_workspace(site.folder).paths
    AutomaticBackups(paths.backups, 3).make(f"sqlite:///{paths.database}")
    second = told(site, completed(site))
    site.client.shutdown()
    wait_until(lambda: not (site.folder / ".muster/server/server.json").exists(), what="the end of the server")
    connect(find_workspace(site.folder)).health()
    kill_server(site)
    for side in ("-wal", "-shm"):
        paths.database.with_name(paths.database.name + side).unlink(missing_ok=True)
    with paths.database.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(os.urandom(paths.database.stat().st_size - 4096 * 2))
    with pytest.raises(ServerUnavailable, match=r"is damaged(.|\n)*muster repair"):
        connect(find_workspace(site.folder))
    said = muster(site, "repair")
    assert "taken from the automatic backup" in said
    assert str(second["id"]) in said
    fresh = Site(site.folder, connect(find_workspace(site.folder)))
    assert [told(fresh, str(run["id"])) for run in (first, second)] == [first, second]
    assert fresh.wait(fresh.run(command="true"))["status"] == "Completed"
    fresh.client.close()


def test_a_lost_write_ahead_log_is_noticed_and_its_runs_are_put_back(site: Site) -> None:
    lost = told(site, completed(site))
    kill_server(site)
    for side in ("-wal", "-shm"):
        (site.folder / f".muster/server/muster.db{side}").unlink()
    shutil.rmtree(site.folder / ".muster/server/backups", ignore_errors=True)
    client = connect(find_workspace(site.folder))
    assert client.runs() == []
    assert str(lost["id"]) in client.health().trouble
    client.shutdown(force=True)
    client.close()
    assert "put back from the store: 1 run" in muster(site, "repair")
    fresh = Site(site.folder, connect(find_workspace(site.folder)))
    assert fresh.client.health().trouble == ""
    assert told(fresh, str(lost["id"])) == lost
    fresh.client.close()


def test_the_server_copies_its_database_by_itself(site: Site) -> None:
    run_id = completed(site)
    backups = AutomaticBackups(find_workspace(site.folder).paths.backups, 3)
    wait_until(lambda: backups.newest_first(), 40.0, "the first automatic backup")
    assert backups.newest_whole() is not None
    assert run_id
