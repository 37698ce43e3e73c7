"""The settings of every cluster, whatever its engine: checked once, when they come in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from muster import errors
from muster.clusters.sizes import find_size, nearest
from muster.defaults import IDLE_SCALEDOWN_S, MAX_PASSED_OVER
from muster.wire.clusters import MachineSize
from muster.wire.codec import Json
from muster.wire.text import refused_value

NFS_PORT = 2049
_FILE_SERVER = re.compile("fileserver:([a-z][-a-z0-9]{0,30}[a-z0-9])")
_HOST = r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])"
_NFS = re.compile(_HOST + r":(?P<export>/(?!/)[^\s,]*)")
_NFS_URL = re.compile(r"nfs://" + _HOST + r"(?::(?P<port>[0-9]{1,5}))?(?P<export>/[^\s,]*)")
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
Count = Annotated[int, Field(ge=0, le=10_000)]


@dataclass(frozen=True)
class Flag:
    """An option of `muster cluster create` for clusters of one engine: `--token-file` sets `token_file`."""

    setting: str
    metavar: str
    help: str
    kind: Literal["text", "texts", "switch"] = "text"


class Limit(BaseModel):
    """The most that one user, or one experiment, may hold at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Count | None = None
    gpus: Count | None = None


class Quotas(BaseModel):
    """Limits for everybody, and for some by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_user: Limit = Limit()
    per_experiment: Limit = Limit()
    users: dict[str, Limit] = {}
    experiments: dict[str, Limit] = {}


class Mount(BaseModel):
    """Storage that every node of a cluster mounts before its first job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    """`fileserver:NAME`, an NFS share (`HOST:/EXPORT`, `nfs://HOST:PORT/EXPORT`), or a datastore's folder
    (`azureml://datastores/NAME/paths/…`), which is read over FUSE."""
    target: str
    """A name: jobs find it below `$MUSTER_MOUNTS`."""
    read_only: bool = True

    @model_validator(mode="after")
    def _can_be_mounted(self) -> Mount:
        if self.nfs is None and self.file_server is None and self.datastore is None:
            raise ValueError(
                f"{self.source!r} is nothing that can be mounted; write fileserver:NAME, HOST:/EXPORT for an NFS "
                "share, or azureml://datastores/NAME/paths/FOLDER for a blob container or a file share"
            )
        if not _TARGET.fullmatch(self.target):
            raise ValueError(
                f"the target {self.target!r} is no name; give one such as imagenet, and jobs find the files in "
                "$MUSTER_MOUNTS/imagenet"
            )
        if not self.read_only and self.nfs is None:
            raise ValueError(f"{self.source} is mounted read-only; only NFS shares of your own can be written to")
        return self

    @property
    def file_server(self) -> str | None:
        """The file server's name, where it is one of the workspace's."""
        match = _FILE_SERVER.fullmatch(self.source)
        return match[1] if match else None

    @property
    def nfs(self) -> tuple[str, int, str] | None:
        """Host, port and export of an NFS share."""
        match = _NFS_URL.fullmatch(self.source) or _NFS.fullmatch(self.source)
        if match is None:
            return None
        found = match.groupdict()
        return found["host"].strip("[]"), int(found.get("port") or NFS_PORT), found["export"]

    @property
    def datastore(self) -> str | None:
        """The address, where it is a datastore's."""
        return self.source if self.source.startswith("azureml://datastores/") else None


def _problem(found: ErrorDetails, described_in: str) -> tuple[str, str]:
    """What is wrong with a setting, and what to do."""
    where = ""
    for part in found["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
    kind, see = found["type"], f"See {described_in}."
    if kind == "extra_forbidden":
        keys = _keys_beside(found["loc"])
        close = difflib.get_close_matches(str(found["loc"][-1]), keys, 1)
        guess = f"Did you mean {close[0]}? " if close else ""
        return f"{where}: unknown key", f"{guess}Keys are {', '.join(keys)}." if keys else see
    if kind == "value_error":
        message = found["msg"].removeprefix("Value error, ")
    elif kind == "missing":
        message = "is missing"
    else:
        message = refused_value(kind, found["input"], found.get("ctx", {}), found["msg"])
    return (f"{where}: {message}" if where else message), see


def _keys_beside(location: tuple[int | str, ...]) -> list[str]:
    """The keys that are allowed next to an unknown one."""
    if location[0] == "mounts":
        return list(Mount.model_fields)
    if location[0] == "quotas":
        return list((Quotas if len(location) == 2 else Limit).model_fields)
    return []


def _priority(value: Any) -> Any:
    return value.lower().replace("_", "") if isinstance(value, str) else value


class Options(BaseModel):
    """The settings of every engine's clusters; an engine may have more."""

    model_config = ConfigDict(extra="allow", frozen=True)
    described_in: ClassVar[str] = "docs/clusters.md"
    owner: ClassVar[str] = "a cluster"
    """The owner of these settings, for messages."""

    min_nodes: Count = 0
    max_nodes: Annotated[int, Field(ge=1, le=10_000)] | None = None
    idle_seconds_before_scaledown: Annotated[float, Field(ge=0)] = float(IDLE_SCALEDOWN_S)
    vm_size: str | None = None
    vm_priority: Annotated[Literal["dedicated", "lowpriority"], BeforeValidator(_priority)] = "dedicated"
    cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    memory_gb: Annotated[float, Field(gt=0)] | None = None
    labels: dict[str, str] = {}
    price_per_hour: Annotated[float, Field(ge=0)] | None = None
    subnet: str | None = None
    vnet: str | None = None
    interface: str | None = None
    mounts: list[Mount] = []
    setup: str | None = None
    """A command that each node runs before its first job; it must be safe to run again."""
    share_data: bool | None = None
    """Nodes take staged inputs from each other; None: where they are several machines."""
    preemption: bool = False
    """Jobs of a higher priority may end those of a lower one, which then go back to the queue."""
    max_passed_over: Annotated[int, Field(ge=0, le=1_000_000)] = MAX_PASSED_OVER
    """How often a queued job may be passed over by jobs behind it, for each node that it needs."""
    quotas: Quotas = Quotas()
    description: str | None = None
    tags: dict[str, str] = {}

    @model_validator(mode="after")
    def _fits_together(self) -> Options:
        if self.max_nodes is not None and self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes {self.min_nodes} is more than max_nodes {self.max_nodes}")
        return self

    @field_validator("mounts", mode="after")
    @classmethod
    def _have_names_of_their_own(cls, value: list[Mount]) -> list[Mount]:
        names = [mount.target for mount in value]
        if again := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two mounts have the target {again[0]!r}; give each its own")
        return value

    @classmethod
    def parse(cls, options: Mapping[str, Json]) -> Self:
        """Checked settings, or a refusal that names the wrong one."""
        try:
            return cls.model_validate({key: value for key, value in options.items() if value is not None})
        except ValidationError as error:
            message, hint = _problem(error.errors()[0], cls.described_in)
            raise errors.JobError(message, hint) from error

    @classmethod
    def refuse_unknown(cls, options: Mapping[str, Json]) -> None:
        """For engines: a setting without effect is a mistake."""
        for key in sorted(options.keys() - cls.model_fields.keys()):
            close = difflib.get_close_matches(key, cls.model_fields, 1)
            hint = f"Did you mean {close[0]}?" if close else f"It takes {', '.join(sorted(cls.model_fields))}."
            raise errors.JobError(f"{cls.owner} has no setting {key!r}", hint)

    def shares_data(self, on_this_machine: bool) -> bool:
        """Whether nodes take staged inputs from each other; those on one machine share one cache anyway."""
        return self.share_data if self.share_data is not None else not on_this_machine

    @property
    def size(self) -> MachineSize | None:
        return find_size(self.vm_size) if self.vm_size else None

    @property
    def cpus_of_node(self) -> int:
        """As given, or those of its size; 0: unknown."""
        return self.cpus or (self.size.cpus if self.size else 0)

    @property
    def gpus_of_node(self) -> int | None:
        """As given, or those of its size; None: unknown."""
        return self.size.gpus if self.gpus is None and self.size else self.gpus

    @property
    def hourly_price(self) -> float | None:
        """The price of one node; list prices are for dedicated machines."""
        if self.price_per_hour is not None:
            return self.price_per_hour
        return self.size.price_per_hour if self.size and self.vm_priority == "dedicated" else None


def parse_options(options: Mapping[str, Json]) -> Options:
    """The settings that all engines' clusters have in common."""
    return Options.parse(options)


def unknown_size_notice(options: Options) -> list[str]:
    """A size that is not in the catalogue is only a label: its price and GPUs are unknown."""
    if not options.vm_size or options.size is not None:
        return []
    close = nearest(options.vm_size)
    meant = f"; did you mean {close}?" if close else ""
    return [f"vm_size {options.vm_size} is not in the catalogue, so its price is not known{meant}"]


def mount_notices(options: Options) -> list[str]:
    """Drawbacks of each mount, for people who are about to train from it."""
    found = []
    for mount in options.mounts:
        if mount.datastore is not None:
            found.append(
                f"mounts: {mount.target} reads {mount.source} over FUSE, file by file as it is read and read-only: too "
                "slow to feed GPUs. A job's input is staged on the node's disk instead, or use a file server"
            )
        elif mount.nfs is not None or mount.file_server is not None:
            found.append(
                f"mounts: {mount.target} is served by one machine to all nodes, which share its network; mounting it "
                "needs agents that run as root"
            )
    return found
