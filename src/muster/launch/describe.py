"""A plan as text: what `--dry-run` prints, and the phrases that notices share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from muster.launch.expand import expand, parse
from muster.wire.node.plan import NodePlan, Plan, RankPlan


def describe(plan: Plan) -> str:
    """Every node and rank with its command, ready to paste, its log and its variables; common ones once."""
    shared = _shared(plan.ranks)
    lines = [f"{counted(len(plan.nodes), 'node')}, {counted(len(plan.ranks), 'process')}"]
    lines += [f"notice: {notice}" for notice in plan.notices]
    if shared:
        lines += ["", "every rank:", *_variables(shared, "  ")]
    for node in plan.nodes:
        lines += ["", *_node(node, shared)]
    return "\n".join(lines) + "\n"


def command_line(rank: RankPlan) -> str:
    """A rank's command for a shell, with the variables that the plan knows substituted."""
    if not rank.expand:
        return shlex.join(rank.argv)
    return " ".join(_quoted(element, rank.env) for element in rank.argv)


def _shared(ranks: Sequence[RankPlan]) -> Mapping[str, str]:
    """The variables that have the same value in all ranks, where there are several."""
    if len(ranks) < 2:
        return {}
    first, *others = (rank.env for rank in ranks)
    return {name: value for name, value in first.items() if all(env.get(name) == value for env in others)}


def _variables(env: Mapping[str, str], margin: str) -> Iterator[str]:
    return (f"{margin}{name}={shlex.quote(value)}" for name, value in env.items())


def _node(node: NodePlan, shared: Mapping[str, str]) -> Iterator[str]:
    gpus = f", GPUs {','.join(node.gpus)}" if node.gpus else ""
    yield f"node {node.node_rank}: {node.name} ({node.address}{gpus})"
    for rank in node.ranks:
        yield f"  rank {rank.rank}: {_part(rank)}"
        yield f"    command: {command_line(rank)}"
        yield f"    log: {rank.log}"
        yield from _variables({name: value for name, value in rank.env.items() if name not in shared}, "    ")


def _part(rank: RankPlan) -> str:
    started = "started by the launcher" if rank.wrapped else ""
    ended = "" if rank.essential else "stopped when the essential ranks have ended"
    return ", ".join(filter(None, (rank.role, started, ended)))


def _quoted(element: str, env: Mapping[str, str]) -> str:
    """One argument; a variable that only the node knows stays a reference, inside double quotes."""
    parts = parse(element)
    if all(isinstance(part, str) or part.name in env for part in parts):
        return shlex.quote(expand(element, env))
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += _inside_quotes(part)
        else:
            text += _inside_quotes(env[part.name]) if part.name in env else f"${{{part.name}}}"
    return f'"{text}"'


def _inside_quotes(text: str) -> str:
    return "".join(f"\\{char}" if char in '\\"$`' else char for char in text)


def listed(names: Sequence[str], noun: str = "") -> str:
    """The names, the first three of many."""
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more {noun}".rstrip()


def counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
