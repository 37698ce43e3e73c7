"""How often verdicts are right: `python -m tests.verdicts.report FOLDER…` prints the score of any folder of cases with
each miss; without a folder it writes the tables of docs/verdicts.md again. README.md says what is scored, and how."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster.agent.run.stacks import complains
from muster.diagnosis.passages import shortened
from muster.diagnosis.verdict import judge
from muster.wire.codec import from_json
from muster.wire.verdicts import Evidence, Verdict

HERE = Path(__file__).parent
FOLDERS = ("corpus", "learning", "unseen")
DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"
_STACK = re.compile(
    r"muster: where rank \d+ \(process \d+\) was when it was stopped:\n"
    r'|^(?:Current thread|Thread) 0x[0-9a-f]+ .*\n|^  File "[^"]*", line \d+ in .*\n'
    r'|^  (?:Garbage-collecting|<no Python frame>|\.\.\.)\n|^muster: "[^"]*" line \d+: .*\n',
    re.M,
)
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"


@dataclass(frozen=True)
class Score:
    """One case and what was said of it; None: not asked."""

    case: dict[str, Any]
    verdict: Verdict
    seconds: float
    code: bool
    strict: bool
    """The code is the very one of the label, not one that an expert would accept as well."""
    rank: bool | None
    line: bool | None
    step: str | None
    """helpful, misleading, none or other."""
    bare_rank: bool | None
    bare_line: bool | None


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:] if not name.startswith("-")]
    if not folders:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), tables()))
        return
    for folder in folders:
        scores = [score(case) for case in load(folder)]
        print(f"\n{folder}\n")
        for line in misses(scores) if "-q" not in sys.argv else ():
            print(line)
        print(table(scores, lambda item: str(item.case["convention"]), "launcher"))
        print(table(scores, lambda item: str(item.case["code"]), "true cause"))


def load(folder: Path = HERE / "corpus") -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def judged(case: dict[str, Any]) -> Verdict:
    """The verdict of a case, from as much of its logs as the server would look at."""
    return judge(as_seen(case))


def as_seen(case: dict[str, Any]) -> Evidence:
    """The evidence of a case as the server would look at it."""
    evidence = from_json(Evidence, case["evidence"])
    ranks = evidence.ranks
    # The recorder always asks for stacks; a keeper does so at a time limit and where a failed rank complains of others.
    if evidence.stop_reason == "rank_failed" and not any(complains(r.tail.encode()) for r in ranks if r.failed):
        ranks = tuple(replace(rank, tail=_without_stacks(rank.tail)) for rank in ranks)
    return replace(evidence, ranks=tuple(replace(rank, tail=shortened(rank.tail, rank)) for rank in ranks))


def _without_stacks(tail: str) -> str:
    before, mark, after = tail.partition("muster: where rank ")
    return before + _STACK.sub("", mark + after)


def score(case: dict[str, Any]) -> Score:
    began = time.perf_counter()
    verdict = judged(case)
    seconds = time.perf_counter() - began
    rank_right = None
    if case["num_ranks"] > 1 if "wanted" in case else case["rank"] is not None:
        rank_right = is_right(case, verdict.rank)
    bare_rank, bare_text = bare(case)
    wanted = case.get("wanted")
    return Score(
        case,
        verdict,
        seconds,
        verdict.code in (case["code"], *case.get("also_codes", ())),
        verdict.code == case["code"],
        rank_right,
        _has(verdict.message, wanted) if wanted else None,
        _step(verdict.next, case) if wanted is not None else None,
        is_right(case, bare_rank) if rank_right is not None else None,
        _has(bare_text, wanted) if wanted else None,
    )


def is_right(case: dict[str, Any], rank: int | None) -> bool:
    """Whether the right rank is named; where all are to blame alike, it is as right to name none."""
    guilty = {case["rank"], *case["also"]} - {None}
    return rank in guilty or (rank is None and (case["rank"] is None or len(guilty) >= case["num_ranks"]))


def bare(case: dict[str, Any]) -> tuple[int | None, str]:
    """What the tools themselves say: the launcher's report, or the end of what the first process to fail printed."""
    ranks = case["evidence"]["ranks"]
    failed = [rank for rank in ranks if not rank.get("expected") and (rank["exit_code"] or rank["signal"])] or ranks[:1]
    if not failed:
        return None, ""
    text = failed[0]["tail"]
    for pattern in (
        r"Root Cause \(first observed failure\):[\s\S]{0,300}?rank\s*:\s*(\d+)",
        r"process rank (\d+) with PID",
        r"MPI_ABORT was invoked on rank (\d+)",
        r"Process name: \[[^\]\n]*,\s*(\d+)\]",
    ):
        if found := re.search(pattern, "\n".join(rank["tail"] for rank in failed)):
            return int(found[1]), text[-2000:]
    return failed[0]["rank"], "\n".join([line for line in text.split("\n") if line.strip()][-3:])


def _has(text: str, wanted: Sequence[str]) -> bool:
    squeezed = " ".join(text.split())
    return any(" ".join(item.split()) in squeezed for item in wanted)


def _step(said: str, case: dict[str, Any]) -> str:
    if any(re.search(pattern, said, re.I) for pattern in case.get("misleading", ())):
        return "misleading"
    if any(re.search(pattern, said, re.I) for pattern in case.get("helpful", ())):
        return "helpful"
    return "other" if said else "none"


def misses(scores: Iterable[Score]) -> Iterable[str]:
    for item in scores:
        wrong = [
            what
            for what, bad in (
                (f"code {item.case['code']}", not item.code),
                (f"rank {item.case['rank']}", item.rank is False),
                (f"line {item.case.get('wanted')}", item.line is False),
                ("MISLEADING", item.step == "misleading"),
                ("no help", item.step in ("none", "other") and bool(item.case.get("helpful"))),
                (f"{item.seconds:.2f} s", item.seconds > 0.5),
            )
            if bad
        ]
        if wrong:
            said = item.verdict
            yield f"{item.case['name']}: {'; '.join(wrong)}\n    {said.code} rank {said.rank}: {said.message[:300]}"
            yield f"    next: {said.next}"


def table(scores: Sequence[Score], by: Callable[[Score], str], what: str) -> str:
    groups: dict[str, list[Score]] = defaultdict(list)
    for item in scores:
        groups[by(item)].append(item)
    lines = [
        f"| {what} | cases | code right | the very code | rank right (bare tool) | wanted line (bare tool) "
        "| next step: helpful, none, misleading |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted(groups):
        lines.append(_row(f"`{name}`", groups[name]))
    lines.append(_row("**all**", scores))
    return "\n".join(lines) + "\n"


def _row(name: str, scores: Sequence[Score]) -> str:
    code = _share([item.code for item in scores], name)
    strict = _share([item.strict for item in scores], name)
    rank = _of([item.rank for item in scores], [item.bare_rank for item in scores])
    line = _of([item.line for item in scores], [item.bare_line for item in scores])
    steps = [item.step for item in scores if item.step is not None]
    step = ""
    if steps:
        counts = [steps.count("helpful"), steps.count("none") + steps.count("other"), steps.count("misleading")]
        step = f"{counts[0]}, {counts[1]}, {counts[2]} of {len(steps)}"
    return f"| {name} | {len(scores)} | {code} | {strict} | {rank} | {line} | {step} |"


def _share(right: Sequence[bool], name: str) -> str:
    count = sum(right)
    return f"{count} ({100 * count / len(right):.1f} %)" if name.startswith("**") else str(count)


def _of(right: Sequence[bool | None], bare_right: Sequence[bool | None]) -> str:
    asked = [item for item in right if item is not None]
    return f"{sum(asked)} of {len(asked)} ({sum(bool(item) for item in bare_right)})" if asked else ""


def tables() -> str:
    """Of the cases that nobody wrote a rule for, and of those that the rules were written with."""
    text = ""
    for folder, title in (
        ("unseen", "Failures that the rules had not seen"),
        ("learning", "Failures that the rules were written with"),
        ("corpus", "Failures recorded through a server and its agents"),
    ):
        scores = [score(case) for case in load(HERE / folder)]
        if not scores:
            continue
        text += f"\n**{title}**, by launcher and by cause:\n\n"
        text += table(scores, lambda item: str(item.case["convention"]), "launcher") + "\n"
        text += table(scores, lambda item: str(item.case["code"]), "true cause")
        if folder != "corpus":
            text += f"\n{worse(scores)}\n"
    return text + "\n"


def worse(scores: Sequence[Score]) -> str:
    """Against the bare tool: where a verdict, with all that it shows, says less."""
    lines = sum(bool(item.bare_line) and not _shows(item) for item in scores)
    ranks = sum(bool(item.bare_rank) and item.rank is False for item in scores)
    return (
        f"The message and the lines below it lack the wanted line in {lines} cases in which the bare tool's last lines "
        f"have it; the bare tool names the right rank in {ranks} cases in which the verdict does not."
    )


def _shows(item: Score) -> bool:
    return _has("\n".join((item.verdict.message, *item.verdict.lines)), item.case["wanted"])


def with_table(text: str, made: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + made + END + after


if __name__ == "__main__":
    main()
