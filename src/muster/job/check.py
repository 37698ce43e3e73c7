"""Checks of a job that need more than its model: the files on this machine, and settings without effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.host.files import leaves_folder
from muster.job import rules
from muster.job.explain import job_error
from muster.job.expressions import declared, resolve_command
from muster.job.parts import EnvironmentSpec, Input
from muster.job.references import references
from muster.job.refusal import Problem, show
from muster.job.spec import JobSpec

_NAMED = re.compile(r"[A-Za-z0-9][\w.-]*(:\d+|@[\w-]+)")
"""Looks like the version of a model or a data asset."""
_PATH_HINT = "Correct the path; it is relative to the job file."
_PYTHON = re.compile(r"python[0-9.]*")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# The first of these ends the part of a bash text that can be split at blanks.
_SPECIAL = re.compile(r"[\n;&|<>()`#'\"\\*?\[\]{}$~]")


def check_files(spec: JobSpec, base_dir: str | Path) -> list[str]:
    """Refuse missing files (JobError, all of them at once); return notices."""
    base = Path(base_dir)
    problems = [
        *_code_problems(spec, base),
        *_include_problems(spec, base),
        *_input_problems(spec, base),
        *_environment_problems(spec, base),
    ]
    if problems:
        raise job_error(problems)
    unused = [
        f"inputs.{name}: not used by the command, and plain values reach it in no other way"
        for name in sorted(_unused_literals(spec))
    ]
    return [*unused, *_addresses_as_text(spec)]


def _addresses_as_text(spec: JobSpec) -> Iterator[str]:
    for name, value in spec.inputs.items():
        if isinstance(value, str) and value.startswith("azureml:"):
            yield (
                f"inputs.{name}: {value} reaches the command as a text, and nothing of it is fetched. To have it on "
                f"the nodes, declare it in a job file: `{name}: {{type: uri_folder, path: {value}}}`"
            )


def no_effect_notices(spec: JobSpec) -> list[str]:
    """Notices about settings that have no effect."""
    environment = spec.environment
    # A name may refer to a registered image.
    if isinstance(environment, EnvironmentSpec):
        may_be_container = bool(environment.image or environment.build or environment.is_a_name)
    else:
        may_be_container = environment is not None
    notices = []
    if spec.resources.docker_args and not may_be_container:
        notices.append("resources.docker_args is for jobs in containers; this one runs without, and it is ignored")
    return notices


def local_path(path: str, base_dir: str | Path) -> Path:
    """A local path of a job, made absolute."""
    from_home = Path.home() / path[2:] if path.startswith("~/") else Path(path)
    return (Path(base_dir) / from_home).absolute()


def script_of(command: str | Sequence[str]) -> str | None:
    """The Python file that a command runs, if that is certain."""
    words = _leading_words(command) if isinstance(command, str) else list(command)
    if not words:
        return None
    program, rest = words[0].rsplit("/", 1)[-1], words[1:]
    if _PYTHON.fullmatch(program):
        return _python_script(rest)
    return _launched_script(rest) if program in _LAUNCHERS else None


def _code_problems(spec: JobSpec, base: Path) -> Iterator[Problem]:
    if spec.code is None:
        yield from _script_problems(spec, None)
        return
    code = local_path(spec.code, base)
    if rules.is_address(spec.code):
        message = f"{show(spec.code)} is an address; code is taken from this machine"
        yield Problem(("code",), message, "Clone or download it, and give the folder.")
    elif not _exists(code):
        message = f"{show(spec.code)} does not exist (looked for {code})"
        yield Problem(("code",), message, "Give a folder, relative to the job file.")
    else:
        yield from _script_problems(spec, code)


def _include_problems(spec: JobSpec, base: Path) -> Iterator[Problem]:
    for index, path in enumerate(spec.additional_includes):
        if rules.is_address(path) or not _exists(local_path(path, base)):
            yield Problem(("additional_includes", index), f"{show(path)} does not exist", _PATH_HINT)


def _script_problems(spec: JobSpec, code: Path | None) -> Iterator[Problem]:
    script = script_of(resolve_command(spec))
    if script is None or script.startswith("/") or _is_included(spec, script):
        return
    if code is None:
        if not isinstance(spec.environment, EnvironmentSpec):
            message = f"runs {script}, and no code is given, so that the working folder is empty"
            yield Problem(("command",), message, "Add `code: FOLDER` with the folder that holds it.")
    elif leaves_folder(script):
        yield Problem(
            ("command",),
            f"runs {script}, which is outside of the code folder",
            "Only `code` is copied to the nodes: choose a folder above, and write paths from there.",
        )
    elif not (code.name == Path(script).as_posix() if code.is_file() else (code / script).is_file()):
        message = f"runs {script}, which is not in {show(spec.code)} ({_python_files(code)})"
        yield Problem(("command",), message, "Correct the name; it is relative to `code`.")


def _is_included(spec: JobSpec, script: str) -> bool:
    return script.split("/", 1)[0] in {Path(path).name for path in spec.additional_includes}


def _input_problems(spec: JobSpec, base: Path) -> Iterator[Problem]:
    for name, value in spec.inputs.items():
        if not isinstance(value, Input) or not value.path or rules.is_address(value.path):
            continue
        path = local_path(value.path, base)
        at = ("inputs", name, "path")
        if not _exists(path):
            hint = f"Write azureml:{value.path} for what is registered." if _NAMED.fullmatch(value.path) else _PATH_HINT
            yield Problem(at, f"{show(value.path)} does not exist (looked for {path})", hint)
        elif "type" in value.model_fields_set and value.type == "uri_folder" and not path.is_dir():
            yield Problem(at, f"{show(value.path)} is a file", "Use `type: uri_file`, or give a folder.")
        elif value.type == "uri_file" and path.is_dir():
            yield Problem(at, f"{show(value.path)} is a folder", "Use `type: uri_folder`, or give a file.")


def _environment_problems(spec: JobSpec, base: Path) -> Iterator[Problem]:
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec):
        return
    conda = environment.conda_file
    if isinstance(conda, str) and not local_path(conda, base).is_file():
        yield Problem(("environment", "conda_file"), f"{show(conda)} is not a file", _PATH_HINT)
    listed = environment.pip_requirements_file
    if listed is not None and not local_path(listed, base).is_file():
        yield Problem(("environment", "pip_requirements_file"), f"{show(listed)} is not a file", _PATH_HINT)
    build = environment.build
    is_local = build is not None and not rules.is_address(build.path) and not rules.is_snapshot(build.path)
    if build and is_local and not local_path(build.path, base).is_dir():
        yield Problem(("environment", "build", "path"), f"{show(build.path)} is not a folder", _PATH_HINT)


def _unused_literals(spec: JobSpec) -> set[str]:
    texts = [spec.command] if isinstance(spec.command, str) else list(spec.command)
    found = [reference for text in [*texts, *spec.environment_variables.values()] for reference in references(text)]
    return set(declared(spec).literals - {reference.name for reference in found if reference.kind == "inputs"})


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _leading_words(text: str) -> list[str]:
    text = text.lstrip()
    head = re.split(_SPECIAL, text, maxsplit=1)[0]
    words = head.split()
    cut_inside_word = len(head) < len(text) and not head[-1:].isspace() and text[len(head)] not in "\n;&|"
    return words[:-1] if cut_inside_word else words


def _python_script(words: Sequence[str]) -> str | None:
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "-m":
            module = words[index + 1] if index + 1 < len(words) else ""
            return _launched_script(words[index + 2 :]) if module in _LAUNCHER_MODULES else None
        elif word in ("-W", "-X"):
            skip = True
        elif word == "-c":
            return None
        elif not word.startswith("-"):
            return _plain_script(word)
    return None


def _launched_script(words: Sequence[str]) -> str | None:
    for word in words:
        if word in ("-m", "--module", "--no-python", "--no_python"):
            return None
        if word.endswith(".py") and not word.startswith("-"):
            return _plain_script(word)
    return None


def _plain_script(word: str) -> str | None:
    return word if word.endswith(".py") and "$" not in word else None


def _python_files(code: Path) -> str:
    if code.is_file():
        return f"it is the file {code.name}"
    names = sorted(path.name for path in code.glob("*.py"))[:8]
    return "it holds " + ", ".join(names) if names else "it holds no .py file"
