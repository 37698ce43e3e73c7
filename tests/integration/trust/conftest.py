"""Real accounts of the machine for two people, and a workspace in which ranks are kept apart."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.integration.server.conftest import Site, site

__all__ = ["Site", "accounts", "site"]


@pytest.fixture(scope="session")
def accounts() -> Iterator[tuple[str, str]]:
    """Two accounts that were not there before."""
    if os.getuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("needs root and bubblewrap")
    made = tuple(f"mu-{name}-{secrets.token_hex(3)}" for name in ("ada", "bob"))
    for name in made:
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)
    yield made[0], made[1]
    for name in made:
        subprocess.run(["userdel", name], check=True)
