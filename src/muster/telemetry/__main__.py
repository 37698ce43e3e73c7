"""`python -m muster.telemetry`: started by the server, and ends with it."""

from __future__ import annotations

from muster.client.api import Client
from muster.host.children import Parent
from muster.host.http import Address
from muster.telemetry.export import Exporter
from muster.wire.codec import from_json, to_json
from muster.wire.notifications.telemetry import TelemetryLook, TelemetryOrder


def main() -> None:
    parent = Parent(exit_after_s=1.0)
    exporter: Exporter | None = None
    for request in parent.requests():
        if exporter is None:
            order = from_json(TelemetryOrder, request)
            exporter = Exporter(order, Client(Address(order.server, order.token)))
            continue
        from_json(TelemetryLook, request)
        parent.send(to_json(exporter.look()))


if __name__ == "__main__":
    main()
