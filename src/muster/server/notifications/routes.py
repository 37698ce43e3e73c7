"""Notifications: receivers, tests of them, and watches of one run."""

from __future__ import annotations

from fastapi import APIRouter, Response

from muster import errors
from muster.control.access import Action, require
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import ReadRun, needs
from muster.server.http.paging import PageOf
from muster.server.notifications import delivery, subscriptions
from muster.server.people import audit
from muster.wire import states
from muster.wire.notifications.receivers import AddedReceiver, NewReceiver, NewWatch, ReceiverView, TestedReceiver

router = APIRouter(tags=["notifications"])


@router.get("/notifications", dependencies=[needs(Action.READ)])
async def list_receivers(context: ContextOf, caller: CallerOf, page: PageOf) -> list[ReceiverView]:
    """Receivers of the workspace: one's own and those that are for everybody's runs; administrators see all."""
    found = await context.database.read(lambda c: subscriptions.listing(c, caller, None))
    return page.of(found, lambda item: (item.name or "",))


@router.post("/notifications", status_code=201, dependencies=[needs(Action.NOTIFY, asks_owner=True)])
async def add_receiver(body: NewReceiver, context: ContextOf, caller: CallerOf) -> AddedReceiver:
    """Make a receiver; the secret that signs its messages is in this answer and in no other."""
    audit.about(body.name, "add")
    return await context.database.write(lambda t: subscriptions.add(context, t, body, caller))


@router.delete("/notifications/{name}", status_code=204, dependencies=[needs(Action.NOTIFY, asks_owner=True)])
async def remove_receiver(name: str, context: ContextOf, caller: CallerOf) -> Response:
    """Remove a receiver, and what is on its way to it."""
    await context.database.write(lambda t: subscriptions.remove(t, name, caller))
    return Response(status_code=204)


@router.post("/notifications/{name}/test", dependencies=[needs(Action.NOTIFY, asks_owner=True)])
async def test_receiver(name: str, context: ContextOf, caller: CallerOf) -> TestedReceiver:
    """Send a receiver a test now, and return the outcome."""
    row = await context.database.read(lambda c: subscriptions.find(c, name))
    require(caller, Action.NOTIFY, row.owner, f"the receiver {name}")
    return await delivery.test(context, name)


@router.get("/runs/{ref}/notifications")
async def list_watches(run: ReadRun, context: ContextOf, caller: CallerOf, page: PageOf) -> list[ReceiverView]:
    """The receivers that are notified about this run in particular."""
    found = await context.database.read(lambda c: subscriptions.listing(c, caller, run))
    return page.of(found, lambda item: (item.created_at, item.address))


@router.post("/runs/{ref}/notifications", status_code=201, dependencies=[needs(Action.NOTIFY, asks_owner=True)])
async def watch_run(ref: str, body: NewWatch, context: ContextOf, caller: CallerOf) -> ReceiverView:
    """Notify somebody about this run: a receiver by name, or an address."""

    def work(transaction: Transaction) -> ReceiverView:
        run = find_run(transaction, ref)
        if run.status in states.TERMINAL:
            raise errors.Conflict(
                f"run {run.id} has ended already: {run.status}", "Only a run that has not ended can be watched."
            )
        return subscriptions.watch(context, transaction, run.id, body, caller)

    return await context.database.write(work)
