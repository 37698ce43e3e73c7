"""Versions with hashes: what counts as the same, what a locked build installs, what is exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from muster.environments.condafile import conda_text
from muster.environments.venvs import archives, locks
from muster.environments.venvs.steps import steps
from muster.wire.node.recipes import Recipe

A, B = "a" * 64, "b" * 64
SIX = f"six==1.17 --hash=sha256:{A}"


def test_a_line_has_a_version_and_hashes() -> None:
    line = f"six==1.17 --hash=sha256:{A} --hash=sha256:{B}"
    assert locks.plain(line) == "six==1.17" and locks.hashes(line) == {A, B}
    address = f"six @ https://x/six-1.17.whl#sha256={A}"
    assert locks.plain(address) == "six @ https://x/six-1.17.whl" and locks.hashes(address) == {A}
    assert locks.hashes("six==1.17") == frozenset()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ([SIX], True),
        (["six==1.17"], True),
        ([f"six==1.17 --hash=sha256:{A} --hash=sha256:{B}"], True),
        ([f"six==1.17 --hash=sha256:{B}"], False),
        (["six==1.16"], False),
        ([SIX, "numpy==2"], False),
        ([], False),
    ],
)
def test_locks_are_the_same_where_versions_are_and_hashes_do_not_contradict(other: list[str], same: bool) -> None:
    assert locks.same([SIX], other) is same and locks.same(other, [SIX]) is same


@pytest.mark.parametrize(
    ("file", "good"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("numpy-2.4-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("x-1-cp38-abi3-musllinux_1_1_x86_64.whl", True),
        ("x-1.tar.gz", True),
        ("numpy-2.4-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("numpy-2.4-cp311-cp311-manylinux_2_28_aarch64.whl", False),
        ("numpy-2.4-cp311-cp311-win_amd64.whl", False),
        ("x-1-py2-none-any.whl", False),
    ],
)
def test_only_archives_for_this_python_and_machine_are_recorded(file: str, good: bool) -> None:
    assert archives.fits(file, (3, 11, 7), "x86_64") is good


def test_hashes_are_added_to_versions_by_name_and_an_address_keeps_its_own() -> None:
    lines = ["Ruamel.yaml==1", "x @ file:///x.whl", "conda:x=1", "y==2"]
    assert locks.with_hashes(lines, {"ruamel-yaml": [B, A], "x": [A]}) == [
        f"Ruamel.yaml==1 --hash=sha256:{A} --hash=sha256:{B}",
        "x @ file:///x.whl",
        "conda:x=1",
        "y==2",
    ]


def test_pips_report_tells_what_was_installed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    known = {"metadata": {"name": "My_Six"}, "download_info": {"archive_info": {"hashes": {"sha256": A}}}}
    older = {"metadata": {"name": "y"}, "download_info": {"archive_info": {"hash": f"sha256={B}"}}}
    weak = {"metadata": {"name": "z"}, "download_info": {"archive_info": {"hash": "md5=0"}}}
    checkout = {"metadata": {"name": "x"}, "download_info": {"vcs_info": {}}}
    report.write_text(json.dumps({"install": [known, older, weak, checkout]}))
    assert archives.of_reports([report, tmp_path / "none"]) == {"my-six": [A], "y": [B], "z": [], "x": []}


def test_a_lock_is_installed_as_it_is() -> None:
    recipe = Recipe("a", ("six>=1", "plain")).locked([SIX, "plain==1", f"dep==3 --hash=sha256:{B}"])
    known, unknown = steps(recipe)
    assert known.requirements == (SIX, f"dep==3 --hash=sha256:{B}") and known.no_deps and known.hashed
    assert unknown.requirements == ("plain==1",) and unknown.no_deps and not unknown.hashed


def test_what_is_compiled_beside_a_framework_comes_after_it_in_a_lock_too() -> None:
    lock = [f"horovod==0.28.1 --hash=sha256:{A}", f"torch==2.13.0 --hash=sha256:{B}", "setuptools==69"]
    first, second, last = steps(Recipe("h", ("torch", "horovod")).locked(lock))
    assert first.requirements == (lock[1],) and second.requirements == ("setuptools==69",)
    assert last.requirements == ("horovod==0.28.1",) and last.from_source and not last.hashed


def test_conda_packages_leave_the_rest_to_be_resolved_within_the_lock() -> None:
    (step,) = steps(Recipe("c", ("six",), conda=("ffmpeg",)).locked([SIX, "conda:ffmpeg=6"]))
    assert step.requirements == ("six",) and not step.no_deps


def test_hashes_are_exported_where_every_package_has_one() -> None:
    whole = yaml.safe_load(conda_text("e", Recipe(), "3.11.7", [SIX], ()))
    assert whole["dependencies"][-1]["pip"] == [SIX]
    partly = yaml.safe_load(conda_text("e", Recipe(), "3.11.7", [SIX, "plain==1"], ()))
    assert partly["dependencies"][-1]["pip"] == ["six==1.17", "plain==1"]
