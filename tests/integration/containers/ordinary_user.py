"""A user without privileges, for one test: known to its own processes alone, with ids for containers or without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

NAME, ID, FIRST_SUBORDINATE = "trainer", 61234, 3_000_000

# Its processes see files of their own in /etc, and Python where only root may look.
_ENTER = """
set -e
place=$1 user=$2 hidden=$3 needed=$4
shift 4
for name in passwd group subuid subgid; do mount --bind "$place/etc/$name" "/etc/$name"; done
if [ -n "$hidden" ]; then
    mkdir -p "$place/hidden"
    mount --bind "$hidden" "$place/hidden"
    mount -t tmpfs -o mode=755 none "$hidden"
    mkdir -p "$needed"
    mount --bind "$place/hidden${needed#"$hidden"}" "$needed"
fi
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
"""


@dataclass(frozen=True)
class OrdinaryUser:
    place: Path
    variables: dict[str, str]

    @property
    def home(self) -> Path:
        return self.place / "home"

    def run(
        self, *command: str, folder: Path | None = None, check: bool = False, given: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this user."""
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "enter"]
        hidden, needed = _hidden(Path(sys.base_prefix))
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, "HOME": str(self.home), "USER": NAME, "LANG": "C.UTF-8"}
        env |= {"XDG_RUNTIME_DIR": str(self.place / "run"), **self.variables}
        return subprocess.run(
            [*enter, str(self.place), str(ID), hidden, needed, *command],
            cwd=folder or self.home,
            env=env,
            stdin=given or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=check,
        )


@contextmanager
def ordinary_user(subordinate_ids: int, variables: dict[str, str]) -> Iterator[OrdinaryUser]:
    """The user, with a home; afterwards nothing of it is left."""
    place = Path(tempfile.mkdtemp(prefix="mu-", dir="/tmp"))
    try:
        place.chmod(0o755)
        etc = place / "etc"
        etc.mkdir()
        for name, line in (("passwd", f"{NAME}:x:{ID}:{ID}::{place}/home:/bin/sh\n"), ("group", f"{NAME}:x:{ID}:\n")):
            (etc / name).write_text(Path("/etc", name).read_text() + line)
        for name in ("subuid", "subgid"):
            line = f"{NAME}:{FIRST_SUBORDINATE}:{subordinate_ids}\n" if subordinate_ids else ""
            (etc / name).write_text(line)
        for name in ("home", "run"):
            (place / name).mkdir(mode=0o700)
            os.chown(place / name, ID, ID)
        user = OrdinaryUser(place, variables)
        try:
            yield user
        finally:
            # Ends the process that keeps its namespaces.
            user.run("podman", "system", "migrate", check=True)
    finally:
        Path(f"/dev/shm/libpod_rootless_lock_{ID}").unlink(missing_ok=True)
        shutil.rmtree(place)


def _hidden(needed: Path) -> tuple[str, str]:
    """The outermost folder on the way to Python that only its owner may enter; empty where there is none."""
    for folder in [*reversed(needed.parents), needed]:
        if not folder.stat().st_mode & 0o001:
            return str(folder), str(needed)
    return "", ""
