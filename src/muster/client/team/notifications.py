"""Notifications: receivers, and watches of one run."""

from __future__ import annotations

from collections.abc import Sequence

from muster.client.calls import Group, checking, run_path, segment
from muster.wire.notifications.events import QUIET_S, USUAL
from muster.wire.notifications.receivers import (
    AddedReceiver,
    NewReceiver,
    NewWatch,
    ReceiverView,
    Runs,
    TestedReceiver,
)

_TEST_S = 90.0


class Notifications(Group):
    """Calls about notifications."""

    def receivers(self) -> list[ReceiverView]:
        """Receivers of the workspace."""
        return list(self.calls.each(ReceiverView, "/notifications"))

    def add_receiver(
        self, name: str, address: str, when: Sequence[str] = USUAL, runs: Runs = "mine", quiet_s: float = QUIET_S
    ) -> AddedReceiver:
        """Create a receiver; the secret that signs its messages is only in this answer."""
        with checking():
            made = NewReceiver(name, address, tuple(when), runs, quiet_s)
        return self.calls.read(AddedReceiver, "POST", "/notifications", message=made, again=False)

    def remove_receiver(self, name: str) -> None:
        self.calls.send("DELETE", f"/notifications/{segment(name, 'receiver')}")

    def test_receiver(self, name: str) -> TestedReceiver:
        """Have the server send a test now; returns the outcome."""
        path = f"/notifications/{segment(name, 'receiver')}/test"
        return self.calls.read(TestedReceiver, "POST", path, again=False, timeout_s=_TEST_S)

    def watches(self, ref: str) -> list[ReceiverView]:
        """Receivers that are notified about this run in particular."""
        return list(self.calls.each(ReceiverView, run_path(ref, "notifications")))

    def watch(self, ref: str, to: str, when: Sequence[str] = USUAL, quiet_s: float = QUIET_S) -> ReceiverView:
        """Notify a receiver or an address about one run."""
        with checking():
            asked = NewWatch(to, tuple(when), quiet_s)
        return self.calls.read(ReceiverView, "POST", run_path(ref, "notifications"), message=asked, again=False)
