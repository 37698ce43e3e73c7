"""Builds environments with uv, or with venv and pip where there is no uv; conda's packages with conda's tools."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.environments.failures import Failure, classify
from muster.environments.venvs import archives, locks, sources
from muster.environments.venvs.cache import Built, Cache
from muster.environments.venvs.interpreters import Interpreter
from muster.environments.venvs.recipe import Recipe, requirement_name, without_secrets
from muster.environments.venvs.steps import COMPILER, Step, steps

CHOICE = "MUSTER_ENVIRONMENT_BUILDER"
_CONDA_TOOLS = ("micromamba", "mamba", "conda")
_KEPT_LINES = 400
_REPORT = "muster-report-"
_INHERITED_NOT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
# Since 23.0 pip reports what it installed, and `pip --python` installs into an environment that has none.
_PIP_IS_NEW = """
import importlib.metadata as m
print([int(part) for part in m.version("pip").split(".")[:2]] >= [23, 0])
"""
_FREEZE = """
import importlib.metadata as m, json
found = {}
for item in m.distributions():
    name, url = item.metadata["Name"], item.read_text("direct_url.json")
    direct = json.loads(url) if url else {}
    address, text = direct.get("url", ""), direct.get("archive_info", {}).get("hash", "")
    if "vcs_info" in direct:
        address = "%s+%s@%s" % (direct["vcs_info"]["vcs"], address, direct["vcs_info"]["commit_id"])
    if text.startswith("sha256=") and "#" not in address:
        address += "#" + text
    found[name] = "%s @ %s" % (name, address) if address else "%s==%s" % (name, item.version)
print(json.dumps(sorted(found.values(), key=str.lower)))
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Shop:
    """What a build works with."""

    say: Say
    """Told what is being done, in a few words."""
    write: Say
    """Takes the log, line by line."""
    lock: int
    """The build lock: held by every child too, so that nobody else builds while one of them still writes."""


def ensure(
    recipe: Recipe, key: str, base: Interpreter, cache: Cache, *, say: Say, write: Say, limit_bytes: int
) -> Built:
    """The environment, built unless it is there; raises Failure."""
    try:
        cache.paths.root.mkdir(parents=True, exist_ok=True)
        with cache.building(key, lambda: say("waiting for another job that builds it")) as lock:
            found = cache.find(key)
            if found is None:
                cache.discard(key)
                found = _build(recipe, key, base, cache, Shop(say, write, lock))
        for gone in (*cache.sweep(), *cache.evict(limit_bytes, keep=key)):
            write(f"removed {gone}")
        return found
    except OSError as error:
        place = error.filename or cache.paths.root
        raise classify(f"the build in {place}", 1, [str(error)]) from error


def _build(recipe: Recipe, key: str, base: Interpreter, cache: Cache, shop: Shop) -> Built:
    folder = cache.paths.folder(key)
    began = time.monotonic()
    try:
        lock = make(recipe, base, folder, shop)
        shop.say("measuring it")
        size = _size(folder)
        took_s = time.monotonic() - began
        facts = {
            "label": recipe.label,
            "python": base.text,
            "lock": lock,
            "indexes": list(_indexes(recipe)),
            "size": size,
            "built_at": time.time(),
            "built_s": round(took_s, 3),
            "recipe": {**recipe.to_json(), "options": [without_secrets(text) for text in recipe.options]},
        }
        cache.complete(key, facts)
    except BaseException:
        cache.discard(key)
        raise
    found = cache.find(key)
    if found is None:
        raise Failure("environment", f"the interpreter of {folder} is missing after the build", "Submit again.")
    shop.write(f"{key} is ready: {len(lock)} packages, {size >> 20} MiB, {took_s:.1f} s")
    return found


def make(recipe: Recipe, base: Interpreter, folder: Path, shop: Shop) -> list[str]:
    """Make the environment in a folder that is not there yet; returns the versions in it."""
    uv = find_uv()
    environment = {name: value for name, value in os.environ.items() if name not in _INHERITED_NOT}
    configured = sources.read(environment, sys.prefix)
    if uv:
        environment |= sources.uv_variables(configured, environment) | _linkable(folder, environment)
    else:
        environment |= {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    shop.write(f"building {folder.name} on Python {base.text} ({base.path}) with {'uv' if uv else 'pip'}")
    if recipe.conda:
        _conda(recipe, base, folder, environment, shop)
        pip = [str(folder / "bin" / "python"), "-m", "pip"]
    elif uv:
        _run([uv, "venv", "--no-project", "--python", base.path, str(folder)], environment, shop)
        pip = []
    else:
        pip = _venv(base, folder, environment, shop)
    order = steps(recipe, has_cuda=has_gpus() and shutil.which("nvcc") is not None)
    for number, step in enumerate(order):
        shop.say(f"installing {_shown(step.requirements)}")
        _install(step, number, recipe, folder, uv, pip, environment, shop)
    lock = _freeze(folder, environment)
    compiled = {requirement_name(text) for step in order if step.from_source for text in step.requirements}
    exact = [line for line in lock if " @ " not in line and requirement_name(line) not in compiled]
    known = _hashes(recipe, exact, base, folder, uv, environment, shop)
    for report in folder.glob(f"{_REPORT}*"):
        report.unlink()
    return [*_conda_lock(folder), *locks.with_hashes(lock, known)]


def _hashes(
    recipe: Recipe,
    exact: list[str],
    base: Interpreter,
    folder: Path,
    uv: str | None,
    environment: dict[str, str],
    shop: Shop,
) -> archives.Hashes:
    """The archives behind exact versions; where they cannot be told, the versions count alone."""
    if recipe.conda:
        return {}
    if recipe.constraints:
        return archives.of_lock(recipe.constraints)
    if uv is None:
        return archives.of_reports(sorted(folder.glob(f"{_REPORT}*")))
    shop.say("looking up what was installed")
    listed = _write(folder / "muster-requirements.txt", [*_places(recipe), *exact])
    found = archives.of_indexes(uv, folder / "bin" / "python", base.version, listed, environment)
    listed.unlink()
    if isinstance(found, str):
        shop.write(f"the versions are recorded without hashes: {without_secrets(found)}")
        return {}
    return found


def _places(recipe: Recipe) -> list[str]:
    """Lines of a requirements file that say where packages come from."""
    return [*recipe.options, *(f"--extra-index-url {address}" for address in _indexes(recipe))]


def _indexes(recipe: Recipe) -> tuple[str, ...]:
    """The recipe's own indexes, unless the site says itself where packages come from."""
    return () if sources.read(os.environ, sys.prefix).names_a_place else recipe.indexes


def find_uv() -> str | None:
    """uv on the PATH, or the one that is installed beside Muster; None where pip is to be used."""
    if os.environ.get(CHOICE) == "pip":
        return None
    found = shutil.which("uv")
    if found is None and importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin

        found = str(find_uv_bin())
    if found is None and os.environ.get(CHOICE) == "uv":
        raise Failure("environment", f"{CHOICE}=uv, and there is no uv", "Install it: `pip install uv`.")
    return found


def has_gpus() -> bool:
    """Whether this machine has a GPU with its driver."""
    return Path("/dev/nvidiactl").exists()


def _venv(base: Interpreter, folder: Path, environment: dict[str, str], shop: Shop) -> list[str]:
    """A virtual environment without uv; returns the pip to install into it with."""
    asked = subprocess.run([base.path, "-c", _PIP_IS_NEW], capture_output=True, text=True, env=environment, check=False)
    if asked.stdout.strip() == "True":
        _run([base.path, "-m", "venv", "--without-pip", str(folder)], environment, shop)
        return [base.path, "-m", "pip", "--python", str(folder / "bin" / "python")]
    _run([base.path, "-m", "venv", str(folder)], environment, shop)
    return [str(folder / "bin" / "python"), "-m", "pip"]


def _install(
    step: Step,
    number: int,
    recipe: Recipe,
    folder: Path,
    uv: str | None,
    pip: Sequence[str],
    environment: dict[str, str],
    shop: Shop,
) -> None:
    missing = [tool for tool in step.tools if shutil.which(tool) is None]
    if missing:
        what = _shown(step.requirements)
        message = f"{what} is compiled here, and the node has no {' and no '.join(missing)}"
        raise Failure("environment", message, "Install a C++ compiler and make on the node.")
    listed = _write(folder / f"muster-requirements-{number}.txt", [*_places(recipe), *step.requirements])
    flags = ["-r", str(listed)]
    if recipe.constraints and recipe.conda:
        flags += ["-c", str(_write(folder / "muster-constraints.txt", recipe.constraints))]
    flags += ["--no-deps"] if step.no_deps else []
    flags += ["--require-hashes"] if step.hashed else []
    variables = dict(environment)
    if step.from_source:
        flags += ["--no-build-isolation", "--no-cache" if uv else "--no-cache-dir"]
        variables |= {**_compiler(folder), **step.variables}
    if uv:
        command = [uv, "pip", "install", "--python", str(folder / "bin" / "python"), *flags]
    else:
        # Only a new pip reports, and only that one works from outside.
        flags += ["--report", str(folder / f"{_REPORT}{number}.json")] if "--python" in pip else []
        command = [*pip, "install", "--progress-bar", "off", *flags]
    try:
        _run(command, variables, shop)
    finally:
        # They may hold passwords.
        for path in (*folder.glob("muster-*.txt"), folder / COMPILER):
            path.unlink(missing_ok=True)


def _compiler(folder: Path) -> dict[str, str]:
    wrapper = folder / COMPILER
    shutil.copyfile(Path(__file__).with_name(COMPILER), wrapper)
    wrapper.chmod(0o755)
    return {
        "CXX": str(wrapper),
        "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(folder),
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
    }


def _conda(recipe: Recipe, base: Interpreter, folder: Path, environment: dict[str, str], shop: Shop) -> None:
    tool = next((found for name in _CONDA_TOOLS if (found := shutil.which(name))), None)
    if tool is None:
        names = ", ".join(recipe.conda)
        raise Failure(
            "environment",
            f"the conda packages {names} need micromamba, mamba or conda, and the node has none",
            "Install micromamba on the node, or move them to the `pip:` part of the file where pip has them.",
        )
    shop.say(f"installing {_shown(recipe.conda)} with {Path(tool).name}")
    channels = [part for channel in recipe.channels or ("conda-forge",) for part in ("-c", channel)]
    wanted = recipe.python or base.minor
    python = f"python{wanted}" if wanted[0] in "<>!~" else f"python={wanted}"
    command = [tool, "create", "-y", "-q", "-p", str(folder), "--override-channels", *channels]
    _run([*command, *(locks.conda(recipe.constraints) or (python, "pip", *recipe.conda))], environment, shop)


def _conda_lock(folder: Path) -> list[str]:
    """conda's part of the versions, as its own record tells them."""
    found = []
    for path in sorted((folder / "conda-meta").glob("*.json")):
        name, version, _build = path.stem.rsplit("-", 2)
        found.append(f"conda:{name}={version}")
    return found


def _freeze(folder: Path, environment: dict[str, str]) -> list[str]:
    python = str(folder / "bin" / "python")
    done = subprocess.run([python, "-I", "-c", _FREEZE], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise classify("the new interpreter", done.returncode, done.stderr.splitlines())
    return [without_secrets(str(line)) for line in json.loads(done.stdout)]


def _run(command: Sequence[str], environment: dict[str, str], shop: Shop) -> None:
    """Run a tool; its lines go to the log, and what they mean to whoever asked when it fails."""
    shop.write(f"$ {' '.join(command)}")
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        pass_fds=[shop.lock],
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            text = without_secrets(line.rstrip("\n"))
            kept.append(text)
            shop.write(text)
    if child.returncode != 0:
        raise classify(Path(command[0]).name, child.returncode, list(kept))


def _linkable(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """uv's cache beside the environments, unless the user's own is on the same disk (or chosen by hand)."""
    if environment.get("UV_CACHE_DIR"):
        return {}
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    usual = next(path for path in (Path(base) / "uv", *(Path(base) / "uv").parents) if path.exists())
    if usual.stat().st_dev == folder.parent.stat().st_dev:
        return {}
    return {"UV_CACHE_DIR": str(folder.parent / ".uv")}


def _write(path: Path, lines: Sequence[str]) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("\n".join(line for line in lines if not line.startswith("conda:")) + "\n")
    return path


def _size(folder: Path) -> int:
    """What it takes on the disk; a file that has several names counts once."""
    seen = set()
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(Path(root) / name)
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_blocks * 512
    return total


def _shown(requirements: Sequence[str], most: int = 4) -> str:
    shown = [without_secrets(text) for text in requirements[:most]]
    rest = len(requirements) - most
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
