"""How hypothesis looks for examples."""

from __future__ import annotations

from hypothesis import settings
from tests.conftest import IN_CI

# How long an example takes says nothing on a busy machine. In CI they are the same each time: one that is new there
# would speak against a change that has nothing to do with it.
settings.register_profile("muster", deadline=None, derandomize=IN_CI)
settings.load_profile("muster")
