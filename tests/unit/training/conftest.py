"""The tests of muster.training and of the example; without PyTorch they are left out."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

# In CI their absence is an error that the imports raise.
if importlib.util.find_spec("torch") is None and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*.py"]

# The examples' modules import each other by name.
sys.path += [str(EXAMPLES / name) for name in ("resnet50", "tasks", "parallel")]


@pytest.fixture(scope="session", autouse=True)
def known_cache() -> Iterator[None]:
    """PyTorch sets this variable when it is first needed, which would look like a test's doing."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="mt-inductor-")
    yield
    shutil.rmtree(os.environ.pop("TORCHINDUCTOR_CACHE_DIR"), ignore_errors=True)
