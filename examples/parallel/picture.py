"""Draws what ranks did when: `python picture.py outputs/timeline.json --to schedule.svg`.

With --even it draws a pipeline's order as it was run, on machines where a forward takes one unit of time and a backward
two: what the schedule is, without what else the machine did. It says how much of the time the ranks had nothing to do.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from timeline import Span

COLOURS = {
    "forward": "#4c78a8",
    "backward": "#59a14f",
    "update": "#b07aa1",
    "exchange": "#f28e2b",
    "wait": "#e5e5e5",
    "pause": "#e15759",
}
Task = tuple[str, int, int]


def even(spans: list[Span]) -> list[Span]:
    """The same order on every rank, with even times: a span starts when its rank is free and its inputs are ready."""
    queues: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.begin):
        if span.microbatch is not None:
            queues[span.rank].append(span)
    if not queues:
        raise SystemExit("--even is for pipelines: the recording has no micro-batches")
    stages = 1 + max(span.stage for queue in queues.values() for span in queue)
    # With several stages on a rank, each is a part of its layers; several ranks of one stage take as long as one.
    unit = min(1.0, len(queues) / stages)
    done: dict[Task, float] = {}
    free = dict.fromkeys(queues, 0.0)
    found = []
    while any(queues.values()):
        ready = [rank for rank, queue in queues.items() if queue and all(n in done for n in needs(queue[0], stages))]
        if not ready:
            raise SystemExit("the recording is not whole: something in it waits for what is not there")
        for rank in ready:
            span = queues[rank].pop(0)
            begin = max([free[rank], *(done[need] for need in needs(span, stages))])
            end = begin + (unit if span.kind == "forward" else 2 * unit)
            free[rank] = done[name_of(span)] = end
            found.append(replace(span, begin=begin, end=end))
    return found


def name_of(span: Span) -> Task:
    return span.kind, span.stage, span.microbatch or 0


def needs(span: Span, stages: int) -> list[Task]:
    """The tasks that must be done before, on another rank or on this one."""
    number = span.microbatch or 0
    if span.kind == "forward":
        return [("forward", span.stage - 1, number)] if span.stage else []
    behind = [("backward", span.stage + 1, number)] if span.stage + 1 < stages else []
    return [("forward", span.stage, number), *behind]


def idle_share(spans: list[Span]) -> float:
    """The share of the time, from the first span to the last, in which ranks are idle."""
    ranks = {span.rank for span in spans}
    begin, end = min(span.begin for span in spans), max(span.end for span in spans)
    busy = sum(span.end - span.begin for span in spans if span.kind in ("forward", "backward", "update"))
    return 1 - busy / (len(ranks) * (end - begin))


def most_kept(spans: list[Span]) -> int:
    """The most activations that any rank keeps, in micro-batches through all of its layers: backward not yet done."""
    most = 0.0
    for rank in {span.rank for span in spans}:
        own = sorted((span for span in spans if span.rank == rank), key=lambda span: span.begin)
        kept, stages = 0, len({span.stage for span in own})
        for span in own:
            kept += {"forward": 1, "backward": -1}.get(span.kind, 0)
            most = max(most, kept / stages)
    return round(most)


def draw(spans: list[Span], title: str, path: Path, *, in_seconds: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    ranks = 1 + max(span.rank for span in spans)
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "muster", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 0.9 + 0.42 * ranks), layout="constrained")
        axes = figure.subplots()
        # Exchanges happen inside forward and backward, so draw them on top, with less height.
        for span in sorted(spans, key=lambda span: list(COLOURS).index(span.kind)):
            height = 0.35 if span.kind == "exchange" else 0.8
            second = span.stage >= ranks
            axes.barh(
                span.rank, span.end - span.begin, left=span.begin, height=height, color=COLOURS[span.kind],
                alpha=0.6 if second else 1.0, edgecolor="white", linewidth=0.4,
            )  # fmt: skip
            if not in_seconds and span.microbatch is not None:
                middle = (span.begin + span.end) / 2
                axes.text(
                    middle, span.rank, str(span.microbatch + 1), ha="center", va="center", fontsize=7, color="white"
                )
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        axes.invert_yaxis()
        axes.set_xlabel("seconds" if in_seconds else "time, in forwards of a rank")
        axes.set_title(title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        kinds = [kind for kind in COLOURS if any(span.kind == kind for span in spans)]
        figure.legend(
            handles=[Patch(color=COLOURS[kind], label=kind) for kind in kinds],
            loc="outside lower right", ncols=len(kinds), frameon=False, fontsize=8,
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("timeline", type=Path)
    arguments.add_argument("--to", type=Path, default=Path("schedule.svg"), help="an SVG, PNG or PDF file")
    arguments.add_argument("--title", default="")
    arguments.add_argument("--even", action="store_true", help="a pipeline's order, with even times")
    arguments.add_argument("--window", type=float, nargs=2, metavar=("FROM", "TO"), help="seconds to draw")
    args = arguments.parse_args()
    spans = [Span(**entry) for entry in json.loads(args.timeline.read_text())]
    if args.window:
        begin, end = args.window
        cut = [replace(span, begin=max(span.begin, begin), end=min(span.end, end)) for span in spans]
        spans = [span for span in cut if span.begin < span.end]
    if not spans:
        raise SystemExit(f"{args.timeline} has nothing to draw there; record with --timeline")
    if args.even:
        spans = even(spans)
        print(f"idle {idle_share(spans):.0%}, activations kept of at most {most_kept(spans)} micro-batches")
    draw(spans, args.title, args.to, in_seconds=not args.even)


if __name__ == "__main__":
    main()
