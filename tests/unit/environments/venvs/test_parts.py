"""The parts of building: the cache, interpreters, the site's configuration, files, failures, exports."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from muster.diagnosis.verdict import judge
from muster.environments import condafile, requirements
from muster.environments.condafile import conda_text
from muster.environments.failures import classify
from muster.environments.files import conda_content, requirement_file, with_contents
from muster.environments.venvs import interpreters, sources
from muster.environments.venvs.cache import BuildRecord, Cache
from muster.environments.venvs.sources import Sources, uv_variables
from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.parts import EnvironmentSpec
from muster.wire.node.recipes import UNNAMED, Recipe
from muster.wire.verdicts import Evidence, NodeEvidence, Refusal


def built(cache: Cache, key: str, size: int = 10, used_at: float = 0.0) -> str:
    folder = cache.folder(key)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    with cache.building(key, lambda: None):
        cache.complete(key, BuildRecord(key, "3.11.7", (), size, 0.0, 0.0, Recipe()))
    os.utime(cache.root / ".locks" / f"{key}.use", (used_at, used_at))
    return key


def test_only_a_marked_environment_with_its_interpreter_is_complete(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / "half" / "bin").mkdir(parents=True)
    (tmp_path / "half" / "bin" / "python").symlink_to(sys.executable)
    assert cache.find("half") is None and cache.hold("half") is None and cache.hold("none") is None
    built(cache, "whole")
    assert cache.find("whole") is not None
    (tmp_path / "whole" / "bin" / "python").unlink()
    (tmp_path / "whole" / "bin" / "python").symlink_to("/nowhere/python")
    assert cache.find("whole") is None
    assert sorted(cache.sweep()) == ["half", "whole"]
    assert not [path for path in tmp_path.iterdir() if path.name[0] != "."]


def test_one_in_use_is_never_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    built(cache, "a")
    held = cache.hold("a")
    assert held is not None and cache.is_used("a")
    assert not cache.remove("a") and Cache(tmp_path, 0).make_room().removed == ()
    held.lock.release()
    assert not cache.is_used("a")
    assert cache.remove("a") and cache.find("a") is None


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number in range(4):
        built(cache, f"e{number}", size=100, used_at=1000.0 + number)
    held = cache.hold("e0")
    assert held is not None
    os.utime(held.lock.descriptor, (1.0, 1.0))
    assert Cache(tmp_path, 250).make_room(keep=("e1",)).removed == ("e2", "e3")
    assert {item.key for item in cache.entries()} == {"e0", "e1"}
    held.lock.release()


def test_a_build_that_goes_on_is_not_swept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    waited: list[bool] = []
    with cache.building("a", lambda: waited.append(True)):
        (tmp_path / "a").mkdir()
        assert cache.sweep() == []
    assert cache.sweep() == ["a"] and not waited


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        ("3.11", [(3, 11, 7)], [(3, 1, 1), (3, 12, 1)]),
        ("3.11.*", [(3, 11, 7)], [(3, 12, 1)]),
        ("3.11.7", [(3, 11, 7)], [(3, 11, 8)]),
        (">=3.9,<3.12", [(3, 9, 0), (3, 11, 7)], [(3, 8, 1), (3, 12, 0)]),
        ("~=3.10", [(3, 11, 0)], [(3, 9, 0), (4, 0, 0)]),
        ("!=3.11", [(3, 10, 0)], [(3, 11, 2)]),
        ("<=3.11", [(3, 11, 9)], [(3, 12, 0)]),
        (">3.11", [(3, 12, 0)], [(3, 11, 9)]),
        ("", [(3, 8, 1)], []),
    ],
)
def test_versions_of_python(wanted: str, good: list[tuple[int, ...]], bad: list[tuple[int, ...]]) -> None:
    assert all(interpreters.fits(version, wanted) for version in good)
    assert not any(interpreters.fits(version, wanted) for version in bad)


def test_the_jobs_own_python_is_taken_where_it_fits() -> None:
    minor = ".".join(map(str, sys.version_info[:2]))
    assert interpreters.find(None, sys.executable).path == sys.executable
    assert interpreters.find(minor, sys.executable).path == sys.executable


def test_a_python_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(interpreters.NoInterpreter, match=r"Python 3\.99 is not on this node; there is: .*3\.\d+"):
        interpreters.find("3.99", sys.executable)
    with pytest.raises(interpreters.NoInterpreter, match="no Python interpreter /nowhere/python"):
        interpreters.find("/nowhere/python", sys.executable)
    with pytest.raises(interpreters.NoInterpreter, match="does not start"):
        interpreters.find(None, "/nowhere/python")


def test_the_configuration_of_pip_is_read_and_said_in_uvs_words(tmp_path: Path) -> None:
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://u:p@mirror/simple\nextra_index_url =\n  https://a/simple\n  https://b/simple\n"
        "[install]\nfind-links = /wheels\n"
    )
    environment = {"HOME": str(tmp_path), "PIP_TRUSTED_HOST": "mirror", "PIP_FIND_LINKS": "/own /other"}
    found = sources.read(environment)
    assert found.index_url == "https://u:p@mirror/simple" and found.names_indexes
    assert found.extra_index_urls == ("https://a/simple", "https://b/simple")
    assert found.find_links == ("/own", "/other") and found.trusted_hosts == ("mirror",)
    said = uv_variables(found, {"UV_INSECURE_HOST": "mine"})
    assert said["UV_DEFAULT_INDEX"] == "https://u:p@mirror/simple" and said["UV_FIND_LINKS"] == "/own,/other"
    assert said["UV_INDEX"] == "https://a/simple https://b/simple" and "UV_INSECURE_HOST" not in said
    assert sources.read({"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}) == Sources()


def test_a_conda_files_lines_are_read_with_what_they_include(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("six==1.16  \\\n  --hash=sha256:0\n# comment\n-r deep/last.txt\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "last.txt").write_text("./small-1.0-py3-none-any.whl\n")
    (tmp_path / "deep" / "small-1.0-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "conda.yml").write_text("dependencies:\n- python=3.11\n- pip:\n  - -r more.txt\n")
    spec = make_spec({"command": "x", "environment": {"conda_file": "conda.yml"}})
    read = with_contents(spec, tmp_path).environment
    assert isinstance(read, EnvironmentSpec) and isinstance(read.conda_file, dict)
    six, wheel = read.conda_file["dependencies"][1]["pip"]
    assert six.startswith("six==1.16") and "--hash" in six
    place = (tmp_path / "deep" / "small-1.0-py3-none-any.whl").as_uri()
    assert wheel.startswith(f"small @ {place}#sha256=")
    assert requirement_file(tmp_path / "deep" / "last.txt") == [wheel]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dependencies:\n  - six\n   bad: [\n", r"conda\.yml:3: the conda file is not valid YAML"),
        ("name: x\ndependencys: [six]\n", r"conda\.yml:2: dependencys: unknown key; did you mean 'dependencies'\?"),
        ("dependencies:\n- six\n- 3\n", r"conda\.yml:3: dependencies\.1: 3 is not a package"),
        ("- six\n", r"conda\.yml:1: a list is given; a conda file is a mapping"),
    ],
)
def test_a_wrong_conda_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "conda.yml").write_text(text)
    with pytest.raises(JobError, match=message):
        conda_content(tmp_path / "conda.yml")


def test_files_that_are_missing_or_include_themselves_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-r r.txt\n")
    with pytest.raises(JobError, match="includes itself"):
        requirement_file(tmp_path / "r.txt")
    with pytest.raises(JobError, match="cannot be read"):
        requirement_file(tmp_path / "none.txt")
    (tmp_path / "w.txt").write_text("none-1.0-py3-none-any.whl\n")
    with pytest.raises(JobError, match=r"the wheel none-1.* cannot be read"):
        requirement_file(tmp_path / "w.txt")


@pytest.mark.parametrize(
    ("printed", "code", "message"),
    [
        (
            "Because there is no version of six==99 and you require six==99",
            "environment",
            "there is no version six==99",
        ),
        ("Because nosuch was not found in the package registry and", "environment", "there is no package nosuch"),
        (
            "ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)\n"
            "ERROR: No matching distribution found for nosuch",
            "environment",
            "there is no package nosuch",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement six==99 (from versions: 1.0, 1.1)\n"
            "ERROR: No matching distribution found for six==99",
            "environment",
            "no version fits six==99",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: refused'\n"
            "ERROR: Could not find a version that satisfies the requirement six (from versions: none)",
            "environment",
            "the package index cannot be reached",
        ),
        ("cause: dns error", "environment", "the package index cannot be reached"),
        ("HTTP error 403 while getting https://x", "environment", "the package index refused the credentials"),
        ("OSError: [Errno 28] No space left on device", "disk_full", "the disk is full"),
        ("ERROR: ResolutionImpossible: for help visit", "environment", "the requirements contradict each other"),
        ("error: Failed to build `x==1`", "environment", "a package could not be compiled"),
        ("anything else", "environment", "uv ended with code 2"),
    ],
)
def test_what_the_builder_printed_becomes_a_cause(printed: str, code: str, message: str) -> None:
    failure = classify("uv", 2, printed.splitlines())
    assert (failure.code, failure.message) == (code, message)
    assert failure.next and failure.lines[-1] == printed.splitlines()[-1]


def test_the_builders_last_lines_are_in_the_verdict() -> None:
    failure = classify("uv", 1, ["Because nosuch was not found in the package registry"])
    refusal = Refusal(code=failure.code, message=failure.message, next=failure.next, lines=failure.lines)
    verdict = judge(Evidence(nodes=[NodeEvidence(0, "n", refusal=refusal)], stop_reason="refused"))
    assert verdict.code == "environment" and verdict.message == "n: there is no package nosuch"
    assert verdict.lines == ("Because nosuch was not found in the package registry",)
    assert verdict.next.startswith("Correct its name")


def test_a_killed_builder_says_so() -> None:
    assert classify("uv", -9, ["Resolved 3 packages"]).message == "uv was killed by SIGKILL"


def test_versions_are_exported_as_a_conda_file_that_is_one() -> None:
    lock = ["conda:python=3.11.7", "conda:ffmpeg=6.1", "six==1.16.0", "small @ file:///w.whl"]
    recipe = Recipe(options=("--pre",), channels=("conda-forge",), variables={"A": "1"})
    read = condafile.read(yaml.safe_load(conda_text("mine", recipe, "3.11.7", lock, ())))
    assert read.python == "3.11" and read.conda == ("ffmpeg=6.1",)
    assert read.pip == ("--pre", "six==1.16.0", "small @ file:///w.whl")
    assert read.channels == ("conda-forge",) and read.variables == {"A": "1"}


@pytest.mark.parametrize(
    "line",
    [
        "uvicorn[standard]>=0.30",
        "ray[default, tune]~=2.60",
        'pywin32; sys_platform == "win32"',
        "numpy (>=1.2)",
        "foo~=1.0,!=1.3.*",
        "torch==2.13.0+cpu",
        "foo==1.*",
        "pkg @ git+https://host/x/y@main",
        "git+https://host/x/y.git@v1#egg=y",
        "https://host/x-1.0-py3-none-any.whl",
        "six==1.16.0 --hash=sha256:0123",
        "/wheels/x-1.0-py3-none-any.whl",
    ],
)
def test_every_form_of_a_requirement_is_understood(line: str) -> None:
    assert requirements.read([line]).requirements == (line,)


def test_a_record_of_an_older_version_is_read_and_one_that_makes_no_sense_is_built_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = built(cache, "a")
    mark = tmp_path / "a" / "muster-environment.json"
    older = {"label": "a", "python": "3.11.7", "lock": ["six==1"], "size": 7, "built_at": 1.0, "built_s": 0.5}
    mark.write_text(json.dumps({**older, "recipe": {"label": "a", "requirements": ["six"], "options": []}}))
    found = cache.find(key)
    assert found is not None and found.record.lock == ("six==1",) and found.record.recipe == Recipe("a", ("six",))
    mark.write_text('{"size": 7}')
    assert cache.find(key) is None and cache.entries() == [] and cache.sweep() == [key]


def test_how_long_it_took_is_known_after_it_was_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for key, label, took_s in (("a", "mine", 84.0), ("b", Recipe().label, 5.0), ("c", "conda", 7.0)):
        with cache.building(key, lambda: None):
            (cache.folder(key) / "bin").mkdir(parents=True)
            (cache.folder(key) / "bin" / "python").touch()
            cache.complete(key, BuildRecord(label, "3.11.7", (), 1, 0.0, took_s, Recipe(label)))
    assert cache.took_s("other", "mine") == 84.0
    # Everything without a name is called the same, and says nothing of the next.
    assert cache.took_s("other", Recipe().label) is None and cache.took_s("b", Recipe().label) == 5.0
    assert cache.took_s("other", "conda") is None and Recipe().label in UNNAMED
    assert cache.remove("a")
    assert cache.took_s("a", "mine") == 84.0 and cache.took_s("other", "mine") is None
