"""Figures of endpoints in Prometheus's format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from muster.wire.serving.endpoints import DeploymentView, EndpointView, ServingFigures

_OF = ("endpoint", "deployment")


class EndpointFigures(Collector):
    """The figures of all deployments; counters restart with the front door's process."""

    def __init__(self, endpoints: Sequence[EndpointView]) -> None:
        self._deployments = [item for endpoint in endpoints for item in endpoint.deployments]

    def collect(self) -> Iterator[Metric]:
        traffic = GaugeMetricFamily("muster_deployment_traffic_percent", "Its share of the traffic.", labels=_OF)
        ready = GaugeMetricFamily("muster_deployment_replicas_ready", "Replicas that answer.", labels=_OF)
        restarts = GaugeMetricFamily("muster_deployment_replica_restarts", "Replicas that were restarted.", labels=_OF)
        for item in self._deployments:
            traffic.add_metric(_labels(item), item.traffic)
            ready.add_metric(_labels(item), item.ready)
            restarts.add_metric(_labels(item), item.replicas.restarts if item.replicas else 0)
        yield from (traffic, ready, restarts)
        yield from self._of_requests()

    def _of_requests(self) -> Iterator[Metric]:
        answers = CounterMetricFamily("muster_deployment_answers", "Answers by code.", labels=(*_OF, "code"))
        latency = GaugeMetricFamily(
            "muster_deployment_latency_seconds", "Latency of requests in the last minute.", labels=(*_OF, "quantile")
        )
        queue = GaugeMetricFamily(
            "muster_deployment_queue_seconds", "The 95th percentile of waiting times.", labels=_OF
        )
        batch = GaugeMetricFamily("muster_deployment_batch_size", "The average batch size of the model.", labels=_OF)
        open_now = GaugeMetricFamily("muster_deployment_requests_open", "Requests under way.", labels=_OF)
        for item in self._deployments:
            requests, model = item.requests, item.replicas or ServingFigures(item.name)
            batch.add_metric(_labels(item), model.batch_mean)
            if requests is None:
                continue
            for code, count in requests.codes.items():
                answers.add_metric((*_labels(item), code), count)
            for quantile, value in (("0.5", requests.p50_ms), ("0.95", requests.p95_ms), ("0.99", requests.p99_ms)):
                latency.add_metric((*_labels(item), quantile), value / 1000)
            queue.add_metric(_labels(item), max(requests.queue_p95_ms, model.queue_p95_ms) / 1000)
            open_now.add_metric(_labels(item), requests.in_flight)
        yield from (answers, latency, queue, batch, open_now)


def _labels(item: DeploymentView) -> tuple[str, str]:
    return (item.endpoint, item.name)
