"""Packages on top of an image: planned from what the image and the node have. Pure, standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from urllib.parse import unquote

from muster.environments.failures import Failure
from muster.environments.images.command import ATTEMPT, MARK, RUN, Engine
from muster.environments.images.installing import LOCK, PREFIX
from muster.environments.venvs.interpreters import fits
from muster.environments.venvs.recipe import key_of
from muster.environments.venvs.sources import Sources, pip_variables
from muster.environments.venvs.steps import CONDA_TOOLS, Step, conda_words, steps
from muster.wire.node.recipes import Recipe

INSIDE = "/opt/muster/build"
"""Where the folder of the build is mounted while packages are installed."""
_CACHE = "/opt/muster/cache"
_OLDEST_PIP = (23, 0)
_INDEXES = ("--index-url", "-i", "--extra-index-url")
_LOCAL = re.compile(r"(?:file://(?:localhost)?|(?<![\w:/]))(/[^\s#]+)")

# Runs in the image's Python, which may be old.
LOOK = f"""
import json, shutil, sys
try:
    import pip
    version = pip.__version__
except ImportError:
    version = ""
try:
    lock = json.load(open({str(LOCK)!r}))["lock"]
except (OSError, ValueError):
    lock = None
tools = [name for name in {CONDA_TOOLS!r} if shutil.which(name)]
cuda = shutil.which("nvcc") is not None
print("MUSTER " + json.dumps({{"pip": version, "tools": tools, "lock": lock, "cuda": cuda}}))
"""


@dataclass(frozen=True)
class Looked:
    """The tools in an image for installing, and the packages that were installed on it before."""

    pip: str = ""
    tools: Sequence[str] = ()
    lock: Sequence[str] | None = None
    cuda: bool = False
    """It can compile for GPUs."""


@dataclass(frozen=True)
class Lent:
    """A pip of the node that an image may use."""

    folder: str
    version: str
    needs: str
    """The versions of Python that it runs on."""


@dataclass(frozen=True)
class Work:
    """What to do in a container of the image."""

    steps: Sequence[Step]
    conda: Sequence[str]
    """conda's tool and its specifications; empty: packages go into the image's own Python."""
    lent: bool


def tag(recipe: Recipe, base: str, python: tuple[int, ...]) -> str:
    """The name of the resulting image: the same for the same packages on the same image."""
    return f"muster-packages:{key_of(recipe, '.'.join(map(str, python[:2])), base.removeprefix('sha256:'))}"


def plan(recipe: Recipe, label: str, python: tuple[int, ...], found: Looked, lent: Lent | None, gpus: bool) -> Work:
    """How to install the packages on the image; raises Failure if that is impossible."""
    conda = _conda(recipe, label, python, found)
    # The record contains what pip put on the image, whatever conda did before.
    order = steps(replace(recipe, conda=()), has_cuda=gpus and found.cuda)
    borrows = not conda and lent is not None and _numbers(lent.version) >= _OLDEST_PIP and fits(python, lent.needs)
    if order and not conda and not borrows and _numbers(found.pip) < _OLDEST_PIP:
        has = f"pip {found.pip}" if found.pip else "no pip"
        least = ".".join(map(str, _OLDEST_PIP))
        raise Failure(
            "environment",
            f"packages are to be put on the image {label}, which has {has}; {least} or newer is needed",
            "Add a newer pip to the image, or to the node's own Python, which lends it.",
        )
    return Work(order, conda, borrows)


def _conda(recipe: Recipe, label: str, python: tuple[int, ...], found: Looked) -> list[str]:
    """The words for conda's tool; none if the image's own Python will do. Raises Failure if a tool is missing."""
    has_python = recipe.python is None or fits(python, recipe.python)
    if not recipe.conda and has_python:
        return []
    if not found.tools and recipe.conda:
        raise Failure(
            "environment",
            f"the conda packages {', '.join(recipe.conda)} need micromamba, mamba or conda, and the image {label} "
            "has none",
            "Add micromamba to the image, or move them to the `pip:` part of the file where pip has them.",
        )
    has = ".".join(map(str, python))
    if not found.tools:
        raise Failure(
            "environment",
            f"the image {label} has Python {has}, and its packages ask for Python {recipe.python}",
            "Leave the version out, use an image with that Python, or one with micromamba, which installs it.",
        )
    return [found.tools[0], *conda_words(recipe, ".".join(map(str, python[:2])))]


def files(recipe: Recipe, work: Work, sources: Sources, environ: Mapping[str, str]) -> dict[str, str]:
    """The files in the folder of the build; they may contain passwords."""
    variables = {
        "PIP_CACHE_DIR": _CACHE,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        # The layer is made for this, and no system package manager uses it.
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        **pip_variables(sources),
        **{name: value for name, value in environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")},
    }
    request = {"steps": [asdict(step) for step in work.steps], "conda": list(work.conda), "lent": work.lent}
    found = {"request.json": json.dumps({**request, "variables": variables})}
    for number, step in enumerate(work.steps):
        found[f"requirements-{number}.txt"] = "\n".join([*recipe.options, *step.requirements]) + "\n"
    return found


def local_paths(recipe: Recipe, sources: Sources) -> list[str]:
    """Folders and files of the node that packages come from."""
    options = [text.split(maxsplit=1) for text in recipe.options]
    indexes = [text for name, *rest in options if name in _INDEXES for text in rest]
    indexes += [sources.index_url or "", *sources.extra_index_urls]
    others = [text for name, *rest in options if name not in _INDEXES for text in rest]
    others += [*recipe.requirements, *recipe.constraints, *sources.find_links, sources.cert or ""]
    found = [_with_siblings(path) for text in indexes for path in _LOCAL.findall(text)]
    found += [path for text in others for path in _LOCAL.findall(text)]
    return sorted({unquote(path).rstrip("/") for path in found} - {""})


def _with_siblings(path: str) -> str:
    """The folder above an index, since its pages link to files in the folders next to it."""
    parent = path.rstrip("/").rpartition("/")[0]
    # Not over a folder that the image has itself.
    return parent if parent.count("/") > 1 else path


def install_command(
    engine: Engine,
    image: str,
    name: str,
    attempt: tuple[str, str, int],
    folders: Mapping[str, str],
    extra: Sequence[str],
) -> list[str]:
    """Run the installation; `attempt` is mark, run and number, `folders` what is mounted where."""
    command = [engine.program, "run", "--name", name, "--pull", "never", "--interactive", "--entrypoint", "python3"]
    for key, value in zip((MARK, RUN, ATTEMPT), attempt, strict=True):
        command += ["--label", f"{key}={value}"]
    command += ["--network", "host", "--user", "0:0", "--workdir", "/", "--security-opt", "label=disable"]
    for target, source in folders.items():
        writable = target in (INSIDE, _CACHE)
        command += ["--volume", f"{source}:{target}:{'rw' if writable else 'ro'}"]
    return [*command, *extra, image, "-I", f"{INSIDE}/installing.py"]


def mounted(folder: str, cache: str, lent: str, local: Sequence[str]) -> dict[str, str]:
    """The node's folders that an installation sees, by their path inside."""
    own = {INSIDE: folder, _CACHE: cache}
    return {**own, **({f"{INSIDE}/lent/pip": lent} if lent else {}), **{path: path for path in local}}


def commit_command(engine: Engine, name: str, reference: str, work: Work, path: str, label: str) -> list[str]:
    """Make an image of the container; `path` is the PATH of the image below it."""
    changes = [f"LABEL {label}", 'ENTRYPOINT ["python3"]', 'CMD ["-q"]']
    # The container's labels are for this attempt only: later containers of the image must not be mistaken for its own.
    changes += [f'LABEL {key}=""' for key in (MARK, RUN, ATTEMPT)]
    if work.conda:
        changes.append(f"ENV PATH={PREFIX}/bin:{path}")
    command = [engine.program, "commit"]
    for change in changes:
        command += ["--change", change]
    return [*command, name, reference]


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()
