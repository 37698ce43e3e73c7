"""Advice about exceptions of Python: what they name, and what lies around them."""

from __future__ import annotations

import difflib
import re
from pathlib import PurePosixPath

from muster.diagnosis.advice.case import Case, address_in, own_frame, port_in, quoted_path, sources_of
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
    "tensorboardX": "tensorboardX",
    "apex": "apex",
    "MySQLdb": "mysqlclient",
    "psycopg2": "psycopg2-binary",
    "zmq": "pyzmq",
    "win32api": "pywin32",
}
_VARIABLE = re.compile(r"^KeyError: '([A-Z][A-Z0-9_]{2,})'")


def module_missing(case: Case) -> str:
    module = case.group("module")
    top = module.partition(".")[0]
    files = case.facts.files
    last = module.rpartition(".")[2]
    beside = [name for name in files if PurePosixPath(name).stem == last or PurePosixPath(name).stem == top]
    asked_for = re.search(
        rf"from {re.escape(module)}(?:\.(\w+))? import|from {re.escape(module)}\.(\w+)|import "
        rf"{re.escape(module)}\.(\w+)",
        sources_of(case),
    )
    inside = next((group for group in asked_for.groups() if group), "") if asked_for else ""
    if inside:
        beside += [name for name in files if PurePosixPath(name).stem == inside]
    folders = [name for name in files if f"/{top}/" in f"/{name}" and not name.startswith(f"{top}/")]
    if beside:
        name = beside[0]
        if "/" not in name:
            other = PurePosixPath(name).stem
            return (
                f"`{name}` lies beside the script: did you mean `import {other}`?"
                if other != module
                else f"`{name}` is in the code folder, which is not on the path of this process: add it to PYTHONPATH."
            )
        folder = str(PurePosixPath(name).parent)
        dotted = name.removesuffix(".py").replace("/", ".")
        return (
            f"`{name}` is in the code folder: import it as `{dotted}` (or relatively, `from .{last} "
            f"import …`), or add `{folder}` to PYTHONPATH."
        )
    if folders:
        folder = folders[0].partition(f"{top}/")[0].rstrip("/")
        return f"The package `{top}` lies under `{folder}`: add that to PYTHONPATH in `environment_variables`."
    script = next((name for name in difflib.get_close_matches(f"{top}.py", files, 1, 0.6)), "")
    if script and "-m" in " ".join(case.cause.rank.command.split()[:3]):
        return f"There is no module {module} in the code folder; did you mean `{script}`?"
    package = _DISTRIBUTIONS.get(top, top)
    where = (
        f"in the environment `{case.facts.environment}`" if case.facts.environment else "in `environment` of the job"
    )
    return f"Add `pip: [{package}]` {where}."


def no_gpu(case: Case) -> str:
    others = case.facts.gpu_clusters
    have = f" (these have GPUs: {', '.join(others)})" if others else ""
    if "NCCL" in case.text:
        return f'This node has no GPU: `backend="gloo"`, or `--compute` with GPUs{have}.'
    if "deserialize" in case.text:
        return f'This node has no GPU: `torch.load(…, map_location="cpu")`, or `--compute` with GPUs{have}.'
    return f"This node has no GPU: choose the device by `torch.cuda.is_available()`, or `--compute` with GPUs{have}."


def port_taken(case: Case) -> str:
    port = port_in(case.text)
    if port is None:
        return "Another process has the port: take MASTER_PORT from the environment, or port 0 for a free one."
    if case.facts.master_port is not None and port != case.facts.master_port:
        return (
            f"The script fixes port {port} itself: take MASTER_PORT from the environment "
            f"({case.facts.master_port} here), or port 0 for a free one."
        )
    return (
        f"Port {port} was taken by another process between its choice and its use; leave "
        f"MASTER_PORT out, so that each attempt gets a fresh one."
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
    """Advice for exceptions that no rule is for, by what they name."""
    line = case.text
    if variable := next((match[1] for one in line.split("\n") if (match := _VARIABLE.match(one))), ""):
        if variable in _CONTRACT:
            return (
                f"{variable} is set only when processes are counted: give a process count "
                "(`--procs`, process_count_per_instance), or start the script with torchrun."
            )
        if "environ" in sources_of(case):
            return f"Set {variable} in `environment_variables` of the job (`--env {variable}=…`)."
    if shadow := shadowed(case):
        return shadow
    if variable := _unset(case):
        return f"`{variable}` is not set: give it in `environment_variables` of the job (`--env {variable}=…`)."
    if "FileNotFoundError" in line or "No such file" in line or "Errno 2]" in line:
        return _file_missing(case)
    if "Permission denied" in line or "Errno 13]" in line:
        path = quoted_path(line)
        return (
            f"The job may not write or read `{path}`: use a folder under the working folder, an output, or TMPDIR."
            if path
            else ""
        )
    if url := address_in(line):
        return f"The node does not reach {url}: check the address, and whether the node may go out to it."
    if case.raised is not None and case.raised.kind.endswith("EOFError") and "reading a line" in line:
        return "Nobody answers `input()` in a job: take the value from an argument."
    if case.raised is not None and case.raised.kind.endswith("RecursionError"):
        return ""
    return ""


def _unset(case: Case) -> str:
    """A variable of the environment that the failing line reads and finds empty."""
    frame = own_frame(case.raised)
    found = re.search(r"(?:getenv|environ\.get)\(\s*['\"](\w+)['\"]", frame.source) if frame else None
    return found[1] if found and ("NoneType" in case.text or "invalid literal" in case.text) else ""


def shadowed(case: Case) -> str:
    found = re.search(r"module '(\w+)' has no attribute|cannot import name '\w+' from '(\w+)'", case.text)
    name = next((group for group in found.groups() if group), "") if found else ""
    if name and f"{name}.py" in case.facts.files:
        return f"`{name}.py` in the code folder hides the module `{name}`: give it another name."
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
    return _file_missing(case) or code_of("data_unavailable").next


def environment(case: Case) -> str:
    return shadowed(case)
