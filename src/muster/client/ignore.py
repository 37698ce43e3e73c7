"""Which files of a code folder are not sent: `.musterignore`, else `.amlignore`, else `.gitignore` and nested ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from muster.errors import JobError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ALWAYS = frozenset({".git", ".muster", "__pycache__"})
_WHOLE_FOLDER = (".musterignore", ".amlignore")


class IgnoreRules:
    """Ignore rules, collected on the way down a folder."""

    def __init__(self, root: Path, use_files: bool = True) -> None:
        self._use_files = use_files
        self._own = next((name for name in _WHOLE_FOLDER if (root / name).is_file()), None)
        self._specs: dict[str, GitIgnoreSpec] = {}
        self.file_to_write = root / (self._own or ".musterignore")

    def enter(self, folder: Path, prefix: str) -> None:
        """Read the rules of a folder; `prefix` is its path below the root, with a slash at the end."""
        if not self._use_files or (prefix and self._own):
            return
        file = folder / (self._own or ".gitignore")
        if file.is_file():
            # Slow to import, and most jobs have no such file.
            from pathspec import GitIgnoreSpec

            try:
                self._specs[prefix] = GitIgnoreSpec.from_lines(file.read_text().splitlines())
            except (OSError, ValueError) as error:
                raise JobError(f"the ignore file {file} cannot be used: {error}") from error

    def ignores(self, name: str, is_folder: bool) -> bool:
        """Whether a path is ignored; the rules nearest to it decide."""
        if name.rsplit("/", 1)[-1] in ALWAYS:
            return True
        path = name + "/" if is_folder else name
        for prefix in _prefixes(name):
            spec = self._specs.get(prefix)
            decision = spec.check_file(path.removeprefix(prefix)).include if spec else None
            if decision is not None:
                return decision
        return False


def _prefixes(name: str) -> list[str]:
    """`a/b/c` to [`a/b/`, `a/`, ``]."""
    parts = name.split("/")[:-1]
    return ["".join(f"{part}/" for part in parts[:count]) for count in range(len(parts), -1, -1)]
