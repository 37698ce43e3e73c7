"""Compute targets, under v1's names."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.clusters.options import parse_options
from muster.clusters.sizes import catalogue
from muster.defaults import CLUSTER_WAIT_S, IDLE_SCALEDOWN_S
from muster.errors import JobError, MusterError, NotFound
from muster.sdk.connected import Connected
from muster.sdk.notices import ignored, tell
from muster.wire.clusters import ClusterView
from muster.wire.codec import Json, to_json

_POLL_S = 0.1


class ComputeTargetException(NotFound):
    """There is no such compute target; v1 scripts catch this and create one."""


@dataclass(frozen=True)
class ProvisioningConfiguration:
    """The settings of a compute target to create."""

    engine: str
    options: Mapping[str, Json]
    notices: list[str] = field(default_factory=list)


class ClusterStatus(dict[str, Json]):
    """A cluster's state as a mapping, with the attributes that v1 scripts read."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__(to_json(view))
        self._view = view

    @property
    def provisioning_state(self) -> str:
        return "Deleting" if self._view.state == "deleting" else "Succeeded"

    @property
    def allocation_state(self) -> str:
        counts = self.node_state_counts
        return "Resizing" if counts["preparing"] or counts["leaving"] else "Steady"

    @property
    def current_node_count(self) -> int:
        return len(self._view.nodes)

    @property
    def node_state_counts(self) -> dict[str, int]:
        names = ("idle", "preparing", "running", "leaving", "preempted", "unusable")
        return {name: sum(node.state == name for node in self._view.nodes) for name in names}

    @property
    def scale_settings(self) -> dict[str, Json]:
        keys = ("min_nodes", "max_nodes", "idle_seconds_before_scaledown")
        return {key: self[key] for key in keys}

    def serialize(self) -> dict[str, Json]:
        return dict(self)


class ComputeTarget:
    """A cluster of the workspace, by name."""

    def __new__(cls, workspace: Connected, name: str) -> ComputeTarget:
        # v1 scripts check whether a target is an instance of AmlCompute.
        return object.__new__(AmlCompute if cls is ComputeTarget else cls)

    def __init__(self, workspace: Connected, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self._view = _view(workspace, name)

    @staticmethod
    def create(workspace: Connected, name: str, provisioning_configuration: ProvisioningConfiguration) -> ComputeTarget:
        """Create a cluster; one of the same name is refused."""
        wanted = provisioning_configuration
        made = workspace.client.create_cluster(name, wanted.engine, wanted.options)
        tell(*wanted.notices, *made.notices)
        return AmlCompute(workspace, name)

    @staticmethod
    def list(workspace: Connected) -> list[ComputeTarget]:
        """Every compute target of the workspace."""
        return [ComputeTarget(workspace, cluster.name) for cluster in workspace.client.clusters()]

    @staticmethod
    def attach(*args: Any, **kwargs: Any) -> ComputeTarget:
        """Refused: a cluster file makes a cluster of machines."""
        raise JobError(
            "a machine or a service of Azure cannot be attached",
            "Make a cluster of your machines with `muster cluster create`, or one with ComputeTarget.create.",
        )

    @property
    def status(self) -> ClusterStatus:
        """The cluster's state when last fetched."""
        return ClusterStatus(self._view)

    @property
    def scale_settings(self) -> dict[str, Json]:
        """The least and largest number of nodes, and how long a node stays idle."""
        return self.status.scale_settings

    @property
    def vm_size(self) -> str:
        """The machine size that decides its price."""
        return self._view.size.name if self._view.size is not None else ""

    @property
    def id(self) -> str:
        """The cluster's name, which is unique."""
        return self.name

    @property
    def location(self) -> str:
        """Kept for v1 scripts: the location of the workspace."""
        return "local"

    @property
    def provisioning_errors(self) -> None:
        """Kept for v1 scripts: errors of nodes are in their state."""
        return None

    @property
    def tags(self) -> dict[str, str]:
        """The cluster's tags."""
        found = self._view.options.get("tags")
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}

    def serialize(self) -> dict[str, Json]:
        """The cluster as a mapping, as last fetched."""
        return dict(ClusterStatus(self._view))

    @property
    def type(self) -> str:
        """v1's name for a cluster; `engine` is what runs it."""
        return "AmlCompute"

    @property
    def engine(self) -> str:
        """The engine that runs it, such as `local`, `slurm` or `ray`."""
        return self._view.engine

    @property
    def provisioning_state(self) -> str:
        """The state when last fetched, in v1's terms; `refresh_state` fetches it again."""
        return ClusterStatus(self._view).provisioning_state

    def get_status(self) -> ClusterStatus:
        """The cluster's current state, from the server."""
        self.refresh_state()
        return ClusterStatus(self._view)

    def list_nodes(self) -> Sequence[dict[str, Json]]:
        """The cluster's nodes, a mapping for each."""
        self.refresh_state()
        return tuple(to_json(node) for node in self._view.nodes)

    def refresh_state(self) -> None:
        """Fetch the state again."""
        self._view = _view(self.workspace, self.name)

    def wait_for_completion(
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: float | None = None,
        is_delete_operation: bool = False,
    ) -> None:
        """Wait until the cluster has its nodes (by default `min_nodes`), or is deleted."""
        deadline = time.monotonic() + (CLUSTER_WAIT_S if timeout_in_minutes is None else 60 * timeout_in_minutes)
        wanted = "is gone" if is_delete_operation else "has its nodes"
        while not (self._is_gone() if is_delete_operation else self._has_nodes(min_node_count)):
            if time.monotonic() > deadline:
                raise MusterError(f"compute target {self.name!r}: it took too long until it {wanted}")
            time.sleep(_POLL_S)
        if show_output:
            print(f"compute target {self.name!r} {wanted}", flush=True)

    def update(
        self,
        min_nodes: int | None = None,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int | None = None,
    ) -> None:
        """Resize the cluster; removed nodes finish their runs first."""
        given = {
            "min_nodes": min_nodes,
            "max_nodes": max_nodes,
            "idle_seconds_before_scaledown": idle_seconds_before_scaledown,
        }
        options: Mapping[str, Json] = {key: value for key, value in given.items() if value is not None}
        self._view = self.workspace.client.change_cluster(self.name, options)

    def delete(self) -> None:
        """Delete the cluster; refused while runs use it."""
        self.workspace.client.delete_cluster(self.name)

    def _has_nodes(self, count: int | None) -> bool:
        status = self.get_status()
        wanted = self._view.min_nodes if count is None else count
        return self.name == "local" or sum(status.node_state_counts[key] for key in ("idle", "running")) >= wanted

    def _is_gone(self) -> bool:
        try:
            self.refresh_state()
        except ComputeTargetException:
            return True
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, engine={self.engine!r})"


class AmlCompute(ComputeTarget):
    """A cluster with a maximum number of nodes."""

    @staticmethod
    def supported_vmsizes(workspace: Any = None, location: str | None = None) -> Sequence[dict[str, Json]]:
        """The machine sizes whose prices are known."""
        return tuple(to_json(size) for size in catalogue().values())

    @staticmethod
    def provisioning_configuration(
        vm_size: str = "",
        vm_priority: str = "dedicated",
        min_nodes: int = 0,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int | None = IDLE_SCALEDOWN_S,
        admin_username: str | None = None,
        admin_user_password: str | None = None,
        admin_user_ssh_key: str | None = None,
        vnet_resourcegroup_name: str | None = None,
        vnet_name: str | None = None,
        subnet_name: str | None = None,
        tags: dict[str, str] | None = None,
        description: str | None = None,
        remote_login_port_public_access: str = "NotSpecified",
        identity_type: str | None = None,
        identity_id: Any = None,
        location: str | None = None,
        enable_node_public_ip: bool = True,
    ) -> ProvisioningConfiguration:
        """A cluster of up to `max_nodes` simulated nodes on this machine; what only a cloud has is ignored."""
        _check_counts(min_nodes, max_nodes)
        notices = ignored(
            "AmlCompute",
            {
                "admin_username": admin_username,
                "admin_user_password": "***" if admin_user_password else None,
                "admin_user_ssh_key": "***" if admin_user_ssh_key else None,
                "vnet_resourcegroup_name": vnet_resourcegroup_name,
                "remote_login_port_public_access": remote_login_port_public_access.replace("NotSpecified", ""),
                "identity_type": identity_type,
                "identity_id": identity_id,
                "location": location,
            },
        )
        options: Mapping[str, Json] = {
            "vm_size": vm_size,
            "vm_priority": vm_priority if vm_priority.lower() != "dedicated" else None,
            "min_nodes": min_nodes,
            "max_nodes": max_nodes,
            "idle_seconds_before_scaledown": idle_seconds_before_scaledown,
            "vnet": vnet_name,
            "subnet": subnet_name,
            "tags": tags,
            "description": description,
        }
        given = {key: value for key, value in options.items() if value not in (None, "", {})}
        parse_options(given)
        return ProvisioningConfiguration("local", given, notices)


def _check_counts(min_nodes: int, max_nodes: int | None) -> None:
    for name, value, least in (("min_nodes", min_nodes, 0), ("max_nodes", max_nodes, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise JobError(f"{name}={value!r} is not a count", f"Give a whole number of at least {least}.")
    if max_nodes is not None and min_nodes > max_nodes:
        raise JobError(f"min_nodes={min_nodes} is more than max_nodes={max_nodes}", "Swap them.")


def _view(workspace: Connected, name: str) -> ClusterView:
    try:
        return workspace.client.cluster(name)
    except NotFound as error:
        raise ComputeTargetException(error.message, error.hint) from error
