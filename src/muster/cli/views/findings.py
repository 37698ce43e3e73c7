"""Findings of a check as lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.cli.console import Paint
from muster.cli.text import wrapped
from muster.wire.clusters import Finding


def finding_lines(findings: Sequence[Finding], paint: Paint, room: int | None = None) -> list[str]:
    """A line for each finding, fitted to a width, and one for each advice."""
    colors = {"ok": "green", "warn": "yellow", "fail": "red"}
    widest = max(len(finding.topic) for finding in findings)
    lines = []
    for finding in findings:
        first, *rest = wrapped(finding.said, room, widest + 8)
        lines.append(f"{paint(finding.level.ljust(4), colors[finding.level])}  {finding.topic.ljust(widest)}  {first}")
        lines += [f"{'':{widest + 8}}{line}" for line in rest]
        if finding.advice:
            first, *rest = wrapped(finding.advice, room, widest + 10)
            lines.append(f"{'':{widest + 8}}{paint('→', 'dim')} {first}")
            lines += [f"{'':{widest + 10}}{line}" for line in rest]
    return lines
