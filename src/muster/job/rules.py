"""Rules of the job vocabulary that need no model: names, variables, references to clusters, launchers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
DEPENDENCY = re.compile(r"@latest|[A-Za-z0-9][\w.-]{0,254}(:(completed|ended))?")
"""Another run, and the end that is required of it."""
SHM_SIZE = re.compile(r"[1-9][0-9]{0,14}[bkmgBKMG]?")
_ASSET = re.compile(r"(?:azureml:)?([A-Za-z0-9][A-Za-z0-9_.-]*)(?:@latest|:[A-Za-z0-9_.-]+)?")

_OWNED_NAMES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "TF_CONFIG",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "AZUREML_RUN_ID",
        "AZUREML_NODE_COUNT",
        "AZ_BATCH_HOST_LIST",
        "AZ_BATCH_MASTER_NODE",
        "AZ_BATCHAI_MPI_MASTER_NODE",
        "AZ_BATCHAI_TASK_INDEX",
    }
)
_OWNED_PREFIXES = ("MUSTER_", "OMPI_", "PMI_", "PMI2_", "PMIX_")
# Open MPI's own settings, which tune a transport and do not describe a rank.
_TUNING_PREFIXES = ("OMPI_MCA_", "PMIX_MCA_")
# The parts of Muster that run in the rank's process: the job may choose them.
_HOOKS = "MUSTER_HOOKS"

MPI_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun", "deepspeed"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


# The arguments that a job may give its container; the rest (mounts, privileges, network) is up to Muster.
CONTAINER_ARGS = ("--memory", "--memory-swap", "--cpus", "--cpuset-cpus", "--ulimit", "--pids-limit", "--cap-drop")


def wrong_container_args(text: str) -> str:
    """Why a job's arguments for its container are not allowed; empty if all are."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"{text!r} cannot be split into words: {error}"
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
            if word.startswith("-") and not word[1:].isdigit():
                return f"{word!r} stands where a value is missing"
            continue
        name, equals, _ = word.partition("=")
        if name not in CONTAINER_ARGS:
            return f"{word!r} is not among the arguments that a job may give its container"
        takes_value = not equals
    return f"{words[-1]!r} has no value" if takes_value else ""


def is_owned_variable(name: str) -> bool:
    """Whether Muster sets this variable itself, so that a job may not."""
    if name.startswith(_TUNING_PREFIXES) or name == _HOOKS:
        return False
    return name in _OWNED_NAMES or name.startswith(_OWNED_PREFIXES)


def cluster_name(compute: str) -> str | None:
    """`NAME` from `azureml:NAME` and the like; None if it is not a name."""
    match = _ASSET.fullmatch(compute)
    return match.group(1) if match else None


def environment_reference(text: str) -> str | None:
    """`NAME`, `NAME:VERSION` or `NAME@latest` without `azureml:`; a registry address is unchanged."""
    if text.startswith("azureml://"):
        return text if len(text.split()) == 1 else None
    return text.removeprefix("azureml:") if _ASSET.fullmatch(text) else None


SNAPSHOT = "snapshot"
"""The prefix for the digest of a folder that the client has uploaded."""


def is_snapshot(path: str) -> bool:
    """Whether a folder is given as the digest of an earlier upload."""
    return path.startswith(f"{SNAPSHOT}:")


def is_address(path: str) -> bool:
    """Whether a path is not a local path but an address: `azureml:…`, `https://…`, `models:/…`."""
    return path.startswith(("azureml:", "git@", "models:/", "runs:/")) or "://" in path


def head_program(command: str | Sequence[str]) -> str:
    """The program that a command starts, without folder, variables or `exec`; empty if that is unclear."""
    if isinstance(command, str):
        try:
            words = shlex.split(command.strip().split("\n", 1)[0], comments=True)
        except ValueError:
            return ""
    else:
        words = list(command)
    skip = ("exec", "env", "time", "nohup")
    for word in words:
        if not _ASSIGNMENT.fullmatch(word) and word not in skip:
            return word.rsplit("/", 1)[-1]
    return ""
