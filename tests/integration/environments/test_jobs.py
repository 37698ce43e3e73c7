"""Jobs in environments that are built for them, with real builds and real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.conftest import MUSTER, processes_of, wait_until
from tests.integration.environments.conftest import Shelf, Site

from muster.environments.failures import Failure
from muster.environments.venvs.cache import Cache
from muster.environments.venvs.locks import plain
from muster.errors import JobError
from muster.paths import environments_dir
from muster.sdk.environment import CondaDependencies, Environment
from muster.sdk.workspace import Workspace

BUILD_LOG = "user_logs/environment_build.txt"
SHOW = (
    'python -c \'import small, sys; from muster import Run; Run.get_context().log("seen", 1);'
    " print(small.VERSION, sys.prefix)' && small-says"
)


@pytest.fixture
def cache(shelf: Shelf) -> Cache:
    return Cache(environments_dir())


def keys(cache: Cache) -> list[str]:
    return [built.key for built in cache.entries()]


def failed(site: Site, environment: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a job whose environment cannot be built."""
    view = site.wait(site.run(command="python -c pass", environment=environment))
    assert view["status"] == "Failed"
    verdict: dict[str, Any] = view["verdict"]
    assert verdict["next"]
    return verdict


def test_a_job_runs_in_its_environment_and_the_next_one_finds_it_there(shelf: Shelf, cache: Cache, site: Site) -> None:
    shelf.wheel("small", "1.0", script="small-says")
    environment = {"name": "mine", "pip": [*shelf.options, "small"]}
    first = site.wait(site.run(command=SHOW, environment=environment))
    assert first["status"] == "Completed", first["verdict"]
    (key,) = keys(cache)
    lines = site.log(first["id"]).decode().splitlines()
    assert lines == [f"1.0 {cache.folder(key)}", "small 1.0"]
    assert first["metrics"]["seen"] == 1
    module = next(cache.folder(key).rglob("small.py"))
    assert module.stat().st_nlink > 1, "uv makes hard links from its cache"
    assert f"{key} is ready" in site.log(first["id"], BUILD_LOG).decode()
    assert first["environment"] == {"name": "mine", "key": key, "python": first["environment"]["python"], "packages": 1}
    (line,) = site.client.environment_of_run(first["id"]).lock
    assert line.startswith("small==1.0 --hash=sha256:")

    second = site.wait(site.run(command=SHOW, environment={**environment, "name": "other"}))
    assert second["status"] == "Completed" and keys(cache) == [key]
    assert BUILD_LOG not in {file["path"] for file in second["files"]}


def test_versions_are_kept_and_can_be_asked_for_again(shelf: Shelf, cache: Cache, site: Site) -> None:
    shelf.wheel("small", "1.0", script="small-says")
    environment = {"pip": [*shelf.options, "small"]}
    run = site.wait(site.run(command=SHOW, environment=environment))["id"]
    shelf.wheel("small", "1.1", script="small-says")
    exported = subprocess.run([MUSTER, "env", "export", run], capture_output=True, text=True, check=True).stdout
    (site.folder / "lock.yml").write_text(exported)
    again = site.wait(site.run(command=SHOW, environment={"conda_file": "lock.yml"}))
    assert site.log(again["id"]).decode().startswith("1.0 ")
    assert cache.remove(site.view(run)["environment"]["key"])
    retried = site.wait(site.run(command=SHOW + "; exit 3", environment=environment))
    assert site.log(retried["id"]).decode().startswith("1.1 ")
    # A further attempt keeps to the versions of the first, whatever came out since.
    shelf.wheel("small", "1.2", script="small-says")
    assert cache.remove(retried["environment"]["key"])
    site.client.retry(retried["id"])
    wait_until(lambda: len(site.view(retried["id"])["attempts"]) == 2, 60.0, "the second attempt")
    site.wait(retried["id"])
    assert site.log(retried["id"]).decode().startswith("1.1 ")


def test_two_nodes_and_two_jobs_that_ask_at_once_build_once(shelf: Shelf, cache: Cache, site: Site) -> None:
    gate = shelf.gated("slow")
    job: dict[str, Any] = {
        "command": "python -c 'import slow'",
        "environment": {"pip": [*shelf.options, "slow"]},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    }
    runs = [site.run(**job), site.run(**job)]
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    reason = wait_until(
        lambda: next((text for run in runs if "building the environment" in (text := site.view(run)["reason"])), None),
        60.0,
        "a reason that says what is being done",
    )
    assert "local-" in reason and " s" in reason
    assert cache.remove(next(path.name for path in cache.root.iterdir() if path.name[0] != ".")) is False
    gate.open()
    assert [site.wait(run)["status"] for run in runs] == ["Completed", "Completed"]
    assert gate.begun.read_text() == "begun\n" and len(keys(cache)) == 1


def test_building_holds_no_slots(shelf: Shelf, site: Site) -> None:
    gate = shelf.gated("slow")
    builds = site.run(command="python -c 'import slow'", environment={"name": "mine", "pip": [*shelf.options, "slow"]})
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    # As many ranks as the machine has CPUs: it could not start beside one that holds a slot.
    ranks = len(os.sched_getaffinity(0))
    whole = site.run(command="true", distribution={"type": "pytorch", "process_count_per_instance": ranks})
    assert site.wait(whole)["status"] == "Completed"
    view = site.view(builds)
    assert view["status"] == "Queued" and not view["attempts"]
    assert "environment mine" in view["reason"]
    gate.open()
    assert site.wait(builds)["status"] == "Completed"


def test_what_is_compiled_is_compiled_once_for_the_workspace(shelf: Shelf, cache: Cache, site: Site) -> None:
    """Another host, or one that has removed the environment, takes the wheel from the workspace."""
    for name in ("setuptools", "wheel", "packaging", "cffi", "cloudpickle", "psutil", "pyyaml", "cmake"):
        shelf.wheel(name, "3.0")
    gate = shelf.gated("horovod")
    gate.open()
    job: dict[str, Any] = {
        "command": "python -c 'import horovod; print(horovod.VERSION)'",
        "environment": {"name": "mine", "pip": [*shelf.options, "horovod"]},
    }
    first = site.wait(site.run(**job))
    assert first["status"] == "Completed", first["verdict"]
    assert "compiled by another node" not in site.log(first["id"], BUILD_LOG).decode()
    assert gate.begun.read_text() == "begun\n" and cache.remove(first["environment"]["key"])
    again = site.wait(site.run(**job))
    assert again["status"] == "Completed" and site.log(again["id"]) == b"1.0\n"
    logs = [
        site.log(again["id"], path).decode()
        for path in (file["path"] for file in again["files"])
        if "environment" in path
    ]
    assert any("horovod was compiled by another node" in text for text in logs), logs
    assert gate.begun.read_text() == "begun\n"


def test_one_that_a_job_uses_is_not_removed(shelf: Shelf, cache: Cache, site: Site) -> None:
    shelf.wheel("small", "1.0")
    run = site.run(command="python -c 'import time; time.sleep(600)'", environment={"pip": [*shelf.options, "small"]})
    site.wait(run, "Running")
    (key,) = keys(cache)
    refused = subprocess.run([MUSTER, "env", "rm", key], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and f"{key} is in use" in refused.stderr
    assert Cache(cache.root, 0).make_room().removed == () and keys(cache) == [key]
    site.client.cancel(run, force=True)
    site.wait(run)
    wait_until(lambda: cache.remove(key), 60.0, "that nobody uses it any more")


def test_what_cannot_be_built_gets_a_verdict_with_the_builders_last_lines(
    shelf: Shelf, cache: Cache, site: Site
) -> None:
    shelf.wheel("small", "1.0")
    version = failed(site, {"pip": [*shelf.options, "small==99"], "strict": True})
    assert version["code"] == "environment" and "there is no version small==99" in version["message"]
    assert any("small==99" in line for line in version["lines"])
    package = failed(site, {"name": "mine", "pip": [*shelf.options, "nosuch"]})
    assert "local-0: the environment mine could not be built: there is no package nosuch" in package["message"]
    network = failed(site, {"pip": ["--index-url http://user:secret@127.0.0.1:9/simple", "small"]})
    assert "the package index cannot be reached" in network["message"] and network["lines"]
    assert "secret" not in str(network) and "user:secret" not in str(site.client.runs())
    described = {"dependencies": ["cudatoolkit=11", {"pip": ["small"]}]}
    conda = failed(site, {"conda_file": described, "strict": True})
    assert "the conda packages cudatoolkit=11 need micromamba, mamba or conda" in conda["message"]
    with pytest.raises(JobError, match=r"Python 3\.99 is not here; there is: "):
        site.run(command="true", environment={"python": "3.99", "pip": ["small"], "strict": True})
    assert keys(cache) == [] and cache.sweep() == []


def test_a_cancelled_build_leaves_nothing(shelf: Shelf, cache: Cache, site: Site) -> None:
    gate = shelf.gated("slow")
    run = site.run(command="true", environment={"pip": [*shelf.options, "slow"]})
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    site.client.cancel(run)
    assert site.wait(run)["status"] == "Canceled"
    wait_until(lambda: not builders(shelf), 60.0, "the end of the builder")
    cache.sweep()
    assert [path.name for path in cache.root.iterdir() if path.name[0] != "."] == []


def test_a_build_survives_the_death_of_its_agent_and_of_its_own_process(shelf: Shelf, cache: Cache, site: Site) -> None:
    gate = shelf.gated("slow")
    run = site.run(command="python -c 'import slow'", environment={"pip": [*shelf.options, "slow"]})
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    before = builders(shelf)
    assert before
    site.agent().kill()
    wait_until(lambda: not any(process.is_running() for process in before), 60.0, "the end of the old build")
    again = wait_until(lambda: builders(shelf), 60.0, "the build by the next agent")
    next(process for process in again if "muster.environments.venvs.build" in " ".join(process.cmdline())).kill()
    wait_until(lambda: not any(process.is_running() for process in again), 60.0, "the end of what it started")
    wait_until(lambda: builders(shelf), 60.0, "the second try")
    gate.open()
    assert site.wait(run)["status"] == "Completed"


def builders(shelf: Shelf) -> list[psutil.Process]:
    """Processes that build; the package's own gate is below them."""
    roots = [item for item in psutil.process_iter() if _is_builder(item, shelf)]
    return [*roots, *(child for root in roots for child in _below(root))]


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_builder(process: psutil.Process, shelf: Shelf) -> bool:
    try:
        is_build = "muster.environments.venvs.build" in process.cmdline()
        return is_build and process.environ().get("MUSTER_ENVIRONMENTS_DIR") == str(environments_dir())
    except psutil.Error:
        return False


def test_a_registered_environment_is_found_by_its_name(shelf: Shelf, site: Site) -> None:
    workspace = Workspace.from_config()
    made = Environment("project")
    made.python.conda_dependencies = CondaDependencies.create(pip_packages=[*shelf.options, "small"])
    shelf.wheel("small", "1.0")
    assert made.register(workspace).version == "1"
    assert made.register(workspace).version == "1"
    made.python.conda_dependencies.add_pip_package("small<2")
    assert made.register(workspace).version == "2"
    assert Environment.get(workspace, "project", version="1").python.conda_dependencies.pip_packages[-1] == "small"
    assert set(Environment.list(workspace)) == {"project"}
    view = site.wait(site.run(command="python -c 'import small'", environment="azureml:project@latest"))
    assert view["status"] == "Completed" and view["environment"]["name"] == "project"
    workspace.client.close()


def test_what_a_file_describes_is_registered_from_the_command_line(shelf: Shelf, site: Site) -> None:
    shelf.wheel("small", "1.0")
    requirements = site.folder / "requirements.txt"
    requirements.write_text("\n".join([*shelf.options, "small"]))

    def register(name: str, file: str) -> subprocess.CompletedProcess[str]:
        command = [MUSTER, "env", "register", name, file]
        return subprocess.run(command, cwd=site.folder, capture_output=True, text=True, check=False)

    assert "project  version 1" in register("project", "requirements.txt").stdout
    # The file is kept as it was.
    requirements.write_text("no-such-package")
    view = site.wait(site.run(command="python -c 'import small'", environment="azureml:project"))
    assert view["status"] == "Completed" and view["environment"]["name"] == "project"
    assert "project  version 2" in register("project", "requirements.txt").stdout
    (site.folder / "named.yml").write_text("command: python train.py\nenvironment: pytorch\n")
    assert "named.yml does not describe an environment" in register("project", "named.yml").stderr
    assert "there is no file missing.yml" in register("project", "missing.yml").stderr
    assert "'a b' cannot be the name of an environment" in register("a b", "requirements.txt").stderr


def test_an_interpreter_is_used_as_it_is(shelf: Shelf, site: Site, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    python = tmp_path / "own" / "bin" / "python"
    view = site.wait(site.run(command="python -c 'import sys; print(sys.prefix)'", environment={"python": str(python)}))
    assert site.log(view["id"]).decode().strip() == str(tmp_path / "own")
    assert view["environment"] is None


def test_a_version_that_is_not_there_becomes_the_nearest_and_pip_adds_for_one_attempt(
    shelf: Shelf, cache: Cache, site: Site
) -> None:
    for name, version in (("small", "1.0"), ("small", "2.0"), ("other", "1.0")):
        shelf.wheel(name, version)
    environment = {"pip": [*shelf.options, "small==0.5"]}
    code = "import other, small; print(small.VERSION, other.VERSION)"
    add = f"pip install -q --no-index --find-links {shelf.folder} other"
    run = site.run(command=f"{add} && python -c '{code}'", environment=environment)
    assert site.wait(run)["status"] == "Completed"
    assert site.log(run).decode().splitlines()[-1] == "1.0 1.0"
    # The next job in the same environment does not have what that one added.
    again = site.run(command="python -c 'import small, other'", environment=environment)
    assert site.wait(again)["status"] == "Failed"
    assert len(keys(cache)) == 1


def test_conda_packages_come_from_condas_tool(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    """With a stand-in for micromamba: the real one needs its channels."""
    from muster.environments.venvs.builder import Progress, prepare_build
    from muster.environments.venvs.interpreters import find
    from muster.wire.node.recipes import Recipe

    tool = tmp_path / "bin" / "micromamba"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\necho micromamba "$@"\nwhile [ "$1" != -p ]; do shift; done\n'
        f'{sys.executable} -m venv --without-pip "$2"\nmkdir "$2/conda-meta"\n'
        'touch "$2/conda-meta/ffmpeg-6.1-h1.json"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    shelf.wheel("small", "1.0")
    recipe = Recipe("c", ("small",), "3.11", tuple(shelf.options), channels=("mine",), conda=("ffmpeg=6",))
    printed: list[str] = []
    progress = Progress(printed.append, printed.append)
    lock = prepare_build(recipe, find(None, sys.executable), tmp_path / "made", progress, 2).run()
    assert "conda:ffmpeg=6.1" in lock and "small==1.0" in lock
    assert any("-c mine python=3.11 pip ffmpeg=6" in line for line in printed)
    prepare_build(recipe.locked(lock), find(None, sys.executable), tmp_path / "again", progress, 2).run()
    assert any(line.endswith("-c mine ffmpeg=6.1") for line in printed)


def test_the_command_line_builds_shows_and_removes(shelf: Shelf, cache: Cache, workspace: Path) -> None:
    shelf.wheel("small", "1.0")
    (workspace / "requirements.txt").write_text("\n".join([*shelf.options, "small"]))

    def muster(*words: str) -> str:
        done = subprocess.run([MUSTER, "env", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "built in" in muster("build", "requirements.txt")
    assert "was there already" in muster("build", "requirements.txt")
    (key,) = keys(cache)
    assert "small==1.0" in muster("show", key) and key in muster("list")
    assert yaml.safe_load(muster("export", key))["dependencies"][-1]["pip"][-1].startswith("small==1.0 ")
    assert "pytorch" in muster("list") and "torch==2.13.0" in muster("show", "pytorch")
    assert f"removed {key}" in muster("rm", "--all")
    assert keys(cache) == [] and not processes_of(workspace)


def test_pip_builds_where_there_is_no_uv(
    shelf: Shelf, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster.environments.venvs.builder import Progress, ensure
    from muster.environments.venvs.interpreters import find
    from muster.wire.node.recipes import Recipe

    monkeypatch.setenv("MUSTER_ENVIRONMENT_BUILDER", "pip")
    shelf.wheel("small", "1.0", script="small-says")
    base = find(None, sys.executable)
    recipe = Recipe("p", ("small",), options=tuple(shelf.options))
    built = ensure(recipe, "k", base, cache, Progress())
    assert list(map(plain, built.record.lock)) == ["small==1.0"]
    said = subprocess.run([built.folder / "bin" / "small-says"], capture_output=True, text=True, check=True)
    assert said.stdout == "small 1.0\n"
    wrong = Recipe("p", ("small==99",), options=tuple(shelf.options), strict=True)
    with pytest.raises(Failure, match="no version fits small==99"):
        ensure(wrong, "w", base, cache, Progress())
    assert [built.key for built in cache.entries()] == ["k"]
