"""Outputs that a real blob server refuses for good: said before the job starts, and nothing is lost."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Container


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def output(mode: str = "upload") -> dict[str, dict[str, str]]:
    return {"m": {"type": "uri_folder", "path": "azureml://datastores/blob/paths/out", "mode": mode}}


def notes(site: Site, run: str) -> list[str]:
    return [event.text for event, _ in site.client.stream(run, follow=False) if event.kind == "note"]


def reading_only(blob: Container) -> dict[str, str]:
    from azure.storage.blob import generate_container_sas

    until = datetime.now(UTC) + timedelta(days=1)
    return {"sas": generate_container_sas(ACCOUNT, blob.name, account_key=ACCOUNT_KEY, permission="rl", expiry=until)}


def another_key(blob: Container) -> dict[str, str]:
    return {"account_key": base64.b64encode(b"k" * 64).decode()}


@pytest.mark.parametrize(
    ("credential", "said"),
    [
        (reading_only, "refuses its credential (AuthorizationPermissionMismatch)"),
        (another_key, "access was refused (403 AuthorizationFailure)"),
    ],
    ids=["a signature that only reads", "another account key"],
)
def test_a_job_whose_output_may_not_be_written_does_not_start(
    site: Site, blob: Container, credential: Callable[[Container], dict[str, str]], said: str
) -> None:
    blob.register(credential=credential(blob))
    run = site.run(command="echo weights > ${{outputs.m}}/a", outputs=output())
    site.wait(run)
    view = site.view(run)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "data_unavailable")
    assert "output 'm' cannot be written to azureml://datastores/blob/paths/out" in view["verdict"]["message"]
    assert said in view["verdict"]["message"]
    assert "a credential that may write" in view["verdict"]["next"]
    assert blob.names() == []


@pytest.mark.parametrize("path", ["out", "out/file.bin"])
def test_a_job_whose_output_has_no_container_does_not_start(site: Site, blob: Container, path: str) -> None:
    blob.register(container="missing")
    kind = "uri_file" if "." in path else "uri_folder"
    given = {"m": {"type": kind, "path": f"azureml://datastores/blob/paths/{path}", "mode": "upload"}}
    run = site.run(command="false", outputs=given)
    site.wait(run)
    verdict = site.view(run)["verdict"]
    assert verdict["code"] == "data_unavailable" and "404 ContainerNotFound" in verdict["message"]


def test_looking_whether_an_output_can_be_written_leaves_nothing_behind(site: Site, blob: Container) -> None:
    blob.put("out/file.bin", b"before")
    given = {"m": {"type": "uri_file", "path": "azureml://datastores/blob/paths/out/file.bin", "mode": "upload"}}
    run = site.run(command="true", outputs={**output(), "f": given["m"]})
    site.wait(run)
    assert site.view(run)["status"] == "Completed"
    assert blob.names() == ["out/file.bin"] and blob.get("out/file.bin") == b"before"


def test_a_container_that_goes_half_way_is_told_while_the_job_runs(site: Site, blob: Container) -> None:
    from azure.storage.blob import ContainerClient

    command = "until [ -e go ]; do sleep 0.05; done; echo 1 > ${{outputs.m}}/a; until [ -e end ]; do sleep 0.05; done"
    run = site.run(command=command, outputs=output("rw_mount"))
    site.wait(run, "Running")
    with ContainerClient(blob.azurite.endpoint, blob.name, credential=ACCOUNT_KEY) as client:
        client.delete_container()
    work = next(site.folder.glob(f".muster/nodes/*/attempts/{run}.1/work"))
    (work / "go").touch()
    early = "outputs cannot be sent while the job runs"
    wait_until(lambda: any(early in note for note in notes(site, run)), 60.0, "a word about it")
    assert site.view(run)["status"] == "Running"
    (work / "end").touch()
    site.wait(run)
    told = notes(site, run)
    assert any("output m could not be written" in note and "404 ContainerNotFound" in note for note in told), told
    assert site.log(run, "outputs/m/a") == b"1\n"
    view = site.view(run)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "data_unavailable")
    assert view["verdict"]["message"].startswith("every rank ended well, but output m could not be written")
    assert "kept with the run, under outputs/m" in view["verdict"]["message"]
