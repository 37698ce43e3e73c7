"""Inputs and outputs on a real node: every mode, the cache, deaths and damage, against a real blob server."""

from __future__ import annotations

import hashlib
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Container

from muster.job.explain import make_spec

LARGE = random.Random(1).randbytes(40 << 20)
SHOW = "find -L $DATA -type f -exec sha256sum {} + | sort -k2; touch $DATA/spoil || true"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own; nothing may be mounted when it is over."""
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    wait_until(lambda: str(tmp_path) not in Path("/proc/self/mountinfo").read_text(), 20.0, "the end of all mounts")


def job(command: str, **more: Any) -> dict[str, Any]:
    return {"command": command, **more}


def address(path: str) -> str:
    return f"azureml://datastores/blob/paths/{path}"


def reads(path: str, mode: str, kind: str = "uri_folder") -> dict[str, Any]:
    return job("DATA=${{inputs.data}}; " + SHOW, inputs={"data": {"type": kind, "path": address(path), "mode": mode}})


def printed_hashes(site: Site, run: str) -> dict[str, str]:
    lines = [line.split(maxsplit=1) for line in site.log(run).decode().splitlines()]
    return {line[1].partition("/inputs/data/")[2]: line[0] for line in lines if len(line) == 2 and len(line[0]) == 64}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def movers(site: Site) -> list[psutil.Process]:
    return [child for child in site.agent().children() if "muster.storage.staging" in " ".join(child.cmdline())]


@pytest.mark.parametrize("mode", ["ro_mount", "download"])
def test_a_folder_arrives_and_the_second_job_fetches_nothing(
    site: Site, blob: Container, cache: Path, mode: str
) -> None:
    blob.put("set/large.bin", LARGE)
    for number in range(30):
        blob.put(f"set/small/{number % 3}/f{number}", b"%d" % number)
    wanted = {"large.bin": sha(LARGE), **{f"small/{n % 3}/f{n}": sha(b"%d" % n) for n in range(30)}}
    for _ in range(2):
        run = site.run(**reads("set", mode))
        assert site.wait(run)["status"] == "Completed", site.log(run)
        found = printed_hashes(site, run)
        assert {path: found[path] for path in wanted} == wanted
    (tree,) = (cache / "trees").glob("[!.]*")
    assert sorted(path.name for path in (tree / "data").iterdir()) == ["large.bin", "small"]


def test_one_file_has_its_name(site: Site, blob: Container) -> None:
    blob.put("models/net.pt", b"weights")
    run = site.run(**reads("models/net.pt", "ro_mount", "uri_file"))
    assert site.wait(run)["status"] == "Completed"
    assert printed_hashes(site, run) == {"net.pt": sha(b"weights")}


def test_a_direct_input_is_the_address_itself(site: Site, blob: Container) -> None:
    blob.put("x/a", b"a")
    item = {"type": "uri_folder", "path": address("x"), "mode": "direct"}
    run = site.run(**job("echo ${{inputs.data}}", inputs={"data": item}))
    assert site.wait(run)["status"] == "Completed"
    assert site.log(run).decode().strip() == address("x")


def test_a_job_cannot_spoil_what_others_read(site: Site, blob: Container, cache: Path) -> None:
    blob.put("set/a", b"right")
    spoil = "echo wrong > ${{inputs.data}}/a; rm -f ${{inputs.data}}/a; exit 0"
    inputs = {"data": {"type": "uri_folder", "path": address("set"), "mode": "ro_mount"}}
    assert site.wait(site.run(**job(spoil, inputs=inputs)))["status"] == "Completed"
    run = site.run(**reads("set", "ro_mount"))
    site.wait(run)
    assert printed_hashes(site, run)["a"] == sha(b"right")


def test_a_source_that_is_gone_is_told(site: Site, blob: Container) -> None:
    run = site.run(**reads("nothing/here", "ro_mount"))
    view = site.wait(run)
    assert view["status"] == "Failed"
    assert view["verdict"]["code"] == "data_unavailable"
    assert address("nothing/here") in view["verdict"]["message"]


def test_what_does_not_fit_is_refused_before_it_starts(
    site: Site, blob: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agent starts with the first run, so it has this limit.
    monkeypatch.setenv("MUSTER_CACHE_BYTES", str(1 << 20))
    monkeypatch.setenv("MUSTER_RO_MOUNT", "stage")
    site.client.shutdown()
    site.client.health()
    blob.put("set/large.bin", LARGE)
    view = site.wait(site.run(**reads("set", "ro_mount")))
    assert view["verdict"]["code"] == "disk_full"
    assert "needs 40.00 MiB" in view["verdict"]["message"] and "limit is 1.00 MiB" in view["verdict"]["message"]
    assert view["verdict"]["next"].startswith("Raise MUSTER_CACHE_BYTES")


@pytest.mark.parametrize("who", ["mover", "agent"])
def test_a_download_that_is_killed_goes_on_where_it_was(site: Site, blob: Container, cache: Path, who: str) -> None:
    for number in range(4):
        blob.put(f"set/large{number}.bin", LARGE[number:])
    run = site.run(**reads("set", "ro_mount"))

    def under_way() -> bool:
        journals = list((cache / "trees" / ".partial").glob("*/journal.jsonl"))
        return bool(journals) and journals[0].stat().st_size > 200

    wait_until(lambda: under_way() or site.view(run)["status"] not in ("Queued", "Provisioning", "Preparing"), 30.0)
    killed = movers(site) if who == "mover" else [site.agent()]
    for process in killed:
        process.send_signal(signal.SIGKILL)
    view = site.wait(run)
    if who == "mover" and view["status"] == "Failed":
        assert "was killed" in view["verdict"]["message"]
        run = site.run(**reads("set", "ro_mount"))
        view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    wanted = {f"large{number}.bin": sha(LARGE[number:]) for number in range(4)}
    assert printed_hashes(site, run).items() >= wanted.items()


def test_outputs_arrive_and_a_failed_attempt_is_kept_apart(site: Site, blob: Container) -> None:
    write = "cd ${{outputs.model}}; mkdir sub; echo one > a; head -c 20000000 /dev/zero > sub/b"
    outputs = {
        "model": {"type": "uri_folder", "path": address("out/model"), "mode": "upload"},
        "card": {"type": "uri_file", "path": address("out/card.md")},
    }
    run = site.run(**job(f"{write}; echo card > ${{{{outputs.card}}}}", outputs=outputs))
    assert site.wait(run)["status"] == "Completed"
    assert blob.names() == ["out/card.md", "out/model/a", "out/model/sub/b"]
    assert blob.get("out/model/sub/b") == bytes(20_000_000)
    failed = site.run(**job("echo two > ${{outputs.model}}/a; exit 3", outputs={"model": outputs["model"]}))
    assert site.wait(failed)["status"] == "Failed"
    assert blob.get("out/model/a") == b"one\n"
    assert blob.get(f"out/model/attempts/{failed}.1/a") == b"two\n"
    notes = [event.text for event, _ in site.client.stream(failed, follow=False) if event.kind == "note"]
    assert any(f"kept apart: {address('out/model')}/attempts/{failed}.1/" in note for note in notes)


def test_a_mounted_output_is_sent_while_the_job_runs(site: Site, blob: Container) -> None:
    command = (
        "echo early > ${{outputs.model}}/a; until [ -e go ]; do sleep 0.05; done; echo late > ${{outputs.model}}/b"
    )
    outputs = {"model": {"type": "uri_folder", "path": address("out"), "mode": "rw_mount"}}
    run = site.run(**job(command, outputs=outputs))
    early = f"out/attempts/{run}.1/a"
    wait_until(lambda: early in blob.names(), 30.0, "the first file, while the job runs")
    assert site.view(run)["status"] == "Running"
    work = next(site.folder.glob(f".muster/nodes/*/attempts/{run}.1/work"))
    (work / "go").touch()
    assert site.wait(run)["status"] == "Completed"
    assert blob.names() == ["out/a", "out/b"]


def test_nodes_that_write_one_name_keep_both(site: Site, blob: Container) -> None:
    command = "cd ${{outputs.m}}; echo $NODE_RANK > diff; echo same > same; echo $NODE_RANK > own$NODE_RANK"
    outputs = {"m": {"type": "uri_folder", "path": address("two"), "mode": "upload"}}
    nodes = {"resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}}
    assert site.wait(site.run(**job(command, outputs=outputs, **nodes)))["status"] == "Completed"
    other = next(name for name in blob.names() if name.startswith("two/node_"))
    assert sorted(blob.names()) == sorted(["two/diff", other, "two/own0", "two/own1", "two/same"])
    assert {blob.get("two/diff"), blob.get(other)} == {b"0\n", b"1\n"}


def test_an_upload_that_the_agents_death_cut_off_is_completed(site: Site, blob: Container) -> None:
    command = (
        "for n in 1 2 3 4; do head -c 30000000 /dev/urandom > ${{outputs.m}}/$n; done; (cd ${{outputs.m}}; sha256sum *)"
    )
    outputs = {"m": {"type": "uri_folder", "path": address("out"), "mode": "upload"}}
    run = site.run(**job(command, outputs=outputs))
    agent = site.wait(run, "Running") and site.agent()
    wait_until(lambda: movers(site) or site.view(run)["status"] in ("Completed", "Failed"), 30.0, "the upload")
    agent.kill()
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    hashes = [line.split() for line in site.log(run).decode().splitlines()]
    assert {name: sha(blob.get(f"out/{name}")) for _, name in hashes} == {name: found for found, name in hashes}


def test_local_folders_are_copied_verified_and_may_be_written_to(site: Site) -> None:
    source = site.folder / "data"
    (source / "sub").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "sub" / "a").write_bytes(b"text")
    (source / "loop").symlink_to(source)
    inputs = {"data": {"type": "uri_folder", "path": str(source), "mode": "download"}}
    check = "cd ${{inputs.data}}; cat sub/a; echo mine > sub/a; [ -d empty ] && [ -L loop ]"
    run = site.run(**job(check, inputs=inputs))
    assert site.wait(run)["status"] == "Completed", site.log(run)
    assert (source / "sub" / "a").read_bytes() == b"text"


def test_tokens_show_neither_in_a_process_list_nor_in_an_environment(site: Site, blob: Container) -> None:
    blob.put("set/a", b"a")
    # Of this workspace alone: others may run their own tests at the same moment.
    own = f"grep -alE '{site.folder}' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f1-3 | sort -u"
    shown = f"for p in $({own}); do cat $p/cmdline $p/environ 2>/dev/null; done"
    dump = f"{shown} | tr '\\0' '\\n' | grep -c 'si[g]=' || true; env"
    inputs = {"data": {"type": "uri_folder", "path": address("set"), "mode": "download"}}
    run = site.run(**job(dump, inputs=inputs))
    assert site.wait(run)["status"] == "Completed"
    printed = site.log(run).decode()
    assert printed.splitlines()[0] == "0"
    assert "sig=" not in printed and "Eby8vd" not in printed
    assert "sig=" not in json.dumps(site.view(run))
    for log in site.folder.glob(".muster/**/*.log"):
        assert "sig=" not in log.read_text(errors="replace")
    assert next(site.folder.glob(".muster/nodes/*/agent.json")).stat().st_mode & 0o077 == 0


def test_a_plan_says_how_much_there_is_and_that_the_cache_has_it(site: Site, blob: Container) -> None:
    blob.put("set/a", bytes(3 << 20))
    blob.put("set/b", bytes(1 << 20))

    def said() -> str:
        (line,) = site.client.plan(make_spec(reads("set", "ro_mount")), "python").data
        return line

    where = f"input data: {address('set')} (4.0 MiB in 2 files)"
    assert said() == f"{where}, staged from the source"
    run = site.run(**reads("set", "ro_mount"))
    assert site.wait(run)["status"] == "Completed"
    assert said() == f"{where}, all of it is in the node's cache: nothing is read from the source"
    missing = site.client.plan(make_spec(reads("nothing", "ro_mount")), "python").data
    assert "(0 B in 0 files)" in missing[0]
