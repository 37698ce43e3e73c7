"""States as spans, output as lines, and where telemetry goes: without a collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import UserError
from muster.server.monitoring.settings import read_telemetry
from muster.telemetry import position
from muster.telemetry.life import Life, Span, enter
from muster.telemetry.lines import Line, Unfinished
from muster.telemetry.position import Position, RunPosition


def live(*moments: tuple[str, float]) -> tuple[Life, list[Span]]:
    life, spans = Life(), list[Span]()
    for status, at in moments:
        life, ended = enter(life, status, at, created_at=1.0)
        spans += ended
    return life, spans


def test_every_state_and_attempt_is_a_span_and_none_twice() -> None:
    _, spans = live(
        ("Queued", 1), ("Preparing", 2), ("Preparing", 2.5), ("Running", 3), ("Finalizing", 5), ("Queued", 6),
        ("Running", 7), ("Completed", 9),
    )  # fmt: skip
    assert [(span.name, span.begin, span.end, span.attempt) for span in spans] == [
        ("queued", 1, 2, 1), ("preparing", 2, 3, 1), ("running", 3, 5, 1), ("finalizing", 5, 6, 1),
        ("attempt 1", 1, 6, 1), ("queued", 6, 7, 2), ("running", 7, 9, 2), ("attempt 2", 6, 9, 2), ("run", 1, 9, None),
    ]  # fmt: skip
    assert len({span.key for span in spans}) == len(spans)
    assert {span.parent for span in spans} == {"", "run", "attempt 1", "attempt 2"}


def test_a_run_that_is_retried_after_its_end_has_another_attempt() -> None:
    life, spans = live(("Queued", 1), ("Failed", 2), ("Queued", 10), ("Running", 11), ("Completed", 12))
    assert [span.name for span in spans if span.name.startswith(("attempt", "run "))] == ["attempt 1", "attempt 2"]
    assert [(span.begin, span.end) for span in spans if span.key == "run"] == [(1.0, 2), (1.0, 12)]
    assert life.attempt == 2


def test_lines_come_whole_without_colours_and_bars_with_what_they_showed_last() -> None:
    unfinished = Unfinished()
    assert unfinished.feed(1, "user_logs/std_log_process_3.txt", b"\x1b[31mfirst\x1b[0m\nsec") == [
        Line("first", "user_logs/std_log_process_3.txt", 1)
    ]
    again = Unfinished(dict(unfinished.ends))
    found = again.feed(1, "user_logs/std_log_process_3.txt", b"ond\r\n 10%\r 20%\n\n")
    assert [line.text for line in found] == ["second", " 20%"]
    assert found[0].rank == 3
    assert again.feed(1, "user_logs/std_log.txt", b"x" * 20_000)[0].rank is None
    again.feed(2, "user_logs/std_log.txt", b"last")
    assert [(line.text, line.attempt) for line in again.finish()] == [("last", 2)]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("2026-01-01 ERROR no", "ERROR"), ("Traceback (most recent call last):", "ERROR"), ("KeyError: 'x'", "ERROR"),
        ("[WARNING] hm", "WARN"), ("DeprecationWarning: old", "WARN"), ("CRITICAL", "FATAL"), ("DEBUG:x", "DEBUG"),
        ("loss 0.1 error 0.2", "INFO"), ("no errors", "INFO"),
    ],
)  # fmt: skip
def test_the_severity_is_that_of_the_words_that_logging_writes(text: str, severity: str) -> None:
    assert Line(text, "", 1).severity[0] == severity


def test_positions_survive_and_damaged_ones_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.json"
    kept = Position(5.0, {"r": RunPosition("c", Life("Running", 2.0, 1, 1.0), {"1/x": "eA=="}, 0.0)})
    position.save(path, kept)
    assert position.load(path, 9.0) == kept
    for damage in ("", "[]", '{"since": "x"}', '{"since": 1, "runs": {"r": 5}}'):
        path.write_text(damage)
        assert position.load(path, 9.0) == Position(9.0)


def test_only_the_last_ended_runs_are_remembered() -> None:
    many = Position(0.0, {f"r{index}": RunPosition(ended_at=float(index + 1)) for index in range(1005)})
    many.runs["active"] = RunPosition()
    many.forget_old()
    assert len(many.runs) == 1001 and "r4" not in many.runs and "active" in many.runs


def test_the_collector_is_named_in_three_ways() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318", "OTEL_EXPORTER_OTLP_HEADERS": "k=v%20w, x = y"}
    found = read_telemetry(None, None, environ)
    assert found and found.endpoint == "http://a:4318" and found.headers == {"k": "v w", "x": "y"}
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in environ, "ranks would inherit it"
    found = read_telemetry("https://b", {"endpoint": "http://c"}, environ)
    assert found and found.endpoint == "https://b"
    assert read_telemetry(None, None, {}) is None
    assert read_telemetry(None, None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}) is None


@pytest.mark.parametrize(
    "config", [{}, {"endpoint": 5}, {"endpoint": "http://a", "x": 1}, "http://a", {"endpoint": "a:1"}]
)
def test_a_wrong_setting_is_refused_at_the_start(config: object) -> None:
    with pytest.raises(UserError, match="otlp"):
        read_telemetry(None, config, {})  # type: ignore[arg-type]
