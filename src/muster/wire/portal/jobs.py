"""Job files as text, for clients that do not read them themselves."""

from __future__ import annotations

from collections.abc import Mapping

from muster.wire.codec import Json
from muster.wire.message import wire


@wire
class JobText:
    """The body of `POST jobs/read`."""

    text: str
    source: str = "job.yml"
    """What errors call it."""


@wire
class JobRead:
    """A job file that was read and checked."""

    spec: Mapping[str, Json]
    """The job document, for `POST plan` and `POST runs`."""
    notices: tuple[str, ...]
    code: str | None
    """The folder of code that it names, which only a client that has it can send."""
