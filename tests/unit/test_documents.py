"""The documents are true: job files parse, links lead somewhere, every verdict is explained."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.job.jobfile import load_job_file, parse_job
from muster.wire.verdicts import CODES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
EXPECTED = {
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/clusters.md",
    "docs/coming-from-azureml.md",
    "docs/coming-from-batch-ai.md",
    "docs/commands.md",
    "docs/environments.md",
    "docs/index.md",
    "docs/job-file.md",
    "docs/launch-contract.md",
    "docs/launchers.md",
    "docs/lifecycle.md",
    "docs/quickstart.md",
    "docs/security.md",
    "docs/storage.md",
    "docs/troubleshooting.md",
}
FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: Path
    line: int
    language: str
    body: str

    @property
    def where(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(document, line, match["language"], match["body"]))
    return [block for block in found if block.language == language]


def job_files() -> list[Block]:
    """YAML blocks that are whole job files; a fragment shows a part of one and has no command."""
    return [block for block in blocks("yaml") if re.search(r"^command:", block.body, re.M)]


def fragments() -> list[Block]:
    return [block for block in blocks("yaml") if block not in job_files()]


def named(found: list[Block]) -> list[object]:
    return [pytest.param(block, id=block.where) for block in found]


def prose(document: Path) -> str:
    """The text without code, in which a bracket is no link."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", document.read_text()))


def anchors(document: Path) -> set[str]:
    """The anchors that headings make, the way GitHub makes them."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", document.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


def test_every_document_is_there() -> None:
    assert {str(document.relative_to(ROOT)) for document in DOCUMENTS} >= EXPECTED


@pytest.mark.parametrize("block", named(job_files()))
def test_a_job_file_in_a_document_is_valid(block: Block, tmp_path: Path) -> None:
    loaded = parse_job(block.body, source=block.where, base_dir=tmp_path)
    assert loaded.spec.command


def test_parts_of_job_files_in_documents_are_valid(tmp_path: Path) -> None:
    for block in fragments():
        loaded = parse_job(f"command: python train.py\n{block.body}", source=block.where, base_dir=tmp_path)
        assert loaded.spec.command == "python train.py"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("job*.yml")), ids=lambda path: path.parent.name)
def test_the_job_file_of_an_example_is_valid(path: Path) -> None:
    loaded = load_job_file(path)
    assert loaded.spec.command
    assert not loaded.notices


@pytest.mark.parametrize("block", named(blocks("python")))
def test_python_in_a_document_compiles_and_imports_only_what_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.body)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "muster":
            module = __import__(node.module, fromlist=["_"])
            assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for target in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def test_every_verdict_is_explained() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    explained = re.findall(r"^### (\w+)$", text, re.M)
    assert len(explained) == len(set(explained))
    assert set(explained) == CODES.keys() - {"completed"}


def test_the_readme_begins_with_one_sentence() -> None:
    first_sentence = (ROOT / "README.md").read_text().split("\n\n")[1].replace("\n", " ")
    assert first_sentence.endswith(".") and first_sentence.count(". ") == 0


def test_the_annotated_tree_names_every_package() -> None:
    readme = (ROOT / "README.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src" / "muster").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^  (\w+)/", readme, re.M))
