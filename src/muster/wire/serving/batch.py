"""Batch endpoints: deployments that score data on request, each time as a run that ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import PurePosixPath
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import check_range, wire
from muster.wire.runs import Submission
from muster.wire.serving.endpoints import check_endpoint_name

OutputAction = Literal["append_row", "per_file", "summary_only"]
OUTPUT_ACTIONS: tuple[OutputAction, ...] = ("append_row", "per_file", "summary_only")
DataType = Literal["uri_file", "uri_folder"]
ENDPOINT_TAG, DEPLOYMENT_TAG = "batch_endpoint", "batch_deployment"
"""The tags of runs of batch endpoints."""

_MOST_RETRIES, _MOST_S, _MOST_ITEMS, _MOST_NODES, _MOST_PROCS = 1000, 259_200, 10**9, 100_000, 1024


def check_output_file(name: str) -> None:
    """Refuse what is not a file name."""
    if PurePosixPath(name).name != name or name.startswith("."):
        raise ValueError(f"output_file {name!r} is not a file name: use one such as predictions.csv")


@wire
class BatchSettings:
    """How a model is applied to data; `muster.scoring.batch` gets the same fields."""

    script: str = ""
    arguments: tuple[str, ...] = ()
    format: str = ""
    mini_batch_size: int = 0
    """Files or rows; 0: 10 files, 1,000 rows."""
    output_action: OutputAction = "append_row"
    output_file: str = "predictions.csv"
    max_retries: int = 2
    timeout_s: float = 60.0
    error_threshold: int = -1
    """Items that may fail; -1: any number."""
    mini_batch_error_threshold: int = -1

    def __post_init__(self) -> None:
        check_range("mini_batch_size", self.mini_batch_size, 0, _MOST_ITEMS)
        check_range("max_retries", self.max_retries, 0, _MOST_RETRIES)
        check_range("timeout_s", self.timeout_s, 0.001, _MOST_S)
        check_range("error_threshold", self.error_threshold, -1, _MOST_ITEMS)
        check_output_file(self.output_file)


@wire
class NewBatchEndpoint:
    """The body of `POST batch-endpoints`."""

    name: str
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_endpoint_name(self.name)


@wire
class BatchEndpointChanges:
    """The body of `PATCH batch-endpoints/NAME`; tags are merged, a null tag is removed."""

    description: str | None = field(default=None, metadata=OMIT)
    tags: Mapping[str, str | None] | None = field(default=None, metadata=OMIT)
    default_deployment: str | None = field(default=None, metadata=OMIT)


@wire
class NewBatchDeployment:
    """The body of `PUT batch-endpoints/NAME/deployments/DEPLOYMENT`: created, or replaced for future runs."""

    submission: Submission
    """The job of its runs without their data; the server chooses the key."""
    settings: BatchSettings = field(default_factory=BatchSettings)
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    set_default: bool = False
    """Whether it becomes the default deployment; the first deployment always does."""


@wire
class BatchDeploymentView:
    """One deployment of a batch endpoint."""

    name: str
    endpoint: str
    is_default: bool
    revision: int
    """How often it was deployed."""
    model: str | None
    """NAME:VERSION of a registered model; the path of any other."""
    settings: BatchSettings
    nodes: int
    procs: int
    """Processes with a model on each node."""
    compute: str
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0
    updated_at: float = 0.0


@wire
class BatchEndpointView:
    """One batch endpoint with its deployments."""

    name: str
    default_deployment: str | None
    deployments: tuple[BatchDeploymentView, ...]
    description: str | None
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    created_by: str | None
    created_at: float
    updated_at: float


@wire
class BatchRequest:
    """The body of `POST batch-endpoints/NAME/invoke`: what is scored, and overrides of the deployment's settings."""

    key: str
    """The same key again is the same run."""
    data: str
    """An address, or a path on the nodes."""
    data_type: DataType = "uri_folder"
    deployment: str | None = None
    """None: the endpoint's default."""
    output: str | None = None
    """An address in a datastore; None: kept with the run."""
    output_file: str | None = None
    mini_batch_size: int | None = None
    error_threshold: int | None = None
    max_retries: int | None = None
    timeout_s: float | None = None
    nodes: int | None = None
    procs: int | None = None
    compute: str | None = None
    display_name: str | None = None
    experiment: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_range("the length of key", len(self.key), 1, 200)
        if not self.data:
            raise ValueError("data is empty: give an address, or a path on the nodes")
        if self.nodes is not None:
            check_range("nodes", self.nodes, 1, _MOST_NODES)
        if self.procs is not None:
            check_range("procs", self.procs, 1, _MOST_PROCS)
