"""`horovod` for scripts that import it, where the real package is not installed and the job asks for that.

The finder stands last, so an installed Horovod is found before; nothing is imported until it is asked for.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Optional, Sequence

VARIABLE = "HOROVOD_COMPAT"
_MUSTER = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
_FOLDER = os.path.join(_MUSTER, "horovod_compat")  # noqa: PTH118


class HorovodCompat:
    """Finds the package `horovod`; its modules are then found in its folder."""

    @staticmethod
    def find_spec(name: str, path: "Optional[Sequence[str]]" = None, target: object = None) -> "Optional[ModuleSpec]":
        if name != "horovod":
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(_FOLDER, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, file, submodule_search_locations=[_FOLDER])


def install() -> None:
    """Offer it to whatever this process imports later."""
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        sys.meta_path.append(HorovodCompat)
