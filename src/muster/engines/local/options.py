"""What a cluster on this machine can be configured with, checked at the door."""

from __future__ import annotations

from collections.abc import Mapping

from muster import errors
from muster.clusters.options import Options, checked, refuse_unknown
from muster.defaults import LOCAL_MAX_NODES
from muster.wire.codec import Json


class LocalOptions(Options):
    """The settings of every cluster; the local engine adds none."""

    @property
    def most_nodes(self) -> int:
        return self.max_nodes or LOCAL_MAX_NODES

    @property
    def has_own_share(self) -> bool:
        """Whether each node has CPUs and GPUs of its own; otherwise all share the machine."""
        return self.cpus is not None or self.gpus is not None


def parse(options: Mapping[str, Json]) -> LocalOptions:
    """Checked settings, or a refusal that names the wrong one."""
    return checked(LocalOptions, options, "docs/clusters.md")


def refuse_others(options: Mapping[str, Json]) -> None:
    refuse_unknown(options, frozenset(LocalOptions.model_fields), "a cluster on this machine")


def refuse_impossible(options: LocalOptions, num_gpus: int) -> None:
    """Refuse what this machine cannot give."""
    if options.most_nodes > LOCAL_MAX_NODES:
        raise errors.JobError(
            f"max_nodes is {options.max_nodes}", f"On the local engine it is at most {LOCAL_MAX_NODES}."
        )
    wanted = (options.gpus or 0) * options.most_nodes
    if wanted > num_gpus:
        raise errors.JobError(
            f"{options.most_nodes} nodes with {options.gpus} GPUs need {wanted}; this machine has {num_gpus}",
            "Give fewer nodes (max_nodes) or fewer gpus.",
        )
