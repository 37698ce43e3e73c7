"""Names of v1 datasets as names of data assets, which have no spaces."""

from __future__ import annotations

import re
from typing import Any

from muster.sdk.notices import tell


def asset_name(name: str) -> str:
    """The name of a dataset's data asset; if it differs from the dataset's name, a notice says so."""
    kept = re.sub("[^A-Za-z0-9_.-]+", "-", name).strip("-.")
    if kept in ("", name):
        return name
    tell(f"the dataset {name!r} is kept as {kept!r}: names of data assets have letters, digits, '_', '.' and '-'")
    return kept


class ByName(dict[str, Any]):
    """Datasets by the names of their assets; they are also found by the names that scripts gave them."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and super().__contains__(asset_name(name)))

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self[asset_name(name)]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, super().get(asset_name(name), default))
