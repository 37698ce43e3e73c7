"""Compute targets, in v1's words; what the local engine can be is created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.errors import JobError, NotFound
from muster.sdk.connected import Connected
from muster.sdk.notices import ignored, tell


class ComputeTargetException(NotFound):
    """There is no such compute target; v1 scripts catch this and create one."""


@dataclass(frozen=True)
class ProvisioningConfiguration:
    """What a compute target is to be."""

    engine: str
    options: dict[str, Any]
    notices: list[str] = field(default_factory=list)


class ComputeTarget:
    """A cluster of the workspace, by name."""

    def __init__(self, workspace: Connected, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self._view = _view(workspace, name)

    @staticmethod
    def create(workspace: Connected, name: str, provisioning_configuration: ProvisioningConfiguration) -> ComputeTarget:
        """Create a cluster; one of the same name is refused."""
        wanted = provisioning_configuration
        made = workspace.client.create_cluster({"name": name, "engine": wanted.engine, "options": wanted.options})
        tell(*wanted.notices, *made.get("notices", []))
        return AmlCompute(workspace, name)

    @staticmethod
    def list(workspace: Connected) -> list[ComputeTarget]:
        return [ComputeTarget(workspace, row["name"]) for row in workspace.client.clusters()]

    @property
    def type(self) -> str:
        return str(self._view["engine"])

    @property
    def provisioning_state(self) -> str:
        return "Succeeded"

    def get_status(self) -> dict[str, Any]:
        """The cluster as the server sees it now: engine, options, nodes."""
        self.refresh_state()
        return dict(self._view)

    def list_nodes(self) -> Sequence[dict[str, Any]]:
        return tuple(self.get_status()["nodes"])

    def refresh_state(self) -> None:
        self._view = _view(self.workspace, self.name)

    def wait_for_completion(
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: int | None = None,
        is_delete_operation: bool = False,
    ) -> None:
        """A cluster is ready as soon as it is created; its nodes start with the first job."""
        if show_output:
            print(f"compute target {self.name!r} is ready", flush=True)

    def delete(self) -> None:
        """Delete the cluster; refused while runs use it."""
        self.workspace.client.delete_cluster(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, engine={self.type!r})"


class AmlCompute(ComputeTarget):
    """A cluster with a largest number of nodes."""

    @staticmethod
    def provisioning_configuration(
        vm_size: str = "",
        vm_priority: str = "dedicated",
        min_nodes: int = 0,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int | None = 1800,
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
        if vm_priority.lower() not in ("dedicated", "lowpriority"):
            raise JobError(f"vm_priority={vm_priority!r} is not known", "Use 'dedicated' or 'lowpriority'.")
        notices = ignored(
            "AmlCompute",
            {
                "vm_priority": vm_priority if vm_priority.lower() == "lowpriority" else None,
                "min_nodes": min_nodes,
                "admin_username": admin_username,
                "admin_user_password": "***" if admin_user_password else None,
                "admin_user_ssh_key": "***" if admin_user_ssh_key else None,
                "vnet_resourcegroup_name": vnet_resourcegroup_name,
                "vnet_name": vnet_name,
                "subnet_name": subnet_name,
                "tags": tags,
                "remote_login_port_public_access": remote_login_port_public_access.replace("NotSpecified", ""),
                "identity_type": identity_type,
                "identity_id": identity_id,
                "location": location,
            },
        )
        options = {"max_nodes": max_nodes, "vm_size": vm_size, "description": description}
        return ProvisioningConfiguration("local", {key: value for key, value in options.items() if value}, notices)


def _check_counts(min_nodes: int, max_nodes: int | None) -> None:
    for name, value, least in (("min_nodes", min_nodes, 0), ("max_nodes", max_nodes, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise JobError(f"{name}={value!r} is not a count", f"Give a whole number of at least {least}.")
    if max_nodes is not None and min_nodes > max_nodes:
        raise JobError(f"min_nodes={min_nodes} is more than max_nodes={max_nodes}", "Swap them.")


def _view(workspace: Connected, name: str) -> dict[str, Any]:
    try:
        return workspace.client.cluster(name)
    except NotFound as error:
        raise ComputeTargetException(error.message, error.hint) from error
