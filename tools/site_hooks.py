"""Hooks of mkdocs: files of the repository that a document links to become part of the site, as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\]\(\.\./(?P<path>[^)#\s]+)(?:#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add every file outside of the documents that one of them links to."""
    from mkdocs.structure.files import File

    wanted = {match["path"] for page in files.documentation_pages() for match in _OUTSIDE.finditer(page.content_string)}
    for path in sorted(wanted):
        if (ROOT / path).is_file():
            files.append(File.generated(config, f"files/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead such links to the copies; a folder is named, and leads nowhere."""
    return _OUTSIDE.sub(lambda match: _target(match["path"]), markdown)


def _target(path: str) -> str:
    return f"](files/{path}.txt)" if (ROOT / path).is_file() else "](index.md)"
