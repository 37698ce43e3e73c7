"""`azureml.core` for scripts that import it: Muster's run, if the real package is not installed.

The finder is the last one, so the modules of an installed `azureml` are found first; nothing is imported before it is
needed.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Optional, Sequence


class StandIns:
    """Finds the modules below `azureml` that are not installed."""

    @staticmethod
    def find_spec(name: str, path: "Optional[Sequence[str]]" = None, target: object = None) -> "Optional[ModuleSpec]":
        if name != "azureml" and not name.startswith("azureml."):
            return None
        found: "Optional[ModuleSpec]" = import_module("muster.runtime.azureml_stand_ins").find(name)
        return found


def install() -> None:
    """Offer the stand-ins to later imports in this process."""
    sys.meta_path.append(StandIns)
