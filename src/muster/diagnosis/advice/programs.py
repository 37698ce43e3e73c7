"""Advice about programs that exit with a code or by a signal, and about commands that do not start."""

from __future__ import annotations

import difflib
import re
import signal as signals
from itertools import islice
from pathlib import PurePosixPath

from muster.diagnosis.advice.case import (
    OPTION,
    Case,
    address_in,
    has_crlf,
    meant_by,
    missing_path,
    own_frame,
    path_in,
    quoted_path,
    variable_in,
)
from muster.diagnosis.advice.well_known import known
from muster.diagnosis.raised import Frame
from muster.diagnosis.waiting import short
from muster.wire.verdicts import code_of

_FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP)
_OUTSIDE = (
    "Something outside the program sent {name}, and it was not Muster: look for a person, a watchdog or a limit on "
    "the node. `retry.user_error` has it tried again."
)
_KILLED = (
    "Something outside the program sent {name}. It was neither Muster nor, as far as is known, the kernel running out "
    "of memory: look for a person, a watchdog or a memory limit on the node. `retry.user_error` has it tried again."
)
_UNCAUGHT = "Nothing caught this C++ exception: `catch throw` in `gdb` shows where it comes from."
_NATIVE = "The program crashed in native code: run it under `gdb` or `valgrind`, or look for a core file."
_SIGNALS = {
    signals.SIGPIPE: "What it wrote to had ended first: the other end of a pipe, such as `| head`.",
    signals.SIGXCPU: "A limit of CPU time ended it (`ulimit -t`): raise it in the command or on the node.",
    signals.SIGXFSZ: "A limit of file sizes ended it (`ulimit -f`): raise it in the command or on the node.",
    signals.SIGILL: "The CPU does not know an instruction: a library was built for a newer CPU. Use another "
    "build of it.",
    signals.SIGALRM: "A timer of the program's own went off (`alarm`, `setitimer`), and nothing handles SIGALRM.",
    signals.SIGBUS: "What it had mapped could not be read or written: a file that was cut short meanwhile, or one on a "
    "disk (or in /dev/shm) without room. `python -X faulthandler` shows the line.",
    signals.SIGUSR1: "It was sent by something outside, a batch system for example, and the program does not "
    "handle it.",
    signals.SIGUSR2: "It was sent by something outside, a batch system for example, and the program does not "
    "handle it.",
}
_CRLF = "The script has Windows line endings (CRLF): `dos2unix` it, or `sed -i 's/\\r$//'`."
_UNBOUND = re.compile(r"(?<!\w)(\w+): unbound variable")
_CHOICE = re.compile(r"argument (\S+): invalid choice: (\S+) \(choose from (.{1,200}?)\)")
_UNKNOWN_OPTION = re.compile(
    r"unrecognized arguments: (\S+)|No such option:? ?(--\S+)|Could not consume arg: (--\S+)"
    r"|[Uu]n(?:known|recogni[sz]ed) option:? ['\"`]?(?!was\b)([\w-]+)|(?:illegal|invalid) option -- ['\"]?(\w)"
)
_NO_PROGRAM = re.compile(
    r"(?:^|: )(?:(?:line|Zeile|ligne|línea|行) ?\d+ ?: )?(\S+?) ?: (?:command not found|not "
    r"found|Kommando nicht gefunden|commande introuvable|orden no encontrada|コマンドが見つかりません)"
)
_SHORT_OPTION = re.compile(r"(?:not defined|unknown (?:shorthand )?flag|for flag):? ['\"`]?(-\w[\w-]*)")
_NAMED_ARGUMENT = re.compile(
    r"(?:[Mm]issing (?:argument|parameter)|arguments are required:|the required argument:)"
    r" ['\"]?([\w.<>, -]{1,80}?)['\"]?\.?$"
)
_INTERPRETER = re.compile(r"(?<!\S)(/\S+?): bad interpreter|the interpreter '([^'\n]+)' that \S+ names")
_NATIVE_PLACE = re.compile(r"(?<![\w./-])([\w./-]+\.(?:c|cc|cpp|cxx|cu|h|hpp|f90)):(\d+)")
_SCRIPT_LINE = re.compile(
    r"(?<![\w./-])((?:[\w./-]+\.(?:sh|bash|pl|pm|rb|R|m|txt|cmake|php))|Makefile)(?:: line |:| line | on line )(\d+)\b"
)
_HOST = re.compile(r"[Cc]ould not resolve host(?:name)?:? ([\w.-]+)|unable to resolve host address .([\w.-]+)")
_NO_PROGRAM_ENV = re.compile(
    r"env: .([^\s'’]+).: (?:No such file|Datei oder)|command not found: (\S+)"
    r"|failed to run command .([^'’\s]{1,200}).: "
    r"|^(?:\S*/)?(?:ba|da|z|k)?sh: (?:line \d+: |\d+: )?(\S+): No such file"
)
_UNOPENED = re.compile(
    r"(?i)(?:could not|cannot|can't|unable to|failed to) (?:open|access|read|stat)|no such file or directory"
)
_SOURCE_LINE = re.compile(
    r"(?<![\w./-])([\w./-]{1,200}\.(?:cpp|cxx|cc|c|cu|h|hpp|f90|rs|go|pl|R|jl|java|kt|scala|cs|ts|js|rb|lua|php|py|sh))"
    r"(?::\[?|\(|:line )(\d{1,6})\b"
)
_OF_LANGUAGE = re.compile(r"^\./(?:boot|essentials|Base|loading|array)\.jl|/lib/|deno_|node:|^main\.c$")
_NO_PYTHON = re.compile(r"\S{1,200}\.py\b")
_MPI_CALL = re.compile(r"An error occurred in (MPI_\w+)")
_OF_SLURM = re.compile(r"slurmstepd: error: Detected \d+ oom|srun: error: \S+: tasks? [\d,-]+: Out Of Memory")
_TAIL_CHARS = 4096
_FAULT = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.+)$')


def bad_input(case: Case) -> str:
    line = case.line
    if has_crlf(case.text):
        return _CRLF
    if found := _CHOICE.search(line):
        return f"Give {found[1]} one of {found[3]}."
    if found := _UNKNOWN_OPTION.search(case.text):
        given = next(group for group in found.groups() if group).partition("=")[0]
        known = OPTION.findall("\n".join(case.cause.lines))
        near = difflib.get_close_matches(given, [option for option in known if option != given], 1, 0.5)
        return f"The script has no option {given}" + (f": did you mean {near[0]}?" if near else ".")
    if "can't open file" in line:
        return _no_script(quoted_path(line.partition("can't open file")[2]), case)
    if meant := meant_by(case.text):
        return meant
    if line.lower().startswith("usage: "):
        return f"The command lacks arguments: {line[:200]}"
    if options := OPTION.findall(line):
        return f"Put {options[0]} right in the command."
    if found := _SHORT_OPTION.search(line):
        return f"Put {found[1]} right in the command."
    named = _NAMED_ARGUMENT.search(line)
    return f"Give {named[1]} in the command." if named else ""


def _no_script(path: str, case: Case) -> str:
    """Python was given a script that does not exist; the right one is elsewhere, or has nearly the same name."""
    name = PurePosixPath(path).name
    files = case.facts.files
    same = [file for file in files if PurePosixPath(file).name == name and not path.endswith(f"/work/{file}")]
    names = {PurePosixPath(file).name: file for file in files}
    near = same or [names[found] for found in difflib.get_close_matches(name, names, 1, 0.5)]
    return f"There is no {name}" + (
        f": did you mean `{near[0]}`?" if near else f" where the command looks for it ({path})."
    )


def launcher(case: Case) -> str:
    text = case.text
    if has_crlf(text):
        return _CRLF
    if "required file not found" in text:
        return (
            "The first line of the script (its shebang) names an interpreter that the node does not "
            "have; Windows line endings "
            "(CRLF) do that too: `dos2unix`. Or start it with its interpreter."
        )
    if found := _INTERPRETER.search(text):
        return (
            f"The first line of the script names an interpreter that the node does not have "
            f"({found[1] or found[2]}): `#!/usr/bin/env bash`, or start it with its interpreter."
        )
    if told := known(case.line):
        return told
    if case.raised is not None and (program := quoted_path(case.line)):
        return _not_started(program, case)
    if case.cause.rank.exit_code == 126:
        return _not_executable(case)
    if found := _NO_PROGRAM_ENV.search(case.line) or _NO_PROGRAM.search(case.line):
        name = next(group for group in found.groups() if group)
        return f"There is no program `{name}` on PATH: check its spelling, or use an environment or image that has it."
    return code_of("launcher_missing").next


def _not_started(program: str, case: Case) -> str:
    """The command that a launcher was to start, and why it could not."""
    if "No such file" not in case.line:
        return _not_executable(case, program)
    name = program.removeprefix("./")
    if name in case.facts.files:
        return f"The first line of `{program}` (its shebang) names an interpreter that the node does not have."
    near = difflib.get_close_matches(name, case.facts.files, 1, 0.6)
    meant = f" Did you mean `{near[0]}`?" if near else ""
    return f"There is no program `{program}` for the launcher to start: check its spelling and its path.{meant}"


def _not_executable(case: Case, program: str = "") -> str:
    program = program or next((word for word in case.cause.rank.command.split() if "/" in word), "the file")
    if "Is a directory" in case.text:
        return f"`{program}` is a folder, not a program."
    if "Exec format" in case.text or "cannot execute binary" in case.text:
        return f"`{program}` was built for another architecture or format, or lacks its `#!` line."
    return f"`chmod +x {program}`, or start it with its interpreter (`bash {program}`)."


def exit_code(case: Case) -> str:
    text = "\n".join((case.line, *case.cause.lines[-8:]))
    if has_crlf(text):
        return _CRLF
    told = known(case.line) or known(text)
    return _of_children(case, text) or told or _of_shells(case, text) or _of_names(case, text)


def _of_children(case: Case, text: str) -> str:
    """A program's words about the programs that it started or called."""
    if not case.line and (moved := re.search(r"--(?:redirects|log[-_]dir)[= ]\S+", case.cause.rank.command)):
        return f"What its processes printed was sent elsewhere (`{moved[0]}`): add `--tee 3` to have it in the log too."
    if meant := meant_by(text):
        return meant
    if found := re.search(r"(?i)exit ?code:? -(\d+)", text):
        name = signals.Signals(int(found[1])).name if int(found[1]) in set(signals.Signals) else f"signal {found[1]}"
        why = ": it was killed from outside, perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"A child process was ended by {name}{why}."
    if found := re.search(r"^FAILED (\S+)", text, re.M):
        return f"The test {found[1]} failed."
    if found := _HOST.search(text):
        host = found[1] or found[2]
        return f"The node does not know the host {host}: check its name, and whether the node may go out to it."
    if found := _MPI_CALL.search("\n".join(case.cause.lines)):
        return (
            f"Rank {case.cause.rank.rank} called {found[1]} with what MPI does not take: look at its arguments there."
        )
    return ""


def _of_shells(case: Case, text: str) -> str:
    """A syntax error of a shell."""
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
        return launcher(case)
    return ""


def _of_names(case: Case, text: str) -> str:
    """Names in the last words: options, addresses, files."""
    if options := OPTION.findall(case.line):
        return f"The program asks for {options[0]} in the command."
    if url := address_in(case.line):
        return f"The node does not reach {url}: check the address, and whether the node may go out to it."
    if variable := variable_in(case.line):
        return f"Set {variable} in `environment_variables` of the job (`--env {variable}=…`)."
    if path := missing_path(case.line) if _UNOPENED.search(case.line) else "":
        return f"`{path}` is not there on the node: check the path, or give it as an input of the job."
    if case.cause.rank.exit_code == 124 and "timeout " in case.cause.rank.command:
        return "`timeout` in the command ended it: give it more time there."
    # A Python stack in the log need not belong to this failure.
    if place := _source_line(case.line) or _source_line(_NO_PYTHON.sub("", "\n".join((text, *case.cause.lines)))):
        return place
    if path := missing_path(case.line):
        return f"`{path}` is not there on the node: check the path, or give it as an input of the job."
    if found := re.search(r"undefined reference to [`'‘](\w+)", text):
        return f"`{found[1]}` is declared and nowhere defined: link the file or library that has it."
    if re.search(
        r"not in gzip format|(?:tar|unzip|gzip|bzip2|xz): .{0,80}(?:corrupt|not recoverable|does not look like)", text
    ):
        archive = re.search(r"(?<!\S)(\S+\.(?:tar|tgz|zip|gz|bz2|xz)[\w.]*)", case.cause.rank.command)
        return f"The archive {archive[1] if archive else ''} is damaged, or not what its name says.".replace("  ", " ")
    if found := re.search(r"No matching distribution found for (\S+)", text):
        return f"pip knows no `{found[1]}`: check its spelling, its version and the index."
    if found := _SCRIPT_LINE.search(case.line):
        return f"{short(found[1])} line {found[2]}."
    if path := path_in(case.line):
        return f"Look at `{path}` on the node: is it there, and may the job use it?"
    return ""


def _source_line(text: str) -> str:
    """The first source line that a compiler or a stack names; one of the job's own, if there is any."""
    found = list(islice(_SOURCE_LINE.finditer(text), 50))
    own = [match for match in found if not _OF_LANGUAGE.search(match[1])]
    return f"{short((own or found)[0][1])} line {(own or found)[0][2]}." if found else ""


def signal(case: Case) -> str:
    if case.cause.signal in _SIGNALS:
        return _SIGNALS[signals.Signals(case.cause.signal)]
    if case.cause.signal in _FROM_OUTSIDE:
        told = _KILLED if case.cause.signal == signals.SIGKILL else _OUTSIDE
        at = own_frame(case.cause.earlier)
        where = f" It was at {short(at.file)} line {at.line}." if at and case.cause.signal == signals.SIGINT else ""
        return told.format(name=signals.Signals(case.cause.signal).name) + where
    found = [match for line in case.cause.lines if (match := _FAULT.match(line))]
    frames = [Frame(match["file"], int(match["line"]), match["function"]) for match in found]
    own = next((frame for frame in frames if not frame.of_library), None)
    if own is not None:
        return f"It crashed in native code called at {short(own.file)} line {own.line}, in {own.function}."
    if place := _NATIVE_PLACE.search(case.line):
        return f"{short(place[1])} line {place[2]}."
    if _is_python(case):
        return ""
    return _UNCAUGHT if any("terminate called after" in line for line in case.cause.lines) else _NATIVE


def host_oom(case: Case) -> str:
    """By the kind of program: only training has batches."""
    if _OF_SLURM.search(case.cause.process.rank.tail[-_TAIL_CHARS:]):
        return "It needs more memory than Slurm gave it: ask for more (`--mem`, `--mem-per-cpu`), or let it hold less."
    if case.cause.process.rank.launcher_rank is not None or re.search(r"torch|tensorflow|jax|DataLoader", case.text):
        return ""
    if _is_python(case):
        return "Let it hold less in memory at a time, or use a node (or a limit) with more memory."
    return "It needs more memory than it may have: raise the limit (`ulimit -v`), or use a node with more memory."


def _is_python(case: Case) -> bool:
    return bool(re.search(r"python|torchrun|accelerate|deepspeed|pytest|\.py\b", case.cause.rank.command))
