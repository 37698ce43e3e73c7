"""Job files as text, for clients that do not parse them themselves."""

from __future__ import annotations

from collections.abc import Mapping

from muster.wire.codec import Json
from muster.wire.message import wire


@wire
class JobText:
    """The body of `POST jobs/read`."""

    text: str
    source: str = "job.yml"
    """Its name in errors."""


@wire
class JobRead:
    """A job file that was parsed and validated."""

    spec: Mapping[str, Json]
    """The job document, for `POST plan` and `POST runs`."""
    notices: tuple[str, ...]
    code: str | None
    """The code folder that it names, which only a client that has it can upload."""
