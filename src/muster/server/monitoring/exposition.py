"""Facts in Prometheus's format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from muster.server.monitoring.endpoints import EndpointFigures
from muster.server.monitoring.facts import ActiveRun, Facts
from muster.version import VERSION
from muster.wire.serving.endpoints import EndpointView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RUN = ("run", "name", "experiment", "cluster", "person")


def exposition(
    facts: Facts, now: float, commits: int, agents: int, trouble: str, endpoints: Sequence[EndpointView] = ()
) -> bytes:
    """All figures as text."""
    registry = CollectorRegistry()
    ProcessCollector(namespace="muster_server", registry=registry)
    registry.register(_Figures(facts, now, commits, agents, trouble))
    registry.register(EndpointFigures(endpoints))
    return generate_latest(registry)


class _Figures(Collector):
    """The figures of one moment."""

    def __init__(self, facts: Facts, now: float, commits: int, agents: int, trouble: str) -> None:
        self._facts, self._now = facts, now
        self._commits, self._agents, self._trouble = commits, agents, trouble

    def collect(self) -> Iterator[Metric]:
        facts = self._facts
        yield InfoMetricFamily("muster_server", "The server.", value={"version": VERSION})
        yield CounterMetricFamily("muster_database_commits", "Commits since the server started.", self._commits)
        yield GaugeMetricFamily("muster_agents", "Agents that are connected.", self._agents)
        yield GaugeMetricFamily(
            "muster_trouble", "1 where a person has to see to the server.", float(bool(self._trouble))
        )
        runs = GaugeMetricFamily("muster_runs", "Runs by state.", labels=("status",))
        for status, count in facts.runs.items():
            runs.add_metric((status,), count)
        yield runs
        queued = GaugeMetricFamily("muster_queued_runs", "Queued runs, by cluster.", labels=("cluster",))
        for cluster, count in facts.queued.items():
            queued.add_metric((cluster,), count)
        yield queued
        waits = GaugeMetricFamily(
            "muster_queue_wait_seconds", "How long the first in the queue has waited.", labels=("cluster",)
        )
        for cluster, since in facts.waiting_since.items():
            waits.add_metric((cluster,), max(0.0, self._now - since))
        yield waits
        nodes = GaugeMetricFamily("muster_nodes", "Nodes by state.", labels=("cluster", "state"))
        for (cluster, state), count in facts.nodes.items():
            nodes.add_metric((cluster, state), count)
        yield nodes
        yield from self._of_runs()

    def _of_runs(self) -> Iterator[Metric]:
        seconds = GaugeMetricFamily("muster_run_seconds", "How long an active run has run.", labels=_RUN)
        done = GaugeMetricFamily("muster_run_progress_done", "The progress of an active run.", labels=_RUN)
        total = GaugeMetricFamily("muster_run_progress_total", "The total of its progress.", labels=_RUN)
        metrics = GaugeMetricFamily(
            "muster_run_metric", "The last value that an active run, or its node, logged.", labels=(*_RUN, "metric")
        )
        for run in self._facts.active:
            labels = _labels(run)
            if run.started_at is not None:
                seconds.add_metric(labels, max(0.0, self._now - run.started_at))
            if run.progress is not None and run.progress.done is not None:
                done.add_metric(labels, run.progress.done)
            if run.progress is not None and run.progress.total is not None:
                total.add_metric(labels, run.progress.total)
            for name, value in run.metrics.items():
                metrics.add_metric((*labels, name), value)
        yield from (seconds, done, total, metrics)


def _labels(run: ActiveRun) -> tuple[str, ...]:
    return (run.id, run.name, run.experiment, run.cluster, run.person)
