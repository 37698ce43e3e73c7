"""Calls about endpoints."""

from __future__ import annotations

from collections.abc import Mapping

from muster.client.calls import LONG_S, Group, checking, run_path, segment
from muster.wire.serving.canary import CanaryRules
from muster.wire.serving.endpoints import (
    EndpointAnswer,
    EndpointChanges,
    EndpointKeys,
    EndpointRequest,
    EndpointView,
    KeyKind,
    NewDeployment,
    NewEndpoint,
    NewEndpointKey,
    RouteTable,
    ServingOrders,
    ServingReport,
)


class Endpoints(Group):
    """What a client does with endpoints."""

    def list(self) -> list[EndpointView]:
        return list(self.calls.each(EndpointView, "/endpoints"))

    def create(self, endpoint: NewEndpoint) -> EndpointView:
        return self.calls.read(EndpointView, "POST", "/endpoints", message=endpoint, again=False)

    def show(self, name: str) -> EndpointView:
        return self.calls.read(EndpointView, "GET", _path(name))

    def change(self, name: str, changes: EndpointChanges) -> EndpointView:
        """Change an endpoint's traffic, description and tags."""
        return self.calls.read(EndpointView, "PATCH", _path(name), message=changes)

    def delete(self, name: str) -> None:
        """End an endpoint with all of its deployments."""
        self.calls.send("DELETE", _path(name))

    def deploy(self, name: str, deployment: str, new: NewDeployment) -> EndpointView:
        """Create a deployment, or replace it without losing a request."""
        path = f"{_path(name)}/deployments/{segment(deployment, 'deployment')}"
        return self.calls.read(EndpointView, "PUT", path, message=new, again=False, timeout_s=LONG_S)

    def delete_deployment(self, name: str, deployment: str) -> None:
        """End a deployment that has no traffic."""
        self.calls.send("DELETE", f"{_path(name)}/deployments/{segment(deployment, 'deployment')}")

    def keys(self, name: str) -> EndpointKeys:
        """The keys of an endpoint, or a token for an hour."""
        return self.calls.read(EndpointKeys, "GET", f"{_path(name)}/keys")

    def invoke(self, name: str, body: str, deployment: str | None = None) -> EndpointAnswer:
        """Send a request to an endpoint through the server."""
        with checking():
            message = EndpointRequest(body, deployment)
        return self.calls.read(
            EndpointAnswer, "POST", f"{_path(name)}/invoke", message=message, again=False, timeout_s=LONG_S
        )

    def renew_key(self, name: str, kind: KeyKind) -> EndpointKeys:
        """Regenerate a key."""
        message = NewEndpointKey(kind)
        return self.calls.read(EndpointKeys, "POST", f"{_path(name)}/keys", message=message, again=False)

    def report(self, run: str, report: ServingReport) -> ServingOrders:
        """Send the report of an endpoint's run, as its own processes do."""
        return self.calls.read(ServingOrders, "POST", run_path(run, "serving"), message=report)

    def routes(self, run: str, seen: int = -1, wait_s: float = 0.0) -> RouteTable:
        """The route table for a front door."""
        query = {"seen": seen, "wait_s": wait_s}
        return self.calls.read(RouteTable, "GET", run_path(run, "serving/routes"), query=query)


def new_endpoint(name: str, **fields: object) -> NewEndpoint:
    """An endpoint to be created, checked."""
    with checking():
        return NewEndpoint(name, **fields)  # type: ignore[arg-type]


def traffic_changes(
    traffic: Mapping[str, int] | None = None,
    mirror: Mapping[str, int] | None = None,
    canary: str | None = None,
    errors_percent: float = 2.0,
    slower: float = 2.0,
) -> EndpointChanges:
    """New shares of the traffic, validated; `canary`: a deployment that loses its share where it does worse."""
    with checking():
        rules = None if canary is None else CanaryRules(canary, errors_percent, slower)
        return EndpointChanges(traffic=traffic, mirror_traffic=mirror, canary=rules)


def _path(name: str) -> str:
    return f"/endpoints/{segment(name, 'endpoint')}"
