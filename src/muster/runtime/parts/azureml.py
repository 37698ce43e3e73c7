"""`azureml.core` for scripts that import it: Muster's run, where the real package is not installed.

The finder stands last, so each module of an installed `azureml` is found before; nothing is
imported until it is asked for.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Optional, Sequence


class StandIns:
    """Finds the modules below `azureml` that nobody else has."""

    @staticmethod
    def find_spec(name: str, path: "Optional[Sequence[str]]" = None, target: object = None) -> "Optional[ModuleSpec]":
        if name != "azureml" and not name.startswith("azureml."):
            return None
        found: "Optional[ModuleSpec]" = import_module("muster.runtime.azureml_stand_ins").find(name)
        return found


def install() -> None:
    """Offer the stand-ins to whatever this process imports later."""
    sys.meta_path.append(StandIns)
