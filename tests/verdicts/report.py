"""The confusion table of docs/verdicts.md: `python -m tests.verdicts.report` writes it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.control.verdict import judge
from muster.wire.codec import from_json
from muster.wire.verdicts import Evidence

CORPUS = Path(__file__).with_name("corpus")
DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"


def main() -> None:
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), table(load())))


def load() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(CORPUS.glob("*.json"))]


def table(cases: Sequence[dict[str, Any]]) -> str:
    """True causes down, what was said across; only where they differ is a second column needed."""
    said: dict[str, Counter[str]] = {}
    ranks_right: Counter[str] = Counter()
    ranks_asked: Counter[str] = Counter()
    for case in cases:
        verdict = judge(from_json(Evidence, case["evidence"]))
        said.setdefault(case["code"], Counter())[verdict.code] += 1
        if case["rank"] is not None:
            ranks_asked[case["code"]] += 1
            ranks_right[case["code"]] += verdict.rank in (case["rank"], *case["also"])
    lines = ["| true cause | cases | judged so | judged as something else | rank right |", "|---|---|---|---|---|"]
    for code in sorted(said):
        others = ", ".join(f"{other} {count}" for other, count in sorted(said[code].items()) if other != code)
        asked = f"{ranks_right[code]} of {ranks_asked[code]}" if ranks_asked[code] else ""
        lines.append(f"| `{code}` | {said[code].total()} | {said[code][code]} | {others} | {asked} |")
    right = sum(counts[code] for code, counts in said.items())
    lines.append(
        f"| **all** | {len(cases)} | {right} ({100 * right / len(cases):.1f} %) | {len(cases) - right} "
        f"| {ranks_right.total()} of {ranks_asked.total()} |"
    )
    return "\n".join(lines) + "\n"


def with_table(text: str, made: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + made + END + after


if __name__ == "__main__":
    main()
