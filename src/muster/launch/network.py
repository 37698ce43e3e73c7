"""A gang's slots with the network that its nodes share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.job.expressions import resolve_environment
from muster.job.parts import Mpi
from muster.job.spec import JobSpec
from muster.launch.fabric import Member, Wanted, choose
from muster.launch.gang import Gang
from muster.launch.layout import layout
from muster.wire.node.devices import Devices
from muster.wire.node.plan import Slot


def with_network(
    spec: JobSpec, slots: Sequence[Slot], devices: Sequence[Devices | None], wanted: Wanted | None = None
) -> tuple[tuple[Slot, ...], tuple[str, ...]]:
    """The slots with addresses and settings of the chosen network, and why it was chosen.

    Nodes on one machine keep to the loopback interface, and what is not known is left to the frameworks.
    """
    known = [found for found in devices if found is not None]
    gang = Gang(spec, layout(spec), tuple(slots), resolve_environment(spec))
    if spec.distribution is None or gang.on_one_machine or len(known) < len(slots):
        return tuple(slots), ()
    members = [Member(slot.name, slot.address, found) for slot, found in zip(slots, known, strict=True)]
    made = choose(members, gang.user_env, wanted, mpi=isinstance(spec.distribution, Mpi))
    changed = (
        replace(slot, address=address, network=settings)
        for slot, address, settings in zip(slots, made.addresses, made.settings, strict=True)
    )
    return tuple(changed), made.notices
