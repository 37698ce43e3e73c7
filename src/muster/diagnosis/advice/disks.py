"""Advice about a full disk, a full folder in memory, a quota, or a limit of file size."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from muster.diagnosis.advice.case import Case, own_frame, path_in, quoted_path

_QUOTA = re.compile(r"(?i)quota|Errno 122\b|EDQUOT")
_FILE_LIMIT = re.compile(r"\bulimit (?:-[A-Za-z]{1,3} )?-?[HS]?f (\d{1,12})|RLIMIT_FSIZE")
_SHORT = re.compile(r"\d+ requested and \d+ written|Wrote only \d+|unexpected pos \d+|File too large|Errno 27\b")
_COPIED_TO = re.compile(
    r"(?:error writing|cannot (?:create|write)[\w ]{0,30}|failed to open) ['\"‘]([^'\"’]{1,300})['\"’]"
)
_IN_SOURCE = re.compile(r"['\"]([\w.~/{}\[\]-]{0,100}/[\w.~/{}\[\]-]{0,100}|[\w{}.-]{1,80}\.\w{1,8})['\"]")
_TEMPORARY = re.compile(r"^(?:/var)?/tmp(?:/|$)|^/var/tmp")
_CACHES = {
    "huggingface": "HF_HOME",
    ".cache/torch": "TORCH_HOME",
    "pip": "PIP_CACHE_DIR",
    "conda": "CONDA_PKGS_DIRS",
    "triton": "TRITON_CACHE_DIR",
    "wandb": "WANDB_DIR",
}


def full(case: Case) -> str:
    """What to do about a write that found no room: it depends on what was full.

    For r-gang-rank1-scratch-full, r-one-file-size-limit, r-torchrun-rank0-checkpoint-disk-full, tool-quota,
    q-data-disk-full-copy.
    """
    where = _written_to(case)
    if _QUOTA.search(case.text):
        of = f" where `{where}` lies" if where else ""
        return (
            f"The quota{of} is used up, though the disk may have space: `quota -s` shows it. Delete files there, or "
            "write to another disk."
        )
    if _SHORT.search(case.text) and (limit := _FILE_LIMIT.search(case.cause.rank.command)):
        return (
            f"The command limits the size of files (`{limit[0]}`), and this one would be larger: raise that limit. If "
            "it is not that, the disk is full."
        )
    return _of_disk(where)


def _of_disk(where: str) -> str:
    if not where:
        return (
            "The disk that it writes to has no space left: `df -h` on the node shows which. Delete what is not needed "
            "(`muster rm` of old runs), or let it write to a larger one."
        )
    if where.startswith("/dev/shm"):
        return (
            f"`{where}` is in the node's memory, and /dev/shm is full: give the job more shared memory (`shm_size`), "
            "or write to a disk."
        )
    if _TEMPORARY.match(where):
        return (
            f"The disk of `{where}` is full: set TMPDIR to a folder with more space (`environment_variables`), or "
            "clear /tmp on the node."
        )
    if variable := next((name for part, name in _CACHES.items() if ".cache" in where and part in where), ""):
        return f"The disk of the cache (`{where}`) is full: set {variable} to a folder with more space, or clear it."
    folder = str(PurePosixPath(where).parent) if "/" in where else "."
    shows = "`df -h`" if "{" in folder else f"`df -h {folder}`"
    return (
        f"No space was left for `{where}`: {shows} on the node shows what is full (a small disk may be mounted "
        "there). Keep fewer files in it, or write to a larger disk."
    )


def _written_to(case: Case) -> str:
    """The file or folder that was written: from the message, or from the user's own line."""
    if (found := _COPIED_TO.search(case.text)) and found[1] != "standard output":
        return found[1]
    if path := quoted_path(case.line.partition("rrno")[2]):
        return path
    if case.raised is None and (path := path_in(case.line)):
        return path
    frame = own_frame(case.raised)
    found = _IN_SOURCE.search(frame.source) if frame and frame.source else None
    return found[1] if found else ""
