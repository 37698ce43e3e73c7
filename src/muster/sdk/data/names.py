"""What v1 scripts call datasets, as names of data assets: those have no spaces."""

from __future__ import annotations

import re
from typing import Any

from muster.sdk.notices import tell


def asset_name(name: str) -> str:
    """The name of the data asset that a dataset is kept as; another one than its own with a notice."""
    kept = re.sub("[^A-Za-z0-9_.-]+", "-", name).strip("-.")
    if kept in ("", name):
        return name
    tell(f"the dataset {name!r} is kept as {kept!r}: names of data assets have letters, digits, '_', '.' and '-'")
    return kept


class ByName(dict[str, Any]):
    """Datasets under the names of their assets, which are found under the names that scripts gave them, too."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and super().__contains__(asset_name(name)))

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self[asset_name(name)]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, super().get(asset_name(name), default))
