"""Checks that a built site loads nothing from elsewhere: `python -m tools.offline_site FOLDER`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LOADED = re.compile(
    r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel\s*=\s*[\"']?(?:stylesheet|icon|shortcut|preload))[^>]*\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|(?:@import\s+(?:url\()?|url\()[\"']?((?:https?:)?//[^\"')\s]+)",
    re.IGNORECASE,
)


def loads(folder: Path) -> list[str]:
    """`page: address` of everything that a page or a style would fetch from another host."""
    found = []
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        for match in _LOADED.finditer(path.read_text(errors="replace")):
            found.append(f"{path.relative_to(folder)}: {next(group for group in match.groups() if group)}")
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    pages = len(list(folder.rglob("*.html")))
    found = loads(folder)
    if found or not pages:
        sys.exit("\n".join(found) or f"there are no pages in {folder}")
    print(f"{pages} pages in {folder}, which load nothing from elsewhere")


if __name__ == "__main__":
    main()
