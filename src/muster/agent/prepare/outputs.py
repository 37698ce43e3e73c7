"""Outputs before ranks start: where the job writes each, and whether it can be delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from muster.agent.link import Backoff, Link
from muster.agent.mover import Failed, Mover
from muster.agent.refusal import Refusal
from muster.agent.ship.outputs import last_part, renewal
from muster.defaults import LISTING_RETRY_S
from muster.host.children import Abandoned
from muster.paths import AttemptPaths
from muster.storage.connectors.base import TransferError
from muster.storage.connectors.files import Folder
from muster.storage.staging.messages import Check
from muster.storage.staging.upload import check
from muster.wire.data.access import Access
from muster.wire.node.agents import Order, OutputOrder

_NEXT = "Correct the output's path, or give its datastore a credential that may write, and submit again."


def output_paths(order: Order, paths: AttemptPaths) -> dict[str, str]:
    """Where the job writes each output; raises Failed where one cannot be written at all."""
    orders = {item.name: item for item in order.output_orders}
    return {name: _output_path(name, orders.get(name), paths) for name in order.outputs}


def _output_path(name: str, item: OutputOrder | None, paths: AttemptPaths) -> str:
    access = item.access if item is not None else None
    if item is None or access is None:
        target = paths.work / "outputs" / name
        is_file = item is not None and item.type == "uri_file"
        (target.parent if is_file else target).mkdir(parents=True, exist_ok=True)
        return str(target)
    if access.kind == "refused":
        raise Failed("data_unavailable", f"output {name!r}: {access.options.get('message')}")
    if access.kind == "http":
        raise Failed("bad_input", f"output {name!r}: {access.label}: plain HTTP can only be read. Name a datastore.")
    if item.mode == "direct":
        if access.kind != "file":
            return access.label or access.url
        target = Path(access.url)
        (target if access.folder else target.parent).mkdir(parents=True, exist_ok=True)
        return str(target)
    folder = paths.out / name
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder) if access.folder else str(folder / last_part(access))


def check_outputs(order: Order, link: Link, mover: Mover, doing: Callable[[str], None]) -> None:
    """Refuse a job whose outputs could not be delivered; a storage that is away is retried for a while."""
    try:
        for item in order.output_orders:
            if item.access is not None and item.mode != "direct":
                _check(order, item, item.access, link, mover, doing)
    finally:
        doing("")


def _check(
    order: Order, item: OutputOrder, access: Access, link: Link, mover: Mover, doing: Callable[[str], None]
) -> None:
    name = f".muster-check-{order.run}.{order.attempt}.{order.node_rank}" if access.folder else ""
    deadline, backoff = time.monotonic() + LISTING_RETRY_S, Backoff(most_s=5.0)
    while not mover.unwanted.is_set():
        try:
            if access.kind == "file":
                check(Folder(access.url, access.label), name)
            else:
                request = Check(access, name, link.reached_at())
                with mover.run(request, lambda _: None, renewal(link, order, item, access)):
                    pass
            return
        except (Failed, TransferError) as error:
            if error.final or error.code == "bad_input" or time.monotonic() > deadline:
                message = f"output {item.name!r} cannot be written to {access.label or access.url}: {error.message}"
                raise Refusal(error.code, message, _NEXT) from error
            doing(f"output {item.name} cannot be written yet, trying again: {error.message}")
        mover.unwanted.wait(backoff.next_s())
    raise Abandoned("nobody wants the outputs any more")
