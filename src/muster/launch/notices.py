"""What the user should know about a plan before it runs; what is true of nearly every run is no notice."""

from __future__ import annotations

from collections.abc import Iterator

from muster.job.parts import Mpi, PyTorch
from muster.launch.describe import counted, listed
from muster.launch.gang import Gang, gpus_are_shared_by_tasks


def notices(gang: Gang) -> tuple[str, ...]:
    """All notices of a gang, the serious ones first."""
    return (
        *_backend(gang),
        *_gpus(gang),
        *_gpu_shares(gang),
        *_cores(gang),
    )


def _backend(gang: Gang) -> Iterator[str]:
    distribution = gang.spec.distribution
    if not isinstance(distribution, PyTorch) or not distribution.communication_backend:
        return
    backend = distribution.communication_backend.lower()
    without = [slot.name for slot in gang.slots if not slot.gpus]
    if backend == "nccl" and without:
        yield (
            f"communication_backend is nccl, but the job holds no GPU on {listed(without, 'nodes')}: "
            "NCCL cannot start there; use gloo on CPUs"
        )
    if backend == "gloo" and len(without) < len(gang.slots):
        yield "communication_backend is gloo, but the job holds GPUs: nccl is much faster between them"


def _gpus(gang: Gang) -> Iterator[str]:
    crowded: dict[tuple[int, int], list[str]] = {}
    growing: list[str] = []
    isolated = gang.spec.resources.gpu_isolation
    if isolated and any(slot.gpus for slot in gang.slots):
        yield "gpu_isolation: each rank sees its own share of the GPUs, from cuda:0 on; cuda:LOCAL_RANK is another's"
    for slot, tasks in zip(gang.slots, gang.tasks_of_nodes, strict=True):
        if isinstance(gang.spec.distribution, PyTorch | Mpi) and 0 < len(slot.gpus) < len(tasks) and not isolated:
            crowded.setdefault((len(tasks), len(slot.gpus)), []).append(slot.name)
        if gpus_are_shared_by_tasks(gang, tasks[0].node_rank):
            growing.append(slot.name)
    for (ranks, gpus), names in crowded.items():
        yield (
            f"{ranks} processes share {counted(gpus, 'GPU')} on {listed(names, 'nodes')}: "
            f"cuda:LOCAL_RANK exists for the first {gpus} only"
        )
    if growing and "TF_FORCE_GPU_ALLOW_GROWTH" not in gang.user_env:
        yield (
            f"several TensorFlow tasks share the GPUs of {listed(growing, 'nodes')}: "
            "TF_FORCE_GPU_ALLOW_GROWTH=true keeps each from taking all of their memory"
        )


def _gpu_shares(gang: Gang) -> Iterator[str]:
    shared = [slot for slot in gang.slots if slot.shared_host]
    if any(slot.gpus for slot in shared):
        shares = [f"{slot.name}: {','.join(slot.gpus) or 'none'}" for slot in shared]
        yield f"simulated nodes share out the GPUs of one machine ({'; '.join(shares)})"
    chosen = gang.user_env.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return
    ids = {device.strip() for device in chosen.split(",")} - {""}
    beyond = [slot.name for slot in gang.slots if slot.gpus and not ids <= set(slot.gpus)]
    if beyond:
        yield (
            f"CUDA_VISIBLE_DEVICES is {chosen!r} as the job asks, but those are not the GPUs that the job holds on "
            f"{listed(beyond, 'nodes')}: another job may be using them"
        )


def _cores(gang: Gang) -> Iterator[str]:
    for group in gang.machines:
        slots = [gang.slots[node_rank] for node_rank in group]
        cpus, ranks = slots[0].cpus, gang.tasks_on_machine(group[0])
        if ranks > cpus and not any(slot.gpus for slot in slots):
            names = listed([slot.name for slot in slots], "nodes")
            yield f"{ranks} ranks take turns on {counted(cpus, 'CPU core')} of {names}"
