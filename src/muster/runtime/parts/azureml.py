"""`azureml.core` for scripts that import it: Muster's run, where the real package is not installed.

The finder stands last, so each module of an installed `azureml` is found before; nothing is
imported until it is asked for.
"""

import os
import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Optional, Sequence

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "stand_ins")  # noqa: PTH118, PTH120


class StandIns:
    """Finds the modules below `azureml` that nobody else has."""

    @staticmethod
    def find_spec(name: str, path: "Optional[Sequence[str]]" = None, target: object = None) -> "Optional[ModuleSpec]":
        if name != "azureml" and not name.startswith("azureml."):
            return None
        folder = os.path.join(_FOLDER, *name.split(".")[:-1])  # noqa: PTH118
        return PathFinder.find_spec(name, [folder])


def install() -> None:
    """Offer the stand-ins to whatever this process imports later."""
    sys.meta_path.append(StandIns)
