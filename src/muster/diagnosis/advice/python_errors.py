"""Advice about Python exceptions: what they name, and what is near it."""

from __future__ import annotations

import difflib
import re
from itertools import pairwise
from pathlib import PurePosixPath

from muster.diagnosis.advice.case import (
    Case,
    address_in,
    fixed_port,
    own_frame,
    port_in,
    port_of,
    quoted_path,
    sources_of,
    variable_in,
)
from muster.diagnosis.advice.well_known import known
from muster.wire.verdicts import code_of

_CONTRACT = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "google.protobuf": "protobuf",
    "git": "GitPython",
    "attr": "attrs",
    "dateutil": "python-dateutil",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyOpenSSL",
    "serial": "pyserial",
    "usb": "pyusb",
    "fitz": "pymupdf",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "faiss": "faiss-cpu",
    "umap": "umap-learn",
    "hydra": "hydra-core",
    "pytorch_lightning": "pytorch-lightning",
    "MySQLdb": "mysqlclient",
    "psycopg2": "psycopg2-binary",
    "zmq": "pyzmq",
    "win32api": "pywin32",
}
_READER = re.compile(r"\|&? ?((?:head|grep|less|awk|sed|tee|tail|cut|sort)\b[^|;&]{0,60})")
_OPTIONAL = re.compile(
    r"[Ii]mport (\w+)` failed|(?:requires|needs|[Ii]nstall|pip install)(?: -U| --upgrade)?(?: the| package)?"
    r" [`'\"]?([A-Za-z][\w.-]+)"
    r"[`'\"]?(?: package| library| to|\.|$|`)"
)
_STORAGE = re.compile(r"Errno (?:5|107|116|121)\b|Stale file handle|Transport endpoint")
_VARIABLE = re.compile(r"^KeyError: '([A-Z][A-Z0-9_]{2,})'")
_EXPECTED = re.compile(r"environment variable ([A-Z][A-Z0-9_]{2,}) expected, but not set")


def module_missing(case: Case) -> str:
    """A module that the environment lacks; one in the code folder needs no package."""
    module = case.group("module")
    return _in_code(case, module) or _misspelt(case, module) or _not_in_package(module) or _to_install(case, module)


def _in_code(case: Case, module: str) -> str:
    """A module or package of the job's own that is not where Python looks for it."""
    top, last = module.partition(".")[0], module.rpartition(".")[2]
    scripts = [PurePosixPath(name) for name in case.facts.files if name.endswith(".py")]
    asked_for = re.search(rf"(?:from|import) {re.escape(module)}\.(\w+)", sources_of(case))
    wanted = (last, top, asked_for[1]) if asked_for else (last, top)
    found = next((path for name in wanted for path in scripts if path.stem == name), None)
    if found is not None and len(found.parts) == 1:
        if found.stem == module:
            return f"`{found}` is in the code folder, which is not on the path of this process: add it to PYTHONPATH."
        return f"`{found}` is next to the script: did you mean `import {found.stem}`?"
    if found is not None:
        dotted = ".".join((*found.parts[:-1], found.stem))
        return (
            f"`{found}` is in the code folder: import it as `{dotted}` (or relatively, `from .{found.stem} import …`), "
            f"or add `{found.parent}` to PYTHONPATH."
        )
    above = next((path for path in scripts if top in path.parts[1:-1]), None)
    if above is not None:
        folder = PurePosixPath(*above.parts[: above.parts.index(top)])
        return f"The package `{top}` lies under `{folder}`: add that to PYTHONPATH in `environment_variables`."
    return ""


def _misspelt(case: Case, module: str) -> str:
    own = [name.removesuffix(".py") for name in case.facts.files if name.endswith(".py") and "/" not in name]
    near = difflib.get_close_matches(module, own, 1, 0.7)
    return f"There is no module `{module}`, but `{near[0]}.py` in the code folder: did you mean that?" if near else ""


def _not_in_package(module: str) -> str:
    """Python names the whole path where the package itself exists."""
    package, _, name = module.rpartition(".")
    if not package or module in _DISTRIBUTIONS:
        return ""
    return (
        f"`{package}` is installed, but has no `{name}`: check the spelling, or the version of `{package}` that has it."
    )


def _to_install(case: Case, module: str) -> str:
    package = _DISTRIBUTIONS.get(module, module)
    where = f"the environment `{case.facts.environment}`" if case.facts.environment else "`environment` of the job"
    if module == "apex":
        return f"NVIDIA's apex is built from its sources: take an image that has it as {where}, or use `torch.amp`."
    if not case.facts.environment and not case.facts.packages:
        return f"Add `{package}` to the Python that the job uses (`pip: [{package}]` in {where})."
    return f"Add `pip: [{package}]` in {where}."


def no_gpu(case: Case) -> str:
    if case.facts.gpus:
        return (
            "The node has GPUs that this process cannot use: install a build of torch for CUDA, look at `nvidia-smi` "
            "on the node for its driver, and leave CUDA_VISIBLE_DEVICES as Muster sets it."
        )
    others = case.facts.gpu_clusters
    have = f" (these have GPUs: {', '.join(others)})" if others else ""
    if "NCCL" in case.text:
        return f'This node has no GPU: `backend="gloo"`, or `--compute` with GPUs{have}.'
    if "deserialize" in case.text:
        return f'This node has no GPU: `torch.load(…, map_location="cpu")`, or `--compute` with GPUs{have}.'
    return f"This node has no GPU: choose the device by `torch.cuda.is_available()`, or `--compute` with GPUs{have}."


def port_taken(case: Case) -> str:
    port = port_of(case.cause)
    if port is None:
        return "Another process has the port: take MASTER_PORT from the environment, or port 0 for a free one."
    if case.facts.master_port == 0 or (case.facts.master_port is None and fixed_port(case.cause)):
        return (
            f"The script fixes port {port} itself, and another process has it: take port 0 for a free one, or start "
            "the script with `--procs` and take MASTER_PORT from the environment."
        )
    if case.facts.master_port is not None and port != case.facts.master_port:
        return (
            f"The script fixes port {port} itself: take MASTER_PORT from the environment "
            f"({case.facts.master_port} here), or port 0 for a free one."
        )
    return (
        f"Port {port} was taken by another process between its choice and its use; leave "
        f"MASTER_PORT out, so that each attempt gets a fresh one."
    )


def not_met(case: Case) -> str:
    port, given = port_in(case.text), case.facts.master_port
    if port is None or not given or port == given:
        return ""
    return (
        f"Rank {case.cause.rank.rank} looked for the others at port {port}, and Muster gave MASTER_PORT {given}: let "
        f"all ranks take it from the environment."
    )


def shapes(case: Case) -> str:
    shapes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", case.text)
    if not shapes:
        return ""
    return (
        f"The layer expects {shapes[3]} features and gets {shapes[2]}: set its `in_features`, or "
        f"flatten the input before it."
    )


def exception(case: Case) -> str:
    """Advice for exceptions without a rule, by what they name."""
    line = case.text
    if found := _EXPECTED.search(line):
        return _ranks_wanted(found[1])
    if variable := next((match[1] for one in line.split("\n") if (match := _VARIABLE.match(one))), ""):
        if variable in _CONTRACT:
            return _ranks_wanted(variable)
        if "environ" in sources_of(case):
            return f"Set {variable} in `environment_variables` of the job (`--env {variable}=…`)."
    if shadow := shadowed(case):
        return shadow
    if variable := _unset(case) or variable_in(line):
        return f"`{variable}` is not set: give it in `environment_variables` of the job (`--env {variable}=…`)."
    if "FileNotFoundError" in line or "No such file" in line or "Errno 2]" in line:
        return _file_missing(case)
    if "BrokenPipeError" in line and (reader := _READER.search(case.cause.rank.command)):
        return f"`{reader[1].strip()}` in the command had ended before all was written to it."
    if "Permission denied" in line or "Errno 13]" in line:
        path = quoted_path(line)
        return (
            f"The job may not write or read `{path}`: use a folder under the working folder, an output, or TMPDIR."
            if path
            else ""
        )
    if told := known(line):
        return told
    if url := address_in(line):
        return f"The node does not reach {url}: check the address, and whether the node may go out to it."
    if case.raised is not None and case.raised.kind.endswith("EOFError") and "reading a line" in line:
        return "Nobody answers `input()` in a job: take the value from an argument."
    if case.raised is not None and case.raised.kind.endswith("RecursionError"):
        return ""
    return ""


def _ranks_wanted(variable: str) -> str:
    return (
        f"The script asks for {variable}, which is set only where processes are counted: `muster run SCRIPT --procs 1` "
        "(2, 4 … for more of them), or `distribution: {type: pytorch, process_count_per_instance: 1}` in the job file."
    )


def _unset(case: Case) -> str:
    """An environment variable that the failing line reads and that is empty."""
    frame = own_frame(case.raised)
    found = re.search(r"(?:getenv|environ\.get)\(\s*['\"](\w+)['\"]", frame.source) if frame else None
    return found[1] if found and ("NoneType" in case.text or "invalid literal" in case.text) else ""


def shadowed(case: Case) -> str:
    """A file of the job that shadows a module by accident."""
    if name := _imported_by_library(case):
        module = name.removesuffix(".py")
        return f"`{name}` in the code folder is imported where a package means its own `{module}`: rename it."
    found = re.search(r"module '(\w+)' has no attribute|cannot import name '\w+' from '(\w+)'", case.text)
    name = next((group for group in found.groups() if group), "") if found else ""
    if name and f"{name}.py" in case.facts.files:
        return f"`{name}.py` in the code folder hides the module `{name}`: give it another name."
    return ""


def _imported_by_library(case: Case) -> str:
    """The job's own file that a library's import statement led to; empty where none did."""
    frames = case.raised.frames if case.raised else ()
    for outer, inner in pairwise(frames):
        name = PurePosixPath(inner.file).name
        is_import = re.match(r"\s*(?:from|import)\s+(\w+)", outer.source)
        if outer.of_library and not inner.of_library and is_import and name == f"{is_import[1]}.py":
            return name if name in case.facts.files else ""
    return ""


def _file_missing(case: Case) -> str:
    path = quoted_path(case.text)
    if not path:
        return ""
    name = PurePosixPath(path).name
    near = [file for file in case.facts.files if PurePosixPath(file).name == name and file != path]
    near += difflib.get_close_matches(path.removeprefix("./"), case.facts.files, 1, 0.75)
    if near:
        return f"There is no `{path}` in the working folder, but `{near[0]}`: did you mean that?"
    if path.startswith("/"):
        return f"`{path}` is not on the node: give it as an input of the job, or check that the node mounts it."
    return (
        f"`{path}` was not in the code folder that was submitted (is it ignored?), or give it as "
        f"an input: relative paths start in that folder."
    )


def data(case: Case) -> str:
    path = quoted_path(case.text)
    if path and _STORAGE.search(case.text):
        return f"The storage of `{path}` fails: look at its mount and at `dmesg` on the node, or try another node."
    return _file_missing(case) or code_of("data_unavailable").next


def environment(case: Case) -> str:
    return shadowed(case) or _optional(case)


def _optional(case: Case) -> str:
    """A package that another one requires by name."""
    found = _OPTIONAL.search("\n".join((case.text, *case.cause.lines)))
    return _to_install(case, found[1] or found[2].rstrip(".")) if found else ""
