"""Named storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire


@wire
class NewDatastore:
    """The body of `POST datastores`; the credential is stored and never returned."""

    name: str
    kind: str
    options: Mapping[str, Json] = field(default_factory=dict)
    """The options of the kind; for `fsspec` those of the filesystem."""
    credential: Mapping[str, Json] = field(default_factory=dict, repr=False)
    description: str | None = None
    create: bool = False
    """Make the container, share or folder where it is missing."""


@wire
class DatastoreView:
    """A datastore without its credential."""

    name: str
    kind: str
    options: Mapping[str, Json]
    credential: str
    """Which kind of credential it has; `none`, or `unreadable` where the workspace's key does not open it."""
    location: str
    description: str | None
    created_at: float | None
    """None: the workspace's own."""
    default: bool
    problem: str | None = field(default=None, metadata=OMIT)
    owner: str | None = field(default=None, metadata=OMIT)
    """Who may change it; None: only administrators."""
    notice: str | None = field(default=None, metadata=OMIT)
    """What its owner should know when it is created."""


@wire
class DatastoreTest:
    """The body of `POST datastores/NAME/test`."""

    write: bool = True


@wire
class DatastoreTestResult:
    """What works, in words."""

    works: tuple[str, ...]
