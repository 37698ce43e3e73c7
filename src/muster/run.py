"""`Run`, under its v1 module name: inside a rank the in-run API, elsewhere a submitted run. Valid in Python 3.8."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or not os.environ.get("MUSTER_RUN_ID"):
    from muster.sdk.run import Run
else:
    from muster.runtime.run import Run

__all__ = ["Run"]
