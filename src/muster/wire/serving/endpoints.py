"""Endpoints: requests, views for clients, and messages between runs of endpoints and the server."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import check_pattern, check_range, wire
from muster.wire.runs import Submission
from muster.wire.serving.canary import CanaryRules, CanaryView

AuthMode = Literal["key", "aml_token", "aad_token"]
AUTH_MODES: tuple[AuthMode, ...] = ("key", "aml_token", "aad_token")
KeyKind = Literal["primary", "secondary"]
DeploymentState = Literal["starting", "updating", "serving", "failed", "stopped"]

_NAME = re.compile("[a-zA-Z](?:[-a-zA-Z0-9]{1,30}[a-zA-Z0-9])")
_ALLOWED = "3 to 32 letters, digits and '-', a letter first and no '-' last"
_MOST_MIRRORED = 50


def check_host(host: str | None) -> None:
    """Refuse a host that no node can listen on."""
    try:
        if host is not None and not _HOST_NAME.fullmatch(host):
            ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"host {host!r} is not valid: use an address such as 10.0.0.5, or a node's name") from None


def check_endpoint_name(name: str) -> None:
    """Refuse what cannot be the name of an endpoint or a deployment."""
    check_pattern("name", name, _NAME, _ALLOWED)


def check_traffic(traffic: Mapping[str, int]) -> None:
    """Refuse invalid shares, and shares that do not add up to 100 or 0."""
    for share in traffic.values():
        check_range("a deployment's share of the traffic", share, 0, 100)
    if sum(traffic.values()) not in (0, 100):
        raise ValueError(f"the shares of the traffic add up to {sum(traffic.values())}: use 100, or 0 for none")


def check_mirror(mirror: Mapping[str, int]) -> None:
    """Refuse copies of requests to several deployments, or of too many requests."""
    if sum(share > 0 for share in mirror.values()) > 1:
        raise ValueError("mirror_traffic names more than one deployment: one at a time gets copies")
    for share in mirror.values():
        check_range("mirror_traffic", share, 0, _MOST_MIRRORED)


_MOST_ASKED = 1 << 20
_MOST_PEM = 64 << 10
_HOST_NAME = re.compile(r"([A-Za-z0-9-]+\.)*(?=[0-9-]*[A-Za-z])[A-Za-z0-9-]{1,63}")
"""Its last part has a letter: one of only digits would be a mistyped address."""


@wire
class NewEndpoint:
    """The body of `POST endpoints`."""

    name: str
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    auth_mode: AuthMode = "key"
    compute: str | None = None
    """Where its front door runs; None: where its first deployment runs."""
    host: str | None = None
    """The address that the front door listens on; None: loopback on this machine, the node's own on another."""
    port: int = 0
    """0: one that is free, which the endpoint then keeps."""
    tls: bool = False
    """Use TLS; with a certificate of the endpoint's own authority, unless one is given."""
    certificate: str | None = None
    """As PEM, with its chain."""
    private_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_endpoint_name(self.name)
        check_range("port", self.port, 0, 65_535)
        check_host(self.host)
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("a certificate and its private key belong together: give both")
        check_range("the length of certificate", len(self.certificate or ""), 0, _MOST_PEM)
        check_range("the length of private_key", len(self.private_key or ""), 0, _MOST_PEM)


@wire
class EndpointChanges:
    """The body of `PATCH endpoints/NAME`; tags are merged, a null tag is removed; traffic is replaced."""

    description: str | None = field(default=None, metadata=OMIT)
    tags: Mapping[str, str | None] | None = field(default=None, metadata=OMIT)
    traffic: Mapping[str, int] | None = field(default=None, metadata=OMIT)
    mirror_traffic: Mapping[str, int] | None = field(default=None, metadata=OMIT)
    canary: CanaryRules | None = field(default=None, metadata=OMIT)
    """With `traffic`: a deployment that is judged, and loses its share where it does worse than the others."""

    def __post_init__(self) -> None:
        if self.canary is not None and not self.traffic:
            raise ValueError("canary is given without traffic: say which share it gets")
        check_traffic(self.traffic or {})
        check_mirror(self.mirror_traffic or {})


@wire
class RequestLimits:
    """Limits of requests to a deployment."""

    timeout_ms: int = 5000
    concurrency: int = 1
    """Requests that one replica gets at once."""
    queue_wait_ms: int = 500
    idempotent: bool = False
    """Whether a request may be repeated after its replica died."""

    def __post_init__(self) -> None:
        check_range("request_timeout_ms", self.timeout_ms, 1, 3_600_000)
        check_range("max_concurrent_requests_per_instance", self.concurrency, 1, 100_000)
        check_range("max_queue_wait_ms", self.queue_wait_ms, 0, 3_600_000)


@wire
class NewDeployment:
    """The body of `PUT endpoints/NAME/deployments/DEPLOYMENT`: created, or replaced without losing a request."""

    submission: Submission
    """The job of its runs; the server chooses the key."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    instances: int = 1
    """The least number of replicas; with 0 the last one ends without requests, and the next request starts one."""
    max_instances: int = 1
    nodes: int = 1
    """Replicas are distributed evenly over so many nodes, each a run of its own."""
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    all_traffic: bool = False
    model: str | None = None
    """NAME:VERSION of the registered model that it serves."""

    def __post_init__(self) -> None:
        check_range("instance_count", self.instances, 0, 1024)
        check_range("max_instances", self.max_instances, max(1, self.instances), 1024)
        check_range("nodes", self.nodes, 1, 1024)
        for name, count in (("instance_count", self.instances), ("max_instances", self.max_instances)):
            if count % self.nodes:
                raise ValueError(f"{name} is {count}: with nodes: {self.nodes} use a multiple of {self.nodes}")


@wire
class ServingFigures:
    """Figures of one deployment: latencies of the last minute, counts since the process started."""

    deployment: str
    requests: int = 0
    failed: int = 0
    rate: float = 0.0
    """Requests a second."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    queue_p95_ms: float = 0.0
    batch_mean: float = 0.0
    """The average batch size of the model."""
    busy: float = 0.0
    """The share of their time that replicas worked."""
    in_flight: int = 0
    waiting: int = 0
    restarts: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)


@wire
class DeploymentView:
    """One deployment, as clients see it."""

    name: str
    endpoint: str
    state: DeploymentState
    traffic: int
    mirror: int
    revision: int
    """How often it was deployed."""
    run: str | None
    """The run that answers; where none does, the one that is starting."""
    model: str | None
    """What that run serves."""
    instances: int
    max_instances: int
    ready: int
    """Replicas that answer."""
    limits: RequestLimits
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    why: str | None = None
    """What went wrong, from the run's verdict."""
    serving_revision: int | None = None
    """The revision that answers; after a failed update the previous one."""
    newest_run: str | None = None
    """The run of the newest revision."""
    created_at: float = 0.0
    updated_at: float = 0.0
    requests: ServingFigures | None = None
    """Figures of the front door."""
    replicas: ServingFigures | None = None
    """Figures of the replicas."""
    nodes: int = 1
    runs: tuple[str, ...] = ()
    """All runs of the revision that is shown, one for each node."""

    @property
    def has_come_up(self) -> bool:
        """Whether the newest revision answers."""
        return self.state == "serving" and self.serving_revision == self.revision

    @property
    def has_failed(self) -> bool:
        """Whether the newest revision failed, even if an older one still answers."""
        return self.state in ("failed", "stopped") or (self.state == "serving" and not self.has_come_up)


@wire
class EndpointView:
    """One endpoint with its deployments."""

    name: str
    auth_mode: AuthMode
    scoring_uri: str | None
    """None until its front door has an address."""
    openapi_uri: str | None
    state: str
    """`ready`; `starting` without a front door; `unavailable` where a deployment that has traffic has no replica;
    `empty` where there is no deployment."""
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    deployments: tuple[DeploymentView, ...]
    run: str | None
    """The run of its front door."""
    description: str | None
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    compute: str | None
    created_by: str | None
    created_at: float
    updated_at: float
    canary: CanaryView | None = None
    certificate: str | None = None
    """The certificate that clients must trust, as PEM, for https."""


@wire
class EndpointKeys:
    """The credentials of an endpoint: its two keys, or a token."""

    auth_mode: AuthMode
    primary: str | None = field(default=None, repr=False)
    secondary: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    expires_at: float | None = None


@wire
class NewEndpointKey:
    """The body of `POST endpoints/NAME/keys`: which key is regenerated; for tokens all issued ones end."""

    kind: KeyKind = "primary"


@wire
class EndpointRequest:
    """The body of `POST endpoints/NAME/invoke`: a request that the server forwards with the endpoint's own key."""

    body: str
    deployment: str | None = None
    """None: by the shares of the traffic."""

    def __post_init__(self) -> None:
        check_range("the length of body", len(self.body), 0, _MOST_ASKED)


@wire
class EndpointAnswer:
    """The response of an endpoint."""

    status: int
    body: str
    """As text, cut after a megabyte."""
    seconds: float


# Between runs of endpoints and the server


@wire
class ReplicaReport:
    """One replica of a run."""

    port: int
    ready: bool


@wire
class ServingReport:
    """The body of `POST runs/RUN/serving`: addresses and figures of a run's replicas or its front door."""

    attempt: int
    port: int | None = None
    """Of the front door."""
    replicas: tuple[ReplicaReport, ...] | None = None
    """None: the run has not started them."""
    seen: int = 0
    """The version of the table that the front door uses."""
    open: Mapping[str, int] = field(default_factory=dict)
    """Requests inside replicas, by the replica's address."""
    figures: tuple[ServingFigures, ...] = ()


@wire
class ServingOrders:
    """Orders for a run of an endpoint."""

    key: str = field(repr=False)
    host: str
    waiting: int
    followed: bool = False
    """The front door goes by what the run reported."""


@wire
class Backend:
    """One replica, for the front door."""

    run: str
    address: str
    port: int
    ready: bool
    key: str = field(repr=False)
    gone: bool = False
    """Its node is lost, or its run is between two attempts: it does not answer any more."""


@wire
class Route:
    """One deployment, for the front door."""

    name: str
    weight: int
    mirror: int
    timeout_ms: int
    concurrency: int
    queue_wait_ms: int
    idempotent: bool
    backends: tuple[Backend, ...]
    sleeps: bool = False
    """It has no replica while there are no requests; the next request starts one."""


@wire
class RouteTable:
    """The routing table of an endpoint's front door."""

    version: int
    endpoint: str
    host: str
    port: int
    keys: tuple[str, ...] = field(repr=False)
    token_key: str = field(repr=False)
    deployments: tuple[Route, ...] = ()
    public: bool = False
    """`host` was requested: the front door accepts connections from outside of its cluster's subnet too."""
    certificate: str = ""
    """Empty: the front door uses plain HTTP."""
    private_key: str = field(default="", repr=False)
