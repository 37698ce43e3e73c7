"""The settings of a cluster on this machine, checked when they come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from muster import errors
from muster.clusters.options import Options, unknown_size_notice
from muster.defaults import LOCAL_MAX_NODES

_WITHOUT_EFFECT = {
    "subnet": "places machines in a network",
    "vnet": "places machines in a network",
    "interface": "chooses between networks of several machines",
}


class LocalOptions(Options):
    """The settings of every cluster; the local engine adds none."""

    owner: ClassVar[str] = "a cluster on this machine"

    @property
    def most_nodes(self) -> int:
        return self.max_nodes or LOCAL_MAX_NODES

    @property
    def has_own_share(self) -> bool:
        """Whether each node has its own CPUs and GPUs; otherwise all share the machine."""
        return self.cpus is not None or self.gpus is not None

    def refuse_impossible(self, num_gpus: int) -> None:
        """Refuse more than this machine has."""
        if self.most_nodes > LOCAL_MAX_NODES:
            raise errors.JobError(
                f"max_nodes is {self.max_nodes}", f"On the local engine it is at most {LOCAL_MAX_NODES}."
            )
        wanted = (self.gpus or 0) * self.most_nodes
        if wanted > num_gpus:
            raise errors.JobError(
                f"{self.most_nodes} nodes with {self.gpus} GPUs need {wanted}; this machine has {num_gpus}",
                "Give fewer nodes (max_nodes) or fewer gpus.",
            )

    def notices(self, num_cpus: int) -> Iterator[str]:
        """Notices about valid settings that mean less here than elsewhere."""
        yield from unknown_size_notice(self)
        if self.vm_size and not self.has_own_share:
            yield f"vm_size {self.vm_size} only sets the price on the local engine: its nodes share this machine"
        if self.cpus and self.cpus > num_cpus:
            yield f"{self.cpus} CPUs per node are simulated: this machine has {num_cpus}"
        for key, why in _WITHOUT_EFFECT.items():
            if getattr(self, key):
                yield f"{key} {why} and means nothing on the local engine"
