"""Judges the facts of a machine, with advice. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster import defaults
from muster.cli.doctor.facts import Facts
from muster.cli.text import size
from muster.host.extras import install_command
from muster.wire.clusters import Finding
from muster.wire.clusters import FindingLevel as Level

GIB = 1 << 30
MIN_PYTHON = (3, 11)
MIN_SHM_BYTES = 512 << 20
MIN_NOFILE = 4096
MIN_NPROC = 4096
MIN_FREE_BYTES = 10 * GIB
NETWORK_FILESYSTEMS = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "fuse.sshfs")
MAX_SKEW_S = 5.0
YEAR_2025 = 1_735_689_600


def check(facts: Facts) -> list[Finding]:
    """All findings, in the order in which a person would ask."""
    return [
        *_python(facts),
        *_system(facts),
        *_cpus(facts),
        *_memory(facts),
        *_gpus(facts),
        *_shared_memory(facts),
        *_limits(facts),
        *_ports(facts),
        *_interfaces(facts),
        *_rdma(facts),
        *_extras(facts),
        *_ranks(facts),
        *_workspace(facts),
        *_clock(facts),
    ]


def _graded(topic: str, text: str, level: Level, advice: str) -> Finding:
    """A finding, whose advice is shown only if something is wrong."""
    return Finding(topic, level, text, "" if level == "ok" else advice)


def _python(facts: Facts) -> Iterator[Finding]:
    text = f"{'.'.join(map(str, facts.python))} at {facts.executable}"
    level: Level = "fail" if facts.python[:2] < MIN_PYTHON else "ok"
    yield _graded("python", text, level, "Muster needs Python 3.11 or newer.")


def _system(facts: Facts) -> Iterator[Finding]:
    if facts.system == "Linux":
        yield Finding("system", "ok", "Linux")
    elif facts.system == "Darwin":
        advice = "Good as a client and for single-node runs; nodes of a cluster are Linux."
        yield Finding("system", "warn", "macOS", advice)
    else:
        yield Finding("system", "fail", facts.system, "Use Linux (WSL on Windows), or macOS as a client.")


def _cpus(facts: Facts) -> Iterator[Finding]:
    if facts.usable_cpus < facts.cpus:
        advice = "Fewer are usable than exist: a container's or scheduler's limit, which ranks will share."
        yield Finding("cpus", "ok", f"{facts.usable_cpus} of {facts.cpus} usable", advice)
    else:
        yield Finding("cpus", "ok", str(facts.cpus))


def _memory(facts: Facts) -> Iterator[Finding]:
    usable = min(facts.memory_bytes, facts.memory_limit_bytes or facts.memory_bytes)
    text = size(usable)
    if facts.memory_limit_bytes is not None and facts.memory_limit_bytes < facts.memory_bytes:
        text += f" (this container's limit; the machine has {size(facts.memory_bytes)})"
    advice = "A process with torch takes half a gigabyte before it trains; run few ranks."
    yield _graded("memory", text, "warn" if usable < 2 * GIB else "ok", advice)


def _gpus(facts: Facts) -> Iterator[Finding]:
    if facts.gpu_trouble:
        text = f"nvidia-smi does not work: {facts.gpu_trouble.splitlines()[0]}"
        advice = "Install or reload the NVIDIA driver; after an upgrade, restart the machine."
        yield Finding("gpus", "fail", text, advice)
    elif facts.gpus:
        kinds = Counter((gpu.name, gpu.memory_mb, gpu.driver) for gpu in facts.gpus)
        for (name, memory_mb, driver), count in sorted(kinds.items()):
            yield Finding("gpus", "ok", f"{count} x {name}, {size(memory_mb * (1 << 20))}, driver {driver}")
        if (facts.extras.get("torch") or "").endswith("+cpu"):
            advice = "Install a build with CUDA: https://pytorch.org/get-started/locally"
            yield Finding("gpus", "warn", "torch is a build for CPUs and will not see them", advice)
    elif facts.nvidia_devices:
        text = f"the driver shows {facts.nvidia_devices}, but there is no nvidia-smi"
        yield Finding("gpus", "warn", text, "Put nvidia-smi on the PATH, so that Muster finds the GPUs.")
    else:
        yield Finding("gpus", "ok", "none; jobs run on CPUs")


def _shared_memory(facts: Facts) -> Iterator[Finding]:
    if facts.shm_bytes is None:
        if facts.system == "Linux":
            advice = "Mount it: data loader workers and NCCL need it."
            yield Finding("shared memory", "fail", "there is no /dev/shm", advice)
    else:
        level: Level = "warn" if facts.shm_bytes < MIN_SHM_BYTES else "ok"
        advice = "Data loader workers and NCCL need more; start the container with --shm-size=8g or --ipc=host."
        yield _graded("shared memory", f"/dev/shm has {size(facts.shm_bytes)}", level, advice)


def _limits(facts: Facts) -> Iterator[Finding]:
    files, processes = facts.limits.get("nofile"), facts.limits.get("nproc")
    locked = facts.limits.get("memlock")
    advice = f"Many ranks and loader workers need more: ulimit -n 65536 (at least {MIN_NOFILE})."
    yield _limit("open files", files, MIN_NOFILE, advice)
    yield _limit("processes", processes, MIN_NPROC, "Threads count too: ulimit -u 65536.")
    if locked is not None and facts.rdma_devices:
        advice = (
            "RDMA pins memory: set memlock to unlimited in /etc/security/limits.conf (containers: --ulimit memlock=-1)."
        )
        yield Finding("locked memory", "fail" if locked < 64 << 20 else "warn", f"limit {size(locked)}", advice)
    else:
        text = "limit none" if locked is None else f"limit {size(locked)}, enough without RDMA"
        yield Finding("locked memory", "ok", text)


def _limit(topic: str, value: int | None, least: int, advice: str) -> Finding:
    if value is None:
        return Finding(topic, "ok", "limit none")
    return _graded(topic, f"limit {value}", "warn" if value < least else "ok", advice)


def _ports(facts: Facts) -> Iterator[Finding]:
    uses = {defaults.MASTER_PORT: "MASTER_PORT", defaults.TENSORFLOW_PORT: "TensorFlow"}
    advice = "Muster takes the next free one; only scripts that fix the number themselves are affected."
    for port, use in uses.items():
        is_taken = port in facts.ports_taken
        text = f"{port} ({use}) is {'taken' if is_taken else 'free'}"
        yield _graded("ports", text, "warn" if is_taken else "ok", advice)


def _interfaces(facts: Facts) -> Iterator[Finding]:
    usable = [interface for interface in facts.interfaces if interface.up]
    if not usable:
        advice = "Runs on this machine work; to join other machines, connect this one to a network."
        yield Finding("network", "warn", "only the loopback interface", advice)
        return
    text = ", ".join(
        f"{interface.name} {interface.address}"
        + (f" {interface.speed_mbit // 1000}G" if interface.speed_mbit >= 1000 else "")
        for interface in usable
    )
    virtual = [interface.name for interface in usable if interface.name.startswith(("docker", "br-", "virbr", "veth"))]
    advice = "These are of containers; other machines do not reach them. Name the right one in NCCL_SOCKET_IFNAME."
    yield _graded("network", text, "ok" if len(usable) > len(virtual) else "warn", advice)


def _rdma(facts: Facts) -> Iterator[Finding]:
    if not facts.rdma_devices:
        yield Finding("rdma", "ok", "none; collectives use TCP")
        return
    active = [name for name, is_active in facts.rdma_devices.items() if is_active]
    asleep = [name for name in facts.rdma_devices if name not in active]
    if active:
        yield Finding("rdma", "ok", ", ".join(active))
    if asleep:
        advice = "Check the cable and the subnet manager (ibstat); NCCL would wait on it."
        yield Finding("rdma", "warn", f"no active port: {', '.join(asleep)}", advice)


def _extras(facts: Facts) -> Iterator[Finding]:
    for extra, version in facts.extras.items():
        if version is None:
            advice = f"Where it is wanted: {install_command(extra)}"
            yield Finding("extras", "ok", f"{extra} is not installed", advice)
        else:
            yield Finding("extras", "ok", f"{extra} {version}")
    yield Finding("extras", "ok", f"mpirun at {facts.mpirun}" if facts.mpirun else "mpirun is not on the PATH")


def _ranks(facts: Facts) -> Iterator[Finding]:
    """What a rank outside of a container can access."""
    if facts.isolation == "sandbox" and facts.sandbox_trouble:
        advice = f"{facts.sandbox_trouble}. Or take `isolation` out of workspace.json."
        yield Finding("ranks", "fail", "the workspace has its ranks run in a sandbox, and there is none here", advice)
    elif facts.isolation == "sandbox":
        yield Finding("ranks", "ok", "run in a sandbox: they see the system, what is their own, and the network")
    else:
        yield Finding("ranks", "ok", f"run as {facts.account or 'you'}, and reach all that this account can")
        if facts.sandbox_trouble:
            yield Finding("sandbox", "ok", f"none: {facts.sandbox_trouble}")
        else:
            yield Finding("sandbox", "ok", "works: `isolation: sandbox` confines the ranks of a job")


def _workspace(facts: Facts) -> Iterator[Finding]:
    folder = facts.workspace
    text = f"{folder.path} on {folder.kind}, {size(folder.free_bytes)} free"
    if not folder.writable:
        advice = "Free some space, or `muster init` in a folder of yours."
        yield Finding("workspace", "fail", f"{folder.path} cannot be written", advice)
    elif folder.free_bytes < GIB:
        yield Finding("workspace", "fail", text, "Logs and outputs are kept there: free some space.")
    elif folder.free_bytes < MIN_FREE_BYTES:
        yield Finding("workspace", "warn", text, "Logs, outputs and checkpoints are kept there: free some space soon.")
    elif folder.kind.lower().startswith(NETWORK_FILESYSTEMS):
        advice = "It works; a folder on a local disk (`muster init`) is faster and survives a broken network."
        yield Finding("workspace", "warn", text, advice)
    else:
        yield Finding("workspace", "ok", text)


def _clock(facts: Facts) -> Iterator[Finding]:
    skew = facts.workspace.clock_skew_s
    if facts.now < YEAR_2025:
        yield Finding("clock", "fail", "it stands before 2025", "Set it (NTP): certificates and tokens fail otherwise.")
    elif skew is not None and abs(skew) > MAX_SKEW_S:
        text = f"the workspace's filesystem is {skew:+.0f} s away from this machine"
        yield Finding("clock", "warn", text, "Synchronise both with NTP; times in logs would not fit together.")
    else:
        yield Finding("clock", "ok", "plausible")
