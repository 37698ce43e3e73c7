"""An attempt's job in its cluster's queue, as text. Pure."""

from __future__ import annotations

from muster.cli.text import duration, size
from muster.wire.queue_jobs import JobUsage, QueueJob
from muster.wire.runs import RunView


def queue_job(view: RunView) -> QueueJob | None:
    """The job of a run's last attempt."""
    return view.attempts[-1].queue_job if view.attempts else None


def rows(job: QueueJob | None) -> list[tuple[str, str]]:
    """Labels and texts: its queue, its usage, its link."""
    if job is None:
        return []
    where = [
        f"{label} {value}"
        for label, value in (("partition", job.partition), ("account", job.account), ("QOS", job.qos))
        if value
    ]
    state = [job.state + (f" ({job.reason})" if job.reason and job.state else ""), *where]
    if job.nodes:
        state.append(f"nodes {job.nodes}")
    used = usage(job.usage) if job.usage else f"not known: {job.usage_note}" if job.usage_note else ""
    return [("queue", ", ".join(filter(None, state))), ("used", used), ("dashboard", job.link)]


def usage(used: JobUsage) -> str:
    """`1m 02s, 58s of CPU, 1.2 GB of memory at most, 3.4 kJ, COMPLETED with exit code 0:0`."""
    parts = [
        duration(used.elapsed_s),
        f"{duration(used.cpu_s)} of CPU" if used.cpu_s is not None else "",
        f"{size(used.memory_peak_bytes)} of memory at most" if used.memory_peak_bytes else "",
        f"{used.energy_j / 1000:.1f} kJ" if used.energy_j else "",
        f"{used.state} with exit code {used.exit_code}",
    ]
    return ", ".join(filter(None, parts))
