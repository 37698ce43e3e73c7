"""A library that every new process of a stage loads first: what it says of clocks and disks is what they are."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.chaos.stage import quiet

_NEW_MOUNTS = 0x00020000


def missing() -> str:
    """Why this machine cannot have one; empty: it can."""
    if os.getuid() != 0:
        return "a mount namespace needs root"
    if shutil.which("cc") is None:
        return "there is no C compiler (apt-get install gcc)"
    with tempfile.TemporaryDirectory() as folder:
        where = "lowerdir=/etc,upperdir=$0/above,workdir=$0/work"
        steps = f"mkdir $0/above $0/work && mount -t overlay overlay -o {where} /etc"
        made = subprocess.run(["unshare", "--mount", "sh", "-c", steps, folder], capture_output=True, check=False)
    return "" if made.returncode == 0 else "an overlay cannot be mounted here"


def load(home: Path, source: str, stack: contextlib.ExitStack) -> None:
    """Compile the library and have new processes load it, in a mount namespace of this process and its children."""
    file, library = home / "preloaded.c", home / "preloaded.so"
    file.write_text(source)
    quiet("cc", "-shared", "-fPIC", "-O1", "-o", library, file, "-ldl")
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "a mount namespace cannot be made")
    quiet("mount", "--make-rprivate", "/")
    above, work = home / "etc", home / "etc-work"
    above.mkdir()
    work.mkdir()
    quiet("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/etc,upperdir={above},workdir={work}", "/etc")
    stack.callback(lambda: subprocess.run(["umount", "-l", "/etc"], check=True))
    Path("/etc/ld.so.preload").write_text(f"{library}\n")


def tell(file: Path, text: str) -> None:
    """Change what the library reads, at once for everybody."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)
