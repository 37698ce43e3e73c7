"""Exports what is new of runs: read as any client would, sent, and only then marked as exported."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.api import Client
from muster.errors import MusterError, NotFound
from muster.host.http import Address, Connection
from muster.telemetry import position
from muster.telemetry.life import enter
from muster.telemetry.lines import Unfinished
from muster.telemetry.messages import Batch
from muster.telemetry.position import RunPosition
from muster.wire import states
from muster.wire.notifications.telemetry import TelemetryOrder, TelemetryReport
from muster.wire.runs import RunView
from muster.wire.stream import LogPiece, MetricLogged, Note, RunEnded, StateChanged

_POST_S = 10.0
_BATCH_ITEMS, _BATCHES = 4000, 10
_CLOCKS_S = 60.0
_FOR_EVER = (400, 404, 405, 413, 415, 422)
"""Statuses that a retry would not change."""


class Unavailable(Exception):
    """The collector does not accept anything now."""


class Exporter:
    """One collector, and how far the export of each run is."""

    def __init__(self, order: TelemetryOrder, client: Client) -> None:
        self._order = order
        self._client = client
        self._path = Path(order.position)
        self._position = position.load(self._path, time.time())
        self._refused = 0
        self._is_behind = False

    def look(self) -> TelemetryReport:
        """Export what is new; whatever fails is retried in the next round."""
        trouble, self._is_behind = "", False
        try:
            for run in self._due():
                self._export(run)
        except Unavailable as error:
            trouble = f"the collector {self._shown} does not take telemetry: {error}"
        except MusterError as error:
            trouble = f"telemetry cannot be read: {error.message}"
        return TelemetryReport(self._is_behind or bool(trouble), trouble, self._refused)

    @property
    def _shown(self) -> str:
        return Address(self._order.endpoint).shown

    def _due(self) -> list[RunView]:
        """Runs that are active, and ended ones whose end was not exported yet."""
        found = {run.id: run for run in self._client.each_run(status=sorted(states.ACTIVE | {states.QUEUED}))}
        for run in self._client.each_run(since=self._position.since - _CLOCKS_S):
            found.setdefault(run.id, run)
        for run_id, known in list(self._position.runs.items()):
            if run_id not in found and not known.ended_at:
                try:
                    found[run_id] = self._client.run(run_id)
                except NotFound:
                    del self._position.runs[run_id]
        self._position.since = max([self._position.since, *(run.created_at for run in found.values())])
        return [run for run in found.values() if self._is_due(run)]

    def _is_due(self, run: RunView) -> bool:
        known = self._position.runs.get(run.id)
        return known is None or not known.ended_at or run.ended_at != known.ended_at

    def _export(self, run: RunView) -> None:
        """What is new of a run, part by part."""
        known = self._position.runs.get(run.id, RunPosition())
        for number, (batch, after) in enumerate(self._batches(run, known), 1):
            if len(batch):
                self._send(batch)
            self._position.runs[run.id] = after
            position.save(self._path, self._position)
            if number >= _BATCHES:
                # So that other runs get their turn.
                self._is_behind = True
                return

    def _batches(self, run: RunView, known: RunPosition) -> Iterator[tuple[Batch, RunPosition]]:
        """Batches of what is new, each with the position after it."""
        batch, after, now = Batch(run, self._order.workspace), _copy(known), time.time()
        lines = Unfinished(after.unfinished)
        for item in self._client.stream(run.id, known.cursor or None, follow=False):
            event = item.event
            if isinstance(event, StateChanged):
                after.life, ended = enter(after.life, event.status, event.at, run.created_at)
                batch.spans += ended
            elif isinstance(event, MetricLogged):
                batch.points.append(event)
            elif isinstance(event, Note):
                batch.notes.append(event)
            elif isinstance(event, LogPiece):
                batch.lines += [(now, line) for line in lines.feed(event.attempt, event.stream, event.data)]
            elif isinstance(event, RunEnded):
                batch.lines += [(now, line) for line in lines.finish()]
                batch.run = self._client.run(run.id)
                after.ended_at = batch.run.ended_at or now
            after.cursor = item.cursor or after.cursor
            if len(batch) >= _BATCH_ITEMS:
                yield batch, _copy(after)
                batch = Batch(batch.run, self._order.workspace)
        if len(batch) or after.cursor != known.cursor or after.ended_at != known.ended_at:
            yield batch, after

    def _send(self, batch: Batch) -> None:
        parts = urlsplit(self._order.endpoint)
        connection = Connection(Address(f"{parts.scheme}://{parts.netloc}"), _POST_S, external=True)
        headers = {"Content-Type": "application/x-protobuf", **self._order.headers}
        try:
            for path, (body, count) in batch.bodies().items():
                target = parts.path.rstrip("/") + path
                with connection.exchange("POST", target, body=body, headers=headers) as answer:
                    answer.read()
                    if answer.status in _FOR_EVER:
                        self._refused += count
                    elif not 200 <= answer.status < 300:
                        raise Unavailable(f"HTTP {answer.status}")
        except (OSError, http.client.HTTPException, MusterError) as error:
            raise Unavailable(str(error)) from error
        finally:
            connection.close()


def _copy(known: RunPosition) -> RunPosition:
    return replace(known, unfinished=dict(known.unfinished), ended_at=0.0)
