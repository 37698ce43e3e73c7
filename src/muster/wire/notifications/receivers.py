"""Receivers by name, watches of one run, and the outcome of deliveries."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import check_name, check_range, wire
from muster.wire.notifications.events import CHOICES, LEAST_QUIET_S, MOST_QUIET_S, QUIET_S, USUAL, Happening, unknown

Runs = Literal["mine", "all", "named"]
"""The runs that a receiver is notified about: its owner's, everybody's, or those whose job names it."""
Kind = Literal["webhook", "slack", "teams", "ntfy", "mail"]

_ADDRESS_LENGTH = 2000


def _check(when: tuple[str, ...], quiet_s: float) -> None:
    if not when:
        raise ValueError(f"when is empty: use some of {', '.join(CHOICES)}")
    if (word := unknown(when)) is not None:
        raise ValueError(f"when: {word[:80]!r} is not an event: use some of {', '.join(CHOICES)}")
    check_range("quiet_s", quiet_s, LEAST_QUIET_S, MOST_QUIET_S)


@wire
class NewReceiver:
    """The body of `POST notifications`."""

    name: str
    address: str = field(repr=False)
    """`https://…`, `slack+https://…`, `teams+https://…`, `ntfy+https://…` or `mailto:…`."""
    when: tuple[str, ...] = USUAL
    runs: Runs = "mine"
    quiet_s: float = QUIET_S

    def __post_init__(self) -> None:
        check_name(self.name)
        check_range("the length of address", len(self.address), 1, _ADDRESS_LENGTH)
        _check(self.when, self.quiet_s)


@wire
class NewWatch:
    """The body of `POST runs/RUN/notifications`."""

    to: str = field(repr=False)
    """The name of a receiver, or an address."""
    when: tuple[str, ...] = USUAL
    quiet_s: float = QUIET_S

    def __post_init__(self) -> None:
        check_range("the length of to", len(self.to), 1, _ADDRESS_LENGTH)
        _check(self.when, self.quiet_s)


@wire
class DeliveryView:
    """One notification on its way to one receiver."""

    id: str
    event: Happening
    run: str | None
    at: float
    tries: int
    taken_at: float | None = None
    given_up: bool = False
    due_at: float | None = None
    """When it is tried next; None: it was delivered or given up."""
    answer: str = ""
    """The outcome of the last try."""


@wire
class ReceiverView:
    """Where notifications go. Secret addresses are shown without their secret part."""

    name: str | None
    """None: an address that one run names."""
    run: str | None
    """The one run that it is notified about; None: a receiver of the workspace."""
    kind: Kind
    address: str
    when: tuple[str, ...]
    runs: Runs
    quiet_s: float
    owner: str | None
    created_at: float
    waiting: int = 0
    """How many notifications were not delivered yet."""
    last: DeliveryView | None = field(default=None, metadata=OMIT)
    """The newest."""


@wire
class AddedReceiver(ReceiverView):
    """A receiver that was just created, with the secret that signs its messages: shown only now."""

    secret: str | None = field(default=None, metadata=OMIT, repr=False)


@wire
class TestedReceiver:
    """A receiver's answer to a test."""

    taken: bool
    answer: str
    seconds: float
