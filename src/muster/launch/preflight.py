"""What a job needs of its nodes before ranks start, and what the nodes must agree on. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from muster.job.expressions import resolve_command, resolve_environment
from muster.job.parts import Distribution, Mpi, PyTorch, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.conventions import chosen_master_port
from muster.launch.describe import listed
from muster.launch.layout import layout
from muster.wire.node.agents import Facts
from muster.wire.node.plan import Needs

# Launchers by name, and the module that each needs.
LAUNCHERS = {"torchrun": "torch", "accelerate": "accelerate", "deepspeed": "deepspeed", "horovodrun": "horovod"}
_RUN_AS_MODULE = frozenset({"torch", "accelerate", "deepspeed", "horovod", "tensorflow", "lightning", "mpi4py"})
_PYTHONS = ("python", "python3")
_PLAIN_FLAGS = frozenset({"-u", "-O", "-OO", "-B", "-s", "-E", "-I"})
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def needs(spec: JobSpec, node_rank: int, gpus: Sequence[str] = ()) -> Needs:
    """What is checked on a node before the ranks of a job start there."""
    words = _first_words(resolve_command(spec))
    program = words[0] if words and words[0] in LAUNCHERS else None
    module = _module_run(words)
    master = node_rank == 0 and isinstance(spec.distribution, PyTorch | Mpi)
    return Needs(
        modules=tuple(dict.fromkeys((*_frameworks(spec.distribution), *([module] if module else [])))),
        required=(module,) if module else (),
        programs=(program,) if program else (),
        ranks=_ranks_on(spec, node_rank),
        gpus=tuple(gpus),
        shm_bytes=shm_bytes(spec.resources.shm_size),
        port=chosen_master_port(resolve_environment(spec)) if master else None,
        devices=spec.resources.instance_count > 1,
        shell=isinstance(spec.command, str),
    )


def disagreement(names: Sequence[str], facts: Sequence[Facts]) -> str | None:
    """Why the nodes cannot work together: different versions of the same framework."""
    for module in dict.fromkeys(module for fact in facts for module in fact.versions):
        versions = {
            name: fact.versions[module] for name, fact in zip(names, facts, strict=True) if fact.versions.get(module)
        }
        if len(set(versions.values())) > 1:
            first = next(iter(versions))
            other = next(name for name in versions if versions[name] != versions[first])
            return (
                f"{module} is {versions[first]} on {first} and {versions[other]} on {other}; "
                "the ranks of a gang need the same version. Install one version on every node, or name an environment"
            )
    return None


def joined_notices(names: Sequence[str], facts: Sequence[Facts]) -> list[str]:
    """The notices of all nodes, each once, with its nodes."""
    by_text: dict[str, list[str]] = {}
    for name, fact in zip(names, facts, strict=True):
        for text in fact.notices:
            by_text.setdefault(text, []).append(name)
    return [f"{listed(nodes)}: {text}" for text, nodes in by_text.items()]


def shm_bytes(text: str | None) -> int | None:
    """`2g` as bytes; a number without a unit is bytes."""
    if text is None:
        return None
    unit = text[-1].lower()
    return int(text[:-1]) * _UNITS[unit] if unit in _UNITS else int(text)


def _ranks_on(spec: JobSpec, node_rank: int) -> int:
    if isinstance(spec.distribution, PyTorch | Mpi):
        return spec.distribution.process_count_per_instance or 1
    return sum(1 for task in layout(spec) if task.node_rank == node_rank)


def _frameworks(distribution: Distribution | None) -> tuple[str, ...]:
    """Modules whose versions the nodes must share."""
    if isinstance(distribution, PyTorch):
        return ("torch",)
    if isinstance(distribution, TensorFlow):
        return ("tensorflow",)
    return ("mpi4py", "horovod") if isinstance(distribution, Mpi) else ()


def _first_words(command: str | Sequence[str]) -> list[str]:
    """The first words of a command; none where a shell may run something else first."""
    if not isinstance(command, str):
        return list(command)
    if "||" in command:
        return []
    try:
        return shlex.split(command.strip().split("\n", 1)[0], comments=True)
    except ValueError:
        return []


def _module_run(words: Sequence[str]) -> str | None:
    """The framework of `python -m FRAMEWORK.part`."""
    if not words or words[0] not in _PYTHONS:
        return None
    rest = list(words[1:])
    while rest and rest[0] in _PLAIN_FLAGS:
        rest.pop(0)
    if len(rest) < 2 or rest[0] != "-m":
        return None
    top = rest[1].split(".")[0]
    return top if top in _RUN_AS_MODULE else None
