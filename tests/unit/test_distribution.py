"""On the package index `muster` is somebody else's project: hints, documents and generated commands name ours."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SPOKEN = ("src", "docs", "examples", "bench", "tools")
FOREIGN = re.compile(
    r"(?<![\w./-])muster(?:\[[a-z{]|\s?[=~!<>]=\s?[\d{'\"])"
    r"|\b(?:pip|pip3|pipx|uv|conda|mamba)\b[^\n|;&]*?\b(?:install|add)\b[^\n|;&`]*?(?<![\w./-])['\"]?muster(?![\w./-])"
)
EXTRA = re.compile(r"muster-ml\[([a-z,]+)\]")


def texts() -> list[Path]:
    found = [path for folder in SPOKEN for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [*found, *ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("pip install 'muster[ray]==1.0'", True),
        ("pip install --upgrade muster", True),
        ("pip install muster`", True),
        ("uv pip install 'muster>=2'", True),
        ("install muster=={version} there", True),
        ("Install muster[mpi] into", True),
        ("pip install 'muster-ml[ray]==1.0'", False),
        ("pip install -e . && muster run", False),
        ("python -m muster.server", False),
        ("beside Muster (`pip install 'muster-ml[uv]'`)", False),
    ],
)
def test_what_counts_as_foreign(text: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) is foreign


def test_nothing_names_a_distribution_that_is_not_ours() -> None:
    assert PROJECT["name"] == "muster-ml"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert not found, "\n".join(found)


def test_every_extra_that_is_named_exists() -> None:
    named = {
        extra
        for path in texts()
        for found in EXTRA.findall(path.read_text(errors="replace"))
        for extra in found.split(",")
    }
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_hints_fit_how_muster_was_installed() -> None:
    """From a clone or a wheel, `pip install 'muster-ml[x]'` finds nothing: `install_command` knows what does."""
    literal = re.compile(r"pip install '?muster-ml\[")
    # A cloud's machines have no clone: they get the release.
    allowed = {ROOT / "src/muster/engines/ray/machines/launcher.py"}
    found = {path for path in (ROOT / "src/muster").rglob("*.py") if literal.search(path.read_text())}
    assert found <= allowed


def test_the_demo_installs_what_its_example_imports() -> None:
    installed = re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert installed is not None
    packages = {re.split("[=<>]", word)[0] for word in installed[1].split()}
    sources = [path.read_text() for path in (ROOT / "examples/resnet50").glob("*.py")]
    imported = {
        name.split(".")[0]
        for source in sources
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    }
    known = {"torch": "torch", "numpy": "numpy", "PIL": "pillow"}
    assert {known[name] for name in imported & known.keys()} <= packages
    assert "PIL" in imported
