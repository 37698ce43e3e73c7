"""The next step, with names in it: from the rule that fits, the stack, and what is known about the job. Nothing where nothing is known."""

from __future__ import annotations

import difflib
import re
import signal as signals
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from muster.diagnosis.causes import Cause
from muster.diagnosis.gangs import short
from muster.diagnosis.raised import Frame, Raised
from muster.wire.verdicts import Facts, code_of

_FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
_OUTSIDE = (
    "Something outside the program sent this signal, and it was not Muster: look for a person, a watchdog or a limit on the "
    "node. `retry.user_error` has it tried again."
)
_KILLED = (
    "Something outside the program sent this signal, and it was neither Muster nor, as far as is known, the kernel for want of "
    "memory: look for a person, a watchdog or a memory limit on the node. `retry.user_error` has it tried again."
)
_CONTRACT = ("LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Codes whose usual advice says nothing that the message does not.
_SAYS_NOTHING = (
    "exception",
    "exit_code",
    "bad_input",
    "environment",
    "launcher_missing",
    "collective",
    "rendezvous",
    "data_unavailable",
)
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
_PORT = re.compile(r"port:? ?(\d{2,5})\b|[:\]](\d{4,5})\b|\((?:'[^']*'|\"[^\"]*\"), (\d{2,5})\)")
_QUOTED_PATH = re.compile(r"['\"‘„«]([^'\"’“»]{1,300})['\"’“»]")
_PATH = re.compile(r"(?<![\w:/])(/[\w.@%+=-]+(?:/[\w.@%+=-]+)*)")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)")
_OPENED = re.compile(r"(?:open|read|load|find|stat|access) (?:file )?([\w./-]+\.\w+)")
_CONNECTED = re.compile(r"connect(?:ion)? to ([\w.-]+)(?: port (\d+)|:(\d+))?")
_CRLF = "The script has Windows line endings (CRLF): `dos2unix` it, or `sed -i 's/\\r$//'`."
_URL = re.compile(r"\b((?:https?|s3|gs|hdfs)://[^\s'\"<>)]+)|host='([^']+)', port=(\d+)")
_VARIABLE = re.compile(r"^KeyError: '([A-Z][A-Z0-9_]{2,})'")
_UNBOUND = re.compile(r"(?<!\w)(\w+): unbound variable")
_CHOICE = re.compile(r"argument (\S+): invalid choice: (\S+) \(choose from (.{1,200}?)\)")
_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (\S+)|No such option:? ?(--\S+)")
_NO_PROGRAM = re.compile(
    r"(?:^|: )(?:(?:line|Zeile|ligne|línea|行) ?\d+ ?: )?(\S+?) ?: (?:command not found|not found|Kommando nicht gefunden|commande introuvable|orden no encontrada|コマンドが見つかりません)"
)
_INTERPRETER = re.compile(r"(?<!\S)(/\S+?): bad interpreter")


@dataclass(frozen=True)
class Case:
    """What a piece of advice looks at."""

    cause: Cause
    facts: Facts

    @property
    def line(self) -> str:
        return self.cause.headline

    @property
    def text(self) -> str:
        return "\n".join(
            (self.cause.headline, *(self.cause.raised.all_lines if self.cause.raised else self.cause.lines))
        )

    @property
    def raised(self) -> Raised | None:
        return self.cause.raised

    def group(self, name: str) -> str:
        return self.cause.finding.groups.get(name, "") if self.cause.finding else ""


def next_step(cause: Cause, facts: Facts) -> str:
    """What the user can do about a cause; empty where the message says it all."""
    case = Case(cause, facts)
    rule = cause.finding.rule.name if cause.finding else ""
    named = _BY_RULE[rule](case) if rule in _BY_RULE else cause.finding.next if cause.finding else ""
    if not named and cause.code in _BY_CODE:
        named = _BY_CODE[cause.code](case)
    general = "" if cause.code in _SAYS_NOTHING else code_of(cause.code).next
    parts = [named or general]
    if cause.code in ("exception", "environment", "host_oom", "port_trouble") and (place := _place(case)):
        parts.append(place)
    if cause.code in ("exception", "environment") and facts.completed:
        parts.append(f"The same code {facts.completed}.")
    return " ".join(part for part in parts if part)


def of_script(cause: Cause, facts: Facts) -> bool:
    """Whether a fault that looks like the platform's is the script's own."""
    if cause.code != "port_trouble":
        return False
    port = port_in("\n".join((cause.headline, *cause.lines)))
    return port is not None and facts.master_port is not None and port != facts.master_port


def port_in(text: str) -> int | None:
    found = _PORT.search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def _place(case: Case) -> str:
    """The innermost line of the user's own code."""
    frame = own_frame(case.raised)
    if frame is None:
        return ""
    inside = f", in {frame.function}" if frame.function not in ("", "<module>") else ""
    source = f": `{frame.source[:100]}`" if frame.source and not set(frame.source) <= set("^~ ") else ""
    return f"{short(frame.file)} line {frame.line}{inside}{source}."


def own_frame(raised: Raised | None) -> Frame | None:
    if raised is None:
        return None
    for one in (*raised.causes[:1], raised, *raised.causes[1:]):
        for frame in reversed(one.frames):
            if not frame.of_library:
                return frame
    return None


def _module_missing(case: Case) -> str:
    module = case.group("module")
    top, _, rest = module.partition(".")
    files = case.facts.files
    last = module.rpartition(".")[2]
    beside = [name for name in files if PurePosixPath(name).stem == last or PurePosixPath(name).stem == top]
    asked_for = re.search(
        rf"from {re.escape(module)}(?:\.(\w+))? import|from {re.escape(module)}\.(\w+)|import {re.escape(module)}\.(\w+)",
        _sources(case),
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
        return f"`{name}` is in the code folder: import it as `{dotted}` (or relatively, `from .{last} import …`), or add `{folder}` to PYTHONPATH."
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


def _sources(case: Case) -> str:
    frames = [frame for one in ((case.raised, *case.raised.causes) if case.raised else ()) for frame in one.frames]
    return "\n".join(frame.source for frame in frames)


def _no_gpu(case: Case) -> str:
    others = case.facts.gpu_clusters
    have = f" (these have GPUs: {', '.join(others)})" if others else ""
    if "NCCL" in case.text:
        return f'This node has no GPU: `backend="gloo"`, or `--compute` with GPUs{have}.'
    if "deserialize" in case.text:
        return f'This node has no GPU: `torch.load(…, map_location="cpu")`, or `--compute` with GPUs{have}.'
    return f"This node has no GPU: choose the device by `torch.cuda.is_available()`, or `--compute` with GPUs{have}."


def _port_taken(case: Case) -> str:
    port = port_in(case.text)
    if port is None:
        return "Another process has the port: take MASTER_PORT from the environment, or port 0 for a free one."
    if case.facts.master_port is not None and port != case.facts.master_port:
        return f"The script fixes port {port} itself: take MASTER_PORT from the environment ({case.facts.master_port} here), or port 0 for a free one."
    return f"Port {port} was taken by another process between its choice and its use; leave MASTER_PORT out, so that each attempt gets a fresh one."


def _shapes(case: Case) -> str:
    shapes = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", case.text)
    if not shapes:
        return ""
    return f"The layer expects {shapes[3]} features and gets {shapes[2]}: set its `in_features`, or flatten the input before it."


def _exception(case: Case) -> str:
    """Advice for exceptions that no rule is for, by what they name."""
    line = case.text
    if variable := next((match[1] for one in line.split("\n") if (match := _VARIABLE.match(one))), ""):
        if variable in _CONTRACT:
            return (
                f"{variable} is set only when processes are counted: give a process count "
                "(`--procs`, process_count_per_instance), or start the script with torchrun."
            )
        if "environ" in _sources(case):
            return f"Set {variable} in `environment_variables` of the job (`--env {variable}=…`)."
    if shadow := _shadowed(case):
        return shadow
    if variable := _unset(case):
        return f"`{variable}` is not set: give it in `environment_variables` of the job (`--env {variable}=…`)."
    if "FileNotFoundError" in line or "No such file" in line or "Errno 2]" in line:
        return _file_missing(case)
    if "Permission denied" in line or "Errno 13]" in line:
        path = _quoted_path(line)
        return (
            f"The job may not write or read `{path}`: use a folder under the working folder, an output, or TMPDIR."
            if path
            else ""
        )
    if url := _address(line):
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


def _shadowed(case: Case) -> str:
    found = re.search(r"module '(\w+)' has no attribute|cannot import name '\w+' from '(\w+)'", case.text)
    name = next((group for group in found.groups() if group), "") if found else ""
    if name and f"{name}.py" in case.facts.files:
        return f"`{name}.py` in the code folder hides the module `{name}`: give it another name."
    return ""


def _file_missing(case: Case) -> str:
    path = _quoted_path(case.text)
    if not path:
        return ""
    name = PurePosixPath(path).name
    near = [file for file in case.facts.files if PurePosixPath(file).name == name and file != path]
    near += difflib.get_close_matches(path.removeprefix("./"), case.facts.files, 1, 0.75)
    if near:
        return f"There is no `{path}` in the working folder, but `{near[0]}`: did you mean that?"
    if path.startswith("/"):
        return f"`{path}` is not on the node: give it as an input of the job, or check that the node mounts it."
    return f"`{path}` was not in the code folder that was submitted (is it ignored?), or give it as an input: relative paths start in that folder."


def _quoted_path(text: str) -> str:
    for found in _QUOTED_PATH.finditer(text):
        if "/" in found[1] or "." in found[1]:
            return found[1]
    bare = _PATH.search(text)
    return bare[1] if bare else ""


def _address(text: str) -> str:
    if found := _URL.search(text):
        return found[1] or f"{found[2]}:{found[3]}"
    if found := _CONNECTED.search(text):
        return ":".join(part for part in found.groups() if part)
    if (
        "URLError" in text
        or "ConnectionRefusedError" in text
        or "gaierror" in text
        or "Name or service not known" in text
    ):
        return "that server"
    return ""


def _bad_input(case: Case) -> str:
    line = case.line
    if _has_crlf(case.text):
        return _CRLF
    if found := _CHOICE.search(line):
        return f"Give {found[1]} one of {found[3]}."
    if found := _UNKNOWN_OPTION.search(case.text):
        given = (found[1] or found[2]).partition("=")[0]
        known = _OPTION.findall("\n".join(case.cause.lines))
        near = difflib.get_close_matches(given, [option for option in known if option != given], 1, 0.5)
        return f"The script has no option {given}" + (f": did you mean {near[0]}?" if near else ".")
    if "can't open file" in line:
        path = _quoted_path(line.partition("can't open file")[2])
        name = PurePosixPath(path).name
        near = difflib.get_close_matches(name, case.facts.files, 1, 0.5)
        return f"There is no {name} in the code folder" + (f": did you mean `{near[0]}`?" if near else ".")
    if meant := _meant(case.text):
        return meant
    if line.lower().startswith("usage: "):
        return f"The command lacks arguments: {line[:200]}"
    options = _OPTION.findall(line)
    return f"Put {options[0]} right in the command." if options else ""


def _has_crlf(text: str) -> bool:
    """The marks of a carriage return where a name should end."""
    return any(mark in text for mark in ("\\r'", "\\r’", "\\r:", '\\r"', "^M", "\r"))


def _launcher(case: Case) -> str:
    text = case.text
    if _has_crlf(text):
        return _CRLF
    if "required file not found" in text:
        return (
            "The first line of the script (its shebang) names an interpreter that the node does not have; Windows line endings "
            "(CRLF) do that too: `dos2unix`. Or start it with its interpreter."
        )
    if found := _INTERPRETER.search(text):
        return f"The first line of the script names an interpreter that the node does not have ({found[1]}): `#!/usr/bin/env bash`, or start it with its interpreter."
    if case.cause.rank.exit_code == 126:
        return _not_executable(case)
    if found := _NO_PROGRAM.search(case.line):
        return (
            f"There is no program `{found[1]}` on PATH: check its spelling, or use an environment or image that has it."
        )
    return code_of("launcher_missing").next


def _not_executable(case: Case) -> str:
    program = next((word for word in case.cause.rank.command.split() if "/" in word), "the file")
    if "Is a directory" in case.text:
        return f"`{program}` is a folder, not a program."
    if "Exec format" in case.text or "cannot execute binary" in case.text:
        return f"`{program}` was built for another architecture or format, or lacks its `#!` line."
    return f"`chmod +x {program}`, or start it with its interpreter (`bash {program}`)."


_SIGNALS = {
    signals.SIGPIPE: "What it wrote to had ended first: the other end of a pipe, such as `| head`.",
    signals.SIGXCPU: "A limit of CPU time ended it (`ulimit -t`): raise it in the command or on the node.",
    signals.SIGXFSZ: "A limit of file sizes ended it (`ulimit -f`): raise it in the command or on the node.",
    signals.SIGILL: "The CPU does not know an instruction: a library was built for a newer CPU. Use another build of it.",
    signals.SIGUSR1: "It was sent by something outside, a batch system for example, and the program does not handle it.",
    signals.SIGUSR2: "It was sent by something outside, a batch system for example, and the program does not handle it.",
}
_FAULT = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.+)$')
_MEANT = re.compile(r"[Dd]id you mean:? ?[`'\"]?([\w.+-]+)[`'\"]? ?\?")


def _meant(text: str) -> str:
    """What the program itself proposes."""
    found = _MEANT.search(text)
    return f"It asks whether you meant `{found[1]}`." if found else ""


def _exit_code(case: Case) -> str:
    text = "\n".join((case.line, *case.cause.lines[-8:]))
    if _has_crlf(text):
        return _CRLF
    if not case.line and (moved := re.search(r"--(?:redirects|log[-_]dir)[= ]\S+", case.cause.rank.command)):
        return f"What its processes printed was sent elsewhere (`{moved[0]}`): add `--tee 3` to have it in the log too."
    if meant := _meant(text):
        return meant
    if found := re.search(r"(?i)exit ?code:? -(\d+)", text):
        name = signals.Signals(int(found[1])).name if int(found[1]) in set(signals.Signals) else f"signal {found[1]}"
        why = ": it was killed from outside, for want of memory perhaps" if name == "SIGKILL" else ""
        return f"A child process was ended by {name}{why}."
    if found := re.search(r"^FAILED (\S+)", text, re.M):
        return f"The test {found[1]} failed."
    if found := _UNBOUND.search(text):
        return f"Set {found[1]} in `environment_variables` of the job."
    if "syntax error" in text or re.search(r"line \d+: (?:import|from|def|class|print)\b", text):
        script = re.search(r"(?<![\w./-])([\w./-]+\.sh): ", text)
        wrong = (
            " is not a shell script: it lacks its `#!` line, or start it with `python`"
            if re.search(r"import|print\(", text)
            else ""
        )
        return f"Look at {script[1]}{wrong}." if script else ""
    if found := re.search(r"[Cc]ommand not found|: not found", text):
        return _launcher(case)
    if options := _OPTION.findall(case.line):
        return f"The program asks for {options[0]} in the command."
    if url := _address(case.line):
        return f"The node does not reach {url}: check the address, and whether the node may go out to it."
    if found := re.search(
        r"(?<![\w./-])([\w./-]+\.(?:cpp|cc|c|cu|f90|rs|go|pl|R|jl)):(\d+)", "\n".join((text, *case.cause.lines))
    ):
        return f"{short(found[1])} line {found[2]}."
    if case.cause.rank.exit_code == 124 and "timeout " in case.cause.rank.command:
        return "`timeout` in the command ended it: give it more time there."
    if path := _missing_path(case.line):
        return f"`{path}` is not there on the node: check the path, or give it as an input of the job."
    if found := re.search(r"No matching distribution found for (\S+)", text):
        return f"pip knows no `{found[1]}`: check its spelling, its version and the index."
    return ""


def _missing_path(line: str) -> str:
    if not re.search(
        r"(?i)no such file|cannot (?:stat|open|access|find)|not (?:found|exist)|nicht|no existe|Aucun|no se puede|not in gzip|impossible",
        line,
    ):
        found = _PATH.search(line)
        return found[1] if found and re.search(r"(?i)\bno \w+ (?:under|in|at)\b|missing", line) else ""
    if _QUOTED_PATH.search(line):
        return _quoted_path(line)
    bare = _PATH.search(line) or _OPENED.search(line)
    return bare[1] if bare else ""


def _signal(case: Case) -> str:
    if case.cause.signal in _SIGNALS:
        return _SIGNALS[signals.Signals(case.cause.signal)]
    if case.cause.signal in _FROM_OUTSIDE:
        return _KILLED if case.cause.signal == signals.SIGKILL else _OUTSIDE
    found = [match for line in case.cause.lines if (match := _FAULT.match(line))]
    frames = [Frame(match["file"], int(match["line"]), match["function"]) for match in found]
    own = next((frame for frame in frames if not frame.of_library), None)
    if own is not None:
        return f"It crashed in native code called at {short(own.file)} line {own.line}, in {own.function}."
    return ""


def _data(case: Case) -> str:
    return _file_missing(case) or code_of("data_unavailable").next


def _environment(case: Case) -> str:
    return _shadowed(case)


_BY_RULE: Mapping[str, Callable[[Case], str]] = {
    "module missing": _module_missing,
    "name missing": lambda case: _shadowed(case) or (case.cause.finding.next if case.cause.finding else ""),
    "no GPU here": _no_gpu,
    "port taken": _port_taken,
    "shapes": _shapes,
    "data": _data,
    "lost peer": _exception,
}
_BY_CODE: Mapping[str, Callable[[Case], str]] = {
    "exception": _exception,
    "environment": _environment,
    "bad_input": _bad_input,
    "launcher_missing": _launcher,
    "exit_code": _exit_code,
    "signal": _signal,
}
