"""The settings of a cluster on Ray, checked when they come in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, field_validator

from muster import errors
from muster.clusters.options import Flag, Options
from muster.defaults import RAY_CUT_OFF_S, RAY_LINGER_S, RAY_STALE_S
from muster.engines.ray.machines.starting import tls_environment, token_environment
from muster.wire.codec import Json


def _file(value: str) -> str:
    if not Path(value).expanduser().is_file():
        raise ValueError(f"{value} is no file here")
    return str(Path(value).expanduser())


File = Annotated[str, AfterValidator(_file)]


class RayOptions(Options):
    """The settings of every cluster, and those that clusters on Ray have in addition.

    Nodes of a cluster have its `labels` as labels of Ray (`ray start --labels`).
    """

    described_in: ClassVar[str] = "docs/ray.md"
    owner: ClassVar[str] = "a cluster on Ray"

    address: str
    """`ray://HEAD:10001`, or `HEAD:6379` where the server runs on a node of the cluster."""
    python: str | None = None
    """The Python with ray and Muster that connects to the cluster; absent: the server's own."""
    token_file: File | None = None
    tls_ca: File | None = None
    tls_cert: File | None = None
    tls_key: File | None = None
    resources: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Custom resources of Ray that each node of a gang takes, such as `{fast_disk: 1}`."""
    gpu_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The part of one GPU that each node of a gang takes, where a job asks for one GPU on a node or says nothing."""
    server_address: str | None = None
    """The server's name or address as the nodes see it."""
    server_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    node_folder: str = "~/.muster/ray"
    """The folder for the agents' work on their nodes."""
    cut_off_seconds: Annotated[float, Field(ge=5)] = RAY_CUT_OFF_S
    """A node that reaches neither Ray's head nor the server for that long stops its part of a gang."""
    stale_seconds: Annotated[float, Field(ge=10)] = RAY_STALE_S
    """A gang that hears nothing from the server for that long stops, even if Ray's head can be reached."""
    linger_seconds: Annotated[float, Field(ge=0)] = RAY_LINGER_S
    """How long idle nodes are kept while the server is away."""

    connection: str | None = None
    """No effect: agents on Ray's nodes always use TLS."""

    @field_validator("resources", mode="after")
    @classmethod
    def _are_custom(cls, value: dict[str, float]) -> dict[str, float]:
        if own := [name for name in value if name in ("CPU", "GPU", "memory") or name.startswith("node:")]:
            raise ValueError(f"{own[0]} is no custom resource; cpus, gpus and gpu_share say what a node gives")
        return value

    @classmethod
    def parse(cls, options: Mapping[str, Json]) -> Self:
        if not options.get("address"):
            raise errors.JobError(
                "a cluster on Ray needs the address of its head",
                "Give --address ray://HEAD:10001; `muster ray hosts` starts Ray on machines of your own.",
            )
        return super().parse(options)

    def environment(self) -> dict[str, str]:
        """The environment of a process that connects to the cluster."""
        found = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}
        if self.token_file:
            found |= token_environment(self.token_file)
        if self.tls_ca and self.tls_cert and self.tls_key:
            found |= tls_environment(self.tls_ca, self.tls_cert, self.tls_key)
        return found


FLAGS = (
    Flag("address", "ADDRESS", "its head, such as ray://10.0.0.1:10001."),
    Flag("token_file", "FILE", "the file with the cluster's token."),
)


WITHOUT_EFFECT = {
    "min_nodes": "Ray's own cluster file says how many machines stay (`muster ray file` writes it)",
    "preemption": "gangs on Ray run in the order in which they came, by priority",
}
