"""Runs as OTLP messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from muster.telemetry.life import Span, span_id, trace_id
from muster.telemetry.lines import INFO, Line
from muster.version import VERSION
from muster.wire import states
from muster.wire.runs import RunView
from muster.wire.stream import MetricLogged, Note

_LEVELS = {"info": INFO, "warning": ("WARN", 13), "error": ("ERROR", 17)}
_ODD = re.compile(r"[^A-Za-z0-9_.\-/]")
_NAME_LENGTH = 255
_NANO = 1_000_000_000

Attribute = str | int | float | None


@dataclass
class Batch:
    """What is new of one run."""

    run: RunView
    workspace: str
    spans: list[Span] = field(default_factory=list)
    points: list[MetricLogged] = field(default_factory=list)
    lines: list[tuple[float, Line]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.spans) + len(self.points) + len(self.lines) + len(self.notes)

    def bodies(self) -> dict[str, tuple[bytes, int]]:
        """What is sent to each address of the collector, with its number of items."""
        found: dict[str, tuple[bytes, int]] = {}
        if self.spans:
            found["/v1/traces"] = (self._traces(), len(self.spans))
        if points := [point for point in self.points if _number(point) is not None]:
            found["/v1/metrics"] = (self._metrics(points), len(points))
        if self.lines or self.notes:
            found["/v1/logs"] = (self._logs(), len(self.lines) + len(self.notes))
        return found

    def _resource(self) -> Resource:
        run = self.run
        return Resource(
            attributes=_attributes({
                "service.name": "muster",
                "service.version": VERSION,
                "muster.workspace": self.workspace,
                "muster.run.id": run.id,
                "muster.run.name": run.display_name or run.name or run.id,
                "muster.experiment": run.experiment,
                "muster.cluster": run.compute,
                "muster.person": run.submitted_by,
            })
        )  # fmt: skip

    def _traces(self) -> bytes:
        spans = [self._span(span) for span in self.spans]
        scope = ScopeSpans(scope=_SCOPE, spans=spans)
        return bytes(
            ExportTraceServiceRequest(
                resource_spans=[ResourceSpans(resource=self._resource(), scope_spans=[scope])]
            ).SerializeToString()
        )

    def _span(self, span: Span) -> SpanMessage:
        status, attributes = self._status(span)
        made = SpanMessage(
            trace_id=trace_id(self.workspace, self.run.id),
            span_id=span_id(self.run.id, span.key),
            name=f"run {self.run.id}" if span.key == "run" else span.name,
            kind=SpanMessage.SPAN_KIND_INTERNAL,
            start_time_unix_nano=_nano(span.begin),
            end_time_unix_nano=_nano(max(span.begin, span.end)),
            attributes=_attributes({"muster.attempt": span.attempt, **attributes}),
            status=status,
        )
        if span.parent:
            made.parent_span_id = span_id(self.run.id, span.parent)
        return made

    def _status(self, span: Span) -> tuple[Status, Mapping[str, Attribute]]:
        """How the run or one of its attempts ended; nothing for other spans."""
        status, verdict = "", None
        if span.key == "run":
            status, verdict = self.run.status, self.run.verdict
        elif span.parent == "run":
            attempt = next((item for item in self.run.attempts if item.number == span.attempt), None)
            status, verdict = (attempt.status, attempt.verdict) if attempt else ("", None)
        if status not in states.TERMINAL:
            return Status(), {}
        said = {"muster.status": status, "muster.verdict": verdict.code if verdict else None}
        if status == states.FAILED:
            return Status(code=Status.STATUS_CODE_ERROR, message=verdict.message if verdict else ""), said
        return Status(code=Status.STATUS_CODE_OK if status == states.COMPLETED else Status.STATUS_CODE_UNSET), said

    def _metrics(self, points: Sequence[MetricLogged]) -> bytes:
        by_name: dict[str, list[NumberDataPoint]] = {}
        for point in points:
            where = {"muster.rank": point.rank, "muster.attempt": point.attempt, "muster.source": point.source}
            made = NumberDataPoint(
                time_unix_nano=_nano(point.at), as_double=_number(point) or 0.0, attributes=_attributes(where)
            )
            by_name.setdefault(_ODD.sub("_", f"muster.run.{point.name}")[:_NAME_LENGTH], []).append(made)
        metrics = [Metric(name=name, gauge=Gauge(data_points=found)) for name, found in by_name.items()]
        scope = ScopeMetrics(scope=_SCOPE, metrics=metrics)
        return bytes(
            ExportMetricsServiceRequest(
                resource_metrics=[ResourceMetrics(resource=self._resource(), scope_metrics=[scope])]
            ).SerializeToString()
        )

    def _logs(self) -> bytes:
        records = [
            self._record(at, line.text, line.severity, {"muster.rank": line.rank, "muster.attempt": line.attempt})
            for at, line in self.lines
        ]
        records += [
            self._record(note.at, note.text, _LEVELS.get(note.level, INFO), {"muster.event": "note"})
            for note in self.notes
        ]
        scope = ScopeLogs(scope=_SCOPE, log_records=records)
        return bytes(
            ExportLogsServiceRequest(
                resource_logs=[ResourceLogs(resource=self._resource(), scope_logs=[scope])]
            ).SerializeToString()
        )

    def _record(self, at: float, text: str, severity: tuple[str, int], where: Mapping[str, Attribute]) -> LogRecord:
        return LogRecord(
            time_unix_nano=_nano(at),
            observed_time_unix_nano=_nano(at),
            severity_text=severity[0],
            severity_number=severity[1],  # type: ignore[arg-type,unused-ignore]
            body=AnyValue(string_value=text),
            attributes=_attributes(where),
            trace_id=trace_id(self.workspace, self.run.id),
            span_id=span_id(self.run.id, "run"),
        )


_SCOPE = InstrumentationScope(name="muster", version=VERSION)


def _attributes(given: Mapping[str, Attribute]) -> Iterable[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in given.items() if value is not None]


def _value(value: str | int | float) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)


def _number(point: MetricLogged) -> float | None:
    """NaN and its like come as texts; tables and images are not numbers."""
    value = point.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    return float(value)


def _nano(at: float) -> int:
    return min(max(0, int(at * _NANO)), (1 << 63) - 1)
