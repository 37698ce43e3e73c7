"""Packages on top of an image: how they come there, and what refuses them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from muster.environments.failures import Failure
from muster.environments.images import installing, packages
from muster.environments.images.command import DOCKER, PODMAN, Engine
from muster.environments.images.packages import Lent, Looked
from muster.environments.images.probe import answer_in
from muster.environments.venvs.sources import Sources
from muster.wire.node.recipes import Recipe

PYTHON = (3, 11, 2)
LENT = Lent("/node/pip", "24.0", ">=3.8")
SIX = Recipe("p", ("six",))


NOTHING = Looked()


def plan(recipe: Recipe = SIX, found: Looked = NOTHING, lent: Lent | None = LENT) -> packages.Work:
    return packages.plan(recipe, "img:1", PYTHON, found, lent, gpus=False)


def test_the_look_into_an_image_is_read_back() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", packages.LOOK], capture_output=True, text=True, check=True)
    found = answer_in("a banner\n" + done.stdout, Looked)
    assert found is not None and found.lock is None
    assert answer_in("something else", Looked) is None


def test_the_name_of_the_image_is_that_of_its_content() -> None:
    name = packages.tag(SIX, "sha256:abc", PYTHON)
    assert name.startswith("muster-packages:py3.11-")
    assert packages.tag(Recipe("other", ("six",), python="3.11"), "abc", PYTHON) == name
    others = [
        packages.tag(Recipe("p", ("six>1",)), "abc", PYTHON),
        packages.tag(SIX, "abd", PYTHON),
        packages.tag(SIX.locked(["six==1"]), "abc", PYTHON),
    ]
    assert len({name, *others}) == 4


def test_the_nodes_pip_is_lent_where_it_runs_in_the_image() -> None:
    assert plan().lent
    assert not plan(found=Looked(pip="23.1"), lent=None).lent
    assert not plan(found=Looked(pip="23.1"), lent=Lent("/pip", "26.0", ">=3.12")).lent
    assert not plan(found=Looked(pip="23.1"), lent=Lent("/pip", "20.3", "")).lent


@pytest.mark.parametrize("has", ["", "21.3.1"])
def test_an_image_without_a_pip_that_will_do_is_refused(has: str) -> None:
    with pytest.raises(Failure, match=r"23\.0 or newer is needed") as caught:
        plan(found=Looked(pip=has), lent=None)
    assert ("pip 21.3.1" if has else "no pip") in caught.value.message and caught.value.next


def test_conda_makes_an_environment_of_its_own_where_the_image_has_its_tool() -> None:
    recipe = Recipe("c", ("six",), "3.9", channels=("mine",), conda=("ffmpeg=6",))
    work = plan(recipe, Looked(tools=["micromamba"]))
    assert work.conda == ["micromamba", "--override-channels", "-c", "mine", "python=3.9", "pip", "ffmpeg=6"]
    assert not work.lent, "what conda makes has its own"
    again = plan(recipe.locked(["conda:ffmpeg=6.1", "conda:python=3.9.1", "six==1"]), Looked(tools=["micromamba"]))
    assert again.conda[-2:] == ["ffmpeg=6.1", "python=3.9.1"]
    assert [step.requirements for step in again.steps] == [("six==1",)]
    old = plan(Recipe("c", ("six",), ">=3.8,<3.10"), Looked(tools=["conda"]))
    assert old.conda[-2:] == ["python>=3.8,<3.10", "pip"]
    assert plan(Recipe("c", ("six",), "3.11"), Looked(tools=["conda"])).conda == []


def test_what_only_conda_has_is_refused_by_name_without_its_tool() -> None:
    with pytest.raises(Failure, match=r"the conda packages ffmpeg=6, x need micromamba.*the image img:1 has none"):
        plan(Recipe("c", conda=("ffmpeg=6", "x")))
    with pytest.raises(Failure, match=r"the image img:1 has Python 3.11.2, and its packages ask for Python 3.9"):
        plan(Recipe("c", ("six",), "3.9"))


def test_passwords_are_in_files_and_never_on_the_command_line() -> None:
    recipe = Recipe("p", ("six",), options=("--extra-index-url https://u:hidden@x/simple",))
    sources = Sources(index_url="https://u:hidden@y/simple", find_links=("/opt/wheels",), cert="/etc/ca.pem")
    files = packages.files(recipe, plan(recipe), sources, {"https_proxy": "http://p", "OTHER": "x"})
    request = json.loads(files["request.json"])
    assert request["variables"]["PIP_INDEX_URL"] == "https://u:hidden@y/simple"
    assert request["variables"]["https_proxy"] == "http://p" and "OTHER" not in request["variables"]
    assert files["requirements-0.txt"] == "--extra-index-url https://u:hidden@x/simple\nsix\n"
    mounts = packages.mounted("/a/build", "/a/cache", "/node/pip", packages.local_paths(recipe, sources))
    engine = Engine(PODMAN, "podman")
    command = packages.install_command(engine, "abc", "name", ("mark", "run", 1), mounts, ["--runtime", "runc"])
    assert "hidden" not in " ".join(command)
    assert "/a/build:/opt/muster/build:rw" in command and "/node/pip:/opt/muster/build/lent/pip:ro" in command
    assert "/opt/wheels:/opt/wheels:ro" in command and "/etc/ca.pem:/etc/ca.pem:ro" in command
    assert command[-3:] == ["abc", "-I", "/opt/muster/build/installing.py"] and "--interactive" in command


def test_local_folders_that_packages_come_from_are_seen_inside() -> None:
    recipe = Recipe(
        "p",
        ("x @ file:///srv/wheels/x%20y.whl#sha256=" + "a" * 64, "six"),
        options=("--find-links /shelf", "--no-index", "--extra-index-url file:///data/pypi/simple/"),
    )
    sources = Sources(index_url="https://host/a/b", extra_index_urls=("file:///opt/simple",))
    found = packages.local_paths(recipe, sources)
    assert found == ["/data/pypi", "/opt/simple", "/shelf", "/srv/wheels/x y.whl"]


def test_a_committed_image_is_labelled_as_musters_own_and_has_condas_programs_first() -> None:
    work = plan(Recipe("c", conda=("x",)), Looked(tools=["conda"]))
    command = packages.commit_command(Engine(DOCKER, "docker"), "name", "ref", work, "/usr/bin", "muster.built=0")
    assert command[:2] == ["docker", "commit"] and command[-2:] == ["name", "ref"]
    assert "LABEL muster.built=0" in command and 'LABEL muster.mark=""' in command
    assert f"ENV PATH={installing.PREFIX}/bin:/usr/bin" in command


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({"url": "https://x/six.whl", "archive_info": {"hashes": {"sha256": "aa"}}}, "six==1 --hash=sha256:aa"),
        ({"url": "https://x/six.whl", "archive_info": {"hash": "sha256=bb"}}, "six==1 --hash=sha256:bb"),
        ({"url": "https://x/six.whl", "archive_info": {"hash": "md5=bb"}}, "six==1"),
        ({"url": "https://x/six.whl", "archive_info": {}}, "six==1"),
        (
            {"url": "https://x/g.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "six @ git+https://x/g.git@c0ffee",
        ),
    ],
)
def test_what_pip_installed_is_written_down_exactly(told: dict[str, Any], line: str) -> None:
    item = {"metadata": {"name": "six", "version": "1"}, "download_info": told}
    assert installing._line(item) == line


def test_what_runs_in_an_image_is_written_for_python_3_8() -> None:
    options = ["--no-tips", "--violations", "-t=3.8-"]
    command = [sys.executable, "-c", "from vermin import main; main()", *options, installing.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_direct_archive_is_written_down_with_its_address() -> None:
    told = {"url": "file:///w/six.whl", "archive_info": {"hashes": {"sha256": "aa"}}}
    item = {"metadata": {"name": "six", "version": "1"}, "download_info": told, "is_direct": True}
    assert installing._line(item) == "six @ file:///w/six.whl#sha256=aa"
