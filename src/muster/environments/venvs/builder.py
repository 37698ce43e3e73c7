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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster.environments.failures import Failure, classify
from muster.environments.venvs import archives, locks, sources, versions
from muster.environments.venvs.cache import BuildRecord, Built, Cache
from muster.environments.venvs.interpreters import Interpreter, host_platform
from muster.environments.venvs.recipe import requirement_name, without_secrets
from muster.environments.venvs.steps import COMPILER, CONDA_TOOLS, Step, conda_words, steps
from muster.environments.venvs.wheels import NoWheels, Wheels, wheel_key
from muster.host.files import PRIVATE, disk_usage, write_file
from muster.wire.node.recipes import Recipe

CHOICE = "MUSTER_ENVIRONMENT_BUILDER"
_KEPT_LINES = 400
_REPORT = "muster-report-"
_INHERITED_NOT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
# From 23.0 on pip reports what it installed, and `pip --python` installs into an environment without pip.
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


@dataclass(frozen=True)
class Progress:
    """Receives the progress of a build."""

    say: Callable[[str], None] = lambda text: None
    """The current step, in a few words."""
    write: Callable[[str], None] = lambda text: None
    """The log, line by line."""
    wheels: Wheels = field(default_factory=NoWheels)
    """Compiled wheels that others have, or need."""


def ensure(recipe: Recipe, key: str, base: Interpreter, cache: Cache, progress: Progress) -> Built:
    """The environment, built unless it is there; raises Failure."""
    try:
        with cache.building(key, lambda: progress.say("waiting for another job that builds it")) as lock:
            found = cache.find(key)
            if found is None:
                cache.discard(key)
                found = _build(recipe, key, base, cache, progress, lock.descriptor)
        for gone in (*cache.sweep(), *cache.make_room(keep=(key,)).removed):
            progress.write(f"removed {gone}")
        return found
    except OSError as error:
        where = error.filename or cache.root
        raise classify(f"the build in {where}", 1, [str(error)]) from error


def _build(recipe: Recipe, key: str, base: Interpreter, cache: Cache, progress: Progress, lock: int) -> Built:
    folder = cache.folder(key)
    began = time.monotonic()
    try:
        build = prepare_build(recipe, base, folder, progress, lock)
        versions = build.run()
        progress.say("measuring it")
        size = disk_usage(folder)
        took_s = time.monotonic() - began
        kept = replace(recipe, options=tuple(without_secrets(text) for text in recipe.options))
        record = BuildRecord(
            recipe.label,
            base.text,
            tuple(versions),
            size,
            built_at=time.time(),
            built_s=round(took_s, 3),
            recipe=kept,
            indexes=build.indexes,
        )
        cache.complete(key, record)
    except BaseException:
        cache.discard(key)
        raise
    found = cache.find(key)
    if found is None:
        raise Failure("environment", f"the interpreter of {folder} is missing after the build", "Submit again.")
    progress.write(
        f"{key} is ready: {len(versions)} package{'' if len(versions) == 1 else 's'}, {size >> 20} MiB, {took_s:.1f} s"
    )
    return found


def prepare_build(recipe: Recipe, base: Interpreter, folder: Path, progress: Progress, lock: int) -> _Build:
    """A build with its tools and the site's sources of packages."""
    uv = find_uv()
    environment = {name: value for name, value in os.environ.items() if name not in _INHERITED_NOT}
    configured = sources.read(environment, sys.prefix)
    if uv:
        environment |= sources.uv_variables(configured, environment) | _linkable(folder, environment)
    else:
        environment |= {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # The recipe's own indexes, unless the site configures others.
    indexes = () if configured.names_indexes else recipe.indexes
    return _Build(recipe, base, folder, uv, environment, indexes, progress, lock)


@dataclass(frozen=True)
class _Build:
    """One build in a new folder."""

    recipe: Recipe
    base: Interpreter
    folder: Path
    uv: str | None
    environment: Mapping[str, str]
    indexes: tuple[str, ...]
    progress: Progress
    lock: int
    """The build lock: every tool holds it too, so that nobody else builds while one of them still writes."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self) -> list[str]:
        """Make the environment; returns its versions."""
        with_tool = "uv" if self.uv else "pip"
        self.progress.write(
            f"building {self.folder.name} on Python {self.base.text} ({self.base.path}) with {with_tool}"
        )
        pip = self._make()
        order = steps(self.recipe, has_cuda=has_gpus() and shutil.which("nvcc") is not None)
        for number, step in enumerate(order):
            self.progress.say(f"installing {_shown(step.requirements)}")
            self._install_nearest(step, number, pip)
        installed = self._freeze()
        compiled = {requirement_name(text) for step in order if step.from_source for text in step.requirements}
        exact = [line for line in installed if " @ " not in line and requirement_name(line) not in compiled]
        known = self._hashes(exact)
        for report in self.folder.glob(f"{_REPORT}*"):
            report.unlink()
        # After the versions were recorded: it is a tool, and not part of what the job asked for.
        self._add_pip()
        return [*self._conda_lock(), *locks.with_hashes(installed, known)]

    def _make(self) -> list[str]:
        """Make the environment without its packages; returns the pip command for installing, unless that is uv."""
        if self.recipe.conda:
            self._conda()
            return [self.python, "-m", "pip"]
        if self.uv:
            self._run([self.uv, "venv", "--no-project", "--python", self.base.path, str(self.folder)])
            return []
        command = [self.base.path, "-c", _PIP_IS_NEW]
        asked = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)
        if asked.stdout.strip() == "True":
            self._run([self.base.path, "-m", "venv", "--without-pip", str(self.folder)])
            return [self.base.path, "-m", "pip", "--python", self.python]
        self._run([self.base.path, "-m", "venv", str(self.folder)])
        return [self.python, "-m", "pip"]

    def _conda(self) -> None:
        recipe = self.recipe
        tool = next((found for name in CONDA_TOOLS if (found := shutil.which(name))), None)
        if tool is None:
            names = ", ".join(recipe.conda)
            raise Failure(
                "environment",
                f"the conda packages {names} need micromamba, mamba or conda, and the node has none",
                "Install micromamba on the node, or move them to the `pip:` part of the file where pip has them.",
            )
        self.progress.say(f"installing {_shown(recipe.conda)} with {Path(tool).name}")
        self._run([tool, "create", "-y", "-q", "-p", str(self.folder), *conda_words(recipe, self.base.minor)])

    def _add_pip(self) -> None:
        """Add a pip, for commands that begin with `pip install`; the environment is usable without it."""
        if (self.folder / "bin" / "pip").exists():
            return
        self.progress.say("adding pip")
        bundled = [self.python, "-I", "-m", "ensurepip", "--default-pip"]
        commands = [bundled, *([[self.uv, "pip", "install", "--python", self.python, "pip"]] if self.uv else [])]
        for command in commands:
            done = subprocess.run(
                command, capture_output=True, text=True, env=self.environment, pass_fds=[self.lock], check=False
            )
            if done.returncode == 0:
                return
        self.progress.write("the environment has no pip: this Python comes without ensurepip")

    def _install_nearest(self, step: Step, number: int, pip: Sequence[str]) -> None:
        """Install; if versions do not exist for such a Python, take the nearest that do."""
        ways: tuple[Callable[[Step], tuple[str, ...]], ...] = (self._nearest, self._loosened)
        if self.recipe.strict or self.recipe.constraints:
            ways = ()
        try:
            return self._install_compiled(step, number, pip) if step.from_source else self._install(step, number, pip)
        except Failure as first:
            failure = first
        for way in ways if failure.is_version else ():
            changed = way(step)
            if changed == step.requirements:
                continue
            try:
                return self._install(replace(step, requirements=changed), number, pip)
            except Failure as again:
                self.progress.write(f"that failed too: {again.message}")
        raise failure

    def _loosened(self, step: Step) -> tuple[str, ...]:
        """The requirements with every pin as a lower bound: the resolver finds versions that are compatible."""
        found = tuple(versions.loosened(text) for text in step.requirements)
        if found != step.requirements:
            self.progress.write(f"notice: the versions do not go together here: {_shown(found, 20)} are taken")
        return found

    def _nearest(self, step: Step) -> tuple[str, ...]:
        """The requirements, with versions that do not exist here replaced by the nearest that do."""
        found = []
        for text in step.requirements:
            taken = self._available(text) if (pin := versions.pinned(text)) else text
            if pin and taken != text:
                self.progress.write(f"notice: {text} is not there for Python {self.base.minor}: {taken} is taken")
            found.append(taken)
        return tuple(found)

    def _available(self, text: str) -> str:
        """A pinned requirement if it is available, otherwise the next newer version, or any."""
        name = versions.pinned(text)[0]
        for candidate, lowest in versions.candidates(text):
            resolved = self._resolves(candidate, lowest)
            if resolved:
                return text if candidate == text else versions.exact(name, resolved) or candidate
        return text

    def _resolves(self, requirement: str, lowest: bool) -> str:
        """What the index has for a requirement, without its dependencies; empty if there is nothing."""
        listed = self._listed("muster-requirements.txt", [*self._sources(), requirement])
        if self.uv:
            mode = ["--resolution", "lowest-direct"] if lowest else []
            command = [self.uv, "pip", "compile", "--no-deps", "--no-header", "--quiet", "--python", self.python]
            command += ["--only-binary", ":all:", *mode, listed]
        else:
            report = ["--quiet", "--report", "-", "--only-binary", ":all:"]
            command = [self.base.path, "-m", "pip", "--python", self.python, "install", "--dry-run", "--no-deps"]
            command += [*report, "-r", listed]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)
        Path(listed).unlink(missing_ok=True)
        return done.stdout if done.returncode == 0 else ""

    def _install(self, step: Step, number: int, pip: Sequence[str]) -> None:
        if self.uv:
            command = [self.uv, "pip", "install", "--python", self.python]
            flags = ["--no-cache"] if step.from_source else []
        else:
            # Only a new pip can report, and only that one can install into another environment.
            command = [*pip, "install", "--progress-bar", "off"]
            flags = ["--report", str(self.folder / f"{_REPORT}{number}.json")] if "--python" in pip else []
            flags += ["--no-cache-dir"] if step.from_source else []
        flags += ["--no-index", "--find-links", step.found_in] if step.found_in else []
        self._perform(step, [*command, *flags], number)

    def _perform(self, step: Step, command: Sequence[str], number: int) -> None:
        """Run a tool with a requirements file for a step."""
        missing = [tool for tool in step.tools if shutil.which(tool) is None]
        if missing:
            what = _shown(step.requirements)
            message = f"{what} is compiled here, and the node has no {' and no '.join(missing)}"
            raise Failure("environment", message, "Install a C++ compiler and make on the node.")
        sources = [] if step.found_in else self._sources()
        flags = ["-r", self._listed(f"muster-requirements-{number}.txt", [*sources, *step.requirements])]
        if self.recipe.constraints and self.recipe.conda:
            flags += ["-c", self._listed("muster-constraints.txt", self.recipe.constraints)]
        flags += ["--no-deps"] if step.no_deps else []
        flags += ["--require-hashes"] if step.hashed else []
        variables = dict(self.environment)
        if step.from_source:
            flags += ["--no-build-isolation"]
            variables |= {**_compiler(self.folder), **step.variables}
        try:
            self._run([*command, *flags], variables)
        finally:
            # The files may contain passwords.
            for path in (*self.folder.glob("muster-*.txt"), self.folder / COMPILER):
                path.unlink(missing_ok=True)

    def _install_compiled(self, step: Step, number: int, pip: Sequence[str]) -> None:
        """Install a wheel that a node of the workspace has compiled, or compile it for all of them."""
        tool = self._wheel_tool(pip)
        if tool is None:
            return self._install(step, number, pip)
        key = wheel_key(step, self._sources(), self._freeze(), self.base.minor, host_platform())
        folder = self.folder / "muster-wheels"
        folder.mkdir()
        try:
            if self.progress.wheels.find(key, folder):
                self.progress.write(f"{_shown(step.requirements)} was compiled by another node")
            else:
                self.progress.say(f"compiling {_shown(step.requirements)}")
                self._perform(step, [*tool, "wheel", "-w", str(folder), "--no-cache-dir"], number)
                for wheel in folder.glob("*.whl"):
                    self.progress.wheels.keep(key, wheel)
            ready = replace(step, from_source=False, tools=(), found_in=str(folder))
            return self._install(ready, number, pip)
        finally:
            shutil.rmtree(folder)

    def _wheel_tool(self, pip: Sequence[str]) -> list[str] | None:
        """A pip that can make wheels in the environment; None if there is none, as with uv's own Pythons."""
        if pip:
            return list(pip)
        asked = subprocess.run(
            [self.base.path, "-c", _PIP_IS_NEW], capture_output=True, text=True, env=self.environment, check=False
        )
        is_new = asked.stdout.strip() == "True"
        return [self.base.path, "-m", "pip", "--python", self.python] if is_new else None

    def _hashes(self, exact: list[str]) -> archives.Hashes:
        """The archives of exact versions; if they are unknown, only the versions are recorded."""
        if self.recipe.conda:
            return {}
        if self.recipe.constraints:
            return archives.of_lock(self.recipe.constraints)
        if self.uv is None:
            return archives.of_reports(sorted(self.folder.glob(f"{_REPORT}*")))
        self.progress.say("looking up what was installed")
        listed = self._listed("muster-requirements.txt", [*self._sources(), *exact])
        found = archives.of_indexes(self.uv, self.python, self.base.version, listed, self.environment)
        Path(listed).unlink()
        if isinstance(found, str):
            self.progress.write(f"the versions are recorded without hashes: {without_secrets(found)}")
            return {}
        return found

    def _sources(self) -> list[str]:
        """Lines of a requirements file that name the sources of packages."""
        return [*self.recipe.options, *(f"--extra-index-url {address}" for address in self.indexes)]

    def _listed(self, name: str, lines: Sequence[str]) -> str:
        """A requirements file that only this user may read."""
        path = self.folder / name
        text = "\n".join(line for line in lines if not line.startswith("conda:"))
        write_file(path, f"{text}\n", mode=PRIVATE)
        return str(path)

    def _conda_lock(self) -> list[str]:
        """conda's part of the versions, from its own record."""
        names = (path.stem.rsplit("-", 2) for path in sorted((self.folder / "conda-meta").glob("*.json")))
        return [f"conda:{name}={version}" for name, version, _ in names]

    def _freeze(self) -> list[str]:
        command = [self.python, "-I", "-c", _FREEZE]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)
        if done.returncode != 0:
            raise classify("the new interpreter", done.returncode, done.stderr.splitlines())
        return [without_secrets(str(line)) for line in json.loads(done.stdout)]

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a tool; its output goes to the log, and a failure is raised as its cause."""
        self.progress.write(f"$ {' '.join(command)}")
        kept: deque[str] = deque(maxlen=_KEPT_LINES)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment or self.environment,
            pass_fds=[self.lock],
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                text = without_secrets(line.rstrip("\n"))
                kept.append(text)
                self.progress.write(text)
        if child.returncode != 0:
            raise classify(Path(command[0]).name, child.returncode, list(kept))


def find_uv() -> str | None:
    """uv on the PATH, or the one that is installed with Muster; None: use pip."""
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


def _linkable(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """uv's cache next to the environments, unless the user's own is on the same disk (or was chosen explicitly)."""
    if environment.get("UV_CACHE_DIR"):
        return {}
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    usual = next(path for path in (Path(base) / "uv", *(Path(base) / "uv").parents) if path.exists())
    if usual.stat().st_dev == folder.parent.stat().st_dev:
        return {}
    return {"UV_CACHE_DIR": str(folder.parent / ".uv")}


def _shown(requirements: Sequence[str], most: int = 4) -> str:
    shown = [without_secrets(text) for text in requirements[:most]]
    rest = len(requirements) - most
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
