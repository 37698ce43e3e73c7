"""What the local engine says in plain words: which settings have no effect, and what is simulated. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from muster.clusters.options import unknown_size_notice
from muster.engines.local.options import LocalOptions
from muster.wire.codec import Json

_NO_EFFECT = {
    "subnet": "places machines in a network",
    "vnet": "places machines in a network",
    "interface": "chooses between networks of several machines",
    "mounts": "lets several machines see a share",
}


def notices(options: LocalOptions, given: Mapping[str, Json], num_cpus: int) -> list[str]:
    """What to say of settings that are fine, and mean less than they do elsewhere."""
    found = [*unknown_size_notice(options)]
    if options.vm_size and not options.has_own_share:
        found.append(
            f"vm_size {options.vm_size} sets the price alone on the local engine: its nodes share this machine"
        )
    if options.cpus and options.cpus > num_cpus:
        found.append(f"{options.cpus} CPUs per node are simulated: this machine has {num_cpus}")
    return [
        *found,
        *(f"{key} {why} and means nothing on the local engine" for key, why in _NO_EFFECT.items() if given.get(key)),
    ]
