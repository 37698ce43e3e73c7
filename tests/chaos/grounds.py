"""Every ground: where gangs run, and the faults that they meet there."""

from __future__ import annotations

from tests.chaos import clocks, clusters, containers, databases, disks, faulty_disks, memories, networks, power, preload
from tests.chaos.campaign import Ground
from tests.chaos.parts import PARTS
from tests.chaos.processes import PROCESSES
from tests.chaos.stage import Stage
from tests.sites import network as network_site

GROUNDS = (
    Ground("local", "local", Stage, PROCESSES),
    Ground("parts", "local", Stage, PARTS),
    Ground("postgres", "local", databases.PostgresStage, databases.POSTGRES, databases.missing),
    Ground("clock", "local", clocks.ClockStage, clocks.CLOCKS, preload.missing),
    Ground("disk", "local", disks.DiskStage, disks.DISKS, disks.missing),
    Ground("memory", "local", memories.MemoryStage, memories.MEMORY, memories.missing),
    Ground("network", "local", networks.NetworkStage, networks.NETWORK, network_site.missing),
    Ground("power", "local", power.PowerStage, power.POWER, power.missing),
    Ground("faulty", "local", faulty_disks.FaultyStage, faulty_disks.FAULTY, preload.missing),
    Ground("lying", "local", faulty_disks.LyingStage, faulty_disks.LYING, faulty_disks.lying_missing),
    Ground("containers", "local", containers.ContainerStage, containers.CONTAINERS, containers.missing),
    Ground("slurm", "slurm", clusters.SlurmStage, clusters.SLURM, clusters.no_slurm),
    Ground("ray", "ray", clusters.RayStage, clusters.RAY, clusters.no_ray),
)
