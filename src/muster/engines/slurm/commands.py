"""Slurm's commands, each with a deadline; a busy controller is retried."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from muster import errors
from muster.engines.slurm.parsing import (
    SACCT_FORMAT,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
    USAGE_FORMAT,
    Job,
    NodeInfo,
    sacct_text,
    sinfo_text,
    squeue_text,
    usage_text,
    version_of,
)
from muster.wire.queue_jobs import JobUsage

_KEPT = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SLURM_CONF")
_KEPT_BY_SSH = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "KRB5CCNAME")
_SSH_FAILED = 255
_DEADLINE_S = 30.0
_TRIES = 3
_FIRST_WAIT_S = 0.5

_BUSY = (
    "Socket timed out",
    "Unable to contact slurm controller",
    "Resource temporarily unavailable",
    "temporarily unable to accept job",
    "Zero Bytes were transmitted",
    "Connection refused",
    "Connection timed out",
    "Transport endpoint is not connected",
    "error communicating with",
    "Unexpected message received",
    "Unable to establish",
)
_NOT_THE_CONTROLLER = ("sacct", "sacctmgr")
"""They query the accounting database, which may be down on its own."""
_LATER = (
    "MaxSubmitJob",
    "job submit limit",
    "AssocMaxSubmit",
    "QOSMaxSubmit",
    "Limit of jobs in queue",
    "violates accounting/QOS policy",
)


class Busy(Exception):
    """The controller does not answer now; the call may have arrived."""


class Later(Exception):
    """The site accepts no more jobs of this user now."""


class Refused(Exception):
    """Slurm will never accept this."""


class Commands:
    """The commands of this machine's Slurm; safe to use from several threads."""

    def __init__(
        self,
        run: Callable[[Sequence[str], str | None, float], tuple[int, str, str]] | None = None,
        wait: Callable[[float], object] = time.sleep,
        ssh: str | None = None,
    ) -> None:
        """`ssh`: the login node on which they run, by its name in the user's own ssh configuration."""
        self._run = run or (over_ssh(ssh) if ssh else run_command)
        self._ssh = ssh
        self._user = ""
        self._wait = wait
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None
        self.trouble = ""
        """The error of the last call to the controller, where it did not answer."""
        self.answered_at = float("-inf")
        """When a call to the controller last ended, by the monotonic clock."""

    @property
    def version(self) -> tuple[int, int]:
        with self._lock:
            if self._version is None:
                self._version = version_of(self.call("squeue", "--version"))
            return self._version

    def submit(self, script: str, tasks: str = "") -> str:
        """Submit a script, of an array these tasks; returns the job's id.

        Tried once: a caller in doubt looks before it retries.
        """
        printed = self.call("sbatch", "--parsable", *([f"--array={tasks}"] if tasks else []), stdin=script, tries=1)
        return printed.strip().splitlines()[-1].split(";")[0]

    def try_out(self, script: str) -> None:
        """Have Slurm check a script without submitting it; Refused where it would never start."""
        self.call("sbatch", "--test-only", stdin=script, tries=1)

    def accounts(self) -> list[str] | None:
        """The accounts that this user may charge; None where the site has none, or does not say."""
        who = self._ask_user("-un") if self._ssh else getpass.getuser()
        code, printed, _ = self._run(
            ("sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={who}", "format=account"),
            None,
            _DEADLINE_S,
        )
        return sorted(set(printed.split())) if code == 0 else None

    def _ask_user(self, which: str) -> str:
        """The user's name on the login node."""
        return self.call("id", which).strip()

    def keep_off(self, job: str, nodes: str) -> None:
        """Change the nodes that a waiting job avoids."""
        self.call("scontrol", "update", f"JobId={job}", f"ExcNodeList={nodes}", tries=1)

    def let_go(self, job: str) -> None:
        """Release a held job."""
        self.call("scontrol", "release", job, tries=1)

    def tasks(self, name: str) -> list[Job]:
        """Every task of the arrays of this name that Slurm remembers."""
        return [job for job in self._listed(f"--name={name}") if "_" in job.id]

    def _whose(self) -> list[str]:
        if not self._user:
            self._user = self._ask_user("-u") if self._ssh else str(os.getuid())
        return ["--user", self._user, "--states=all"]

    def jobs(self) -> list[Job]:
        """Every job of this user that Slurm remembers, with one call; callers repeat it soon."""
        return self._listed()

    def _listed(self, *which: str) -> list[Job]:
        """As text, which also lists each waiting task of an array; `--json` combines those."""
        words = ("squeue", "--noheader", *self._whose(), *which, "--array", "-O", SQUEUE_FORMAT)
        return squeue_text(self.call(*words, tries=1))

    def nodes(self, partition: str | None) -> list[NodeInfo]:
        where = ["--partition", partition] if partition else []
        return sinfo_text(self.call("sinfo", "--Node", "--noheader", *where, "-o", SINFO_FORMAT))

    def partitions(self) -> list[str]:
        return sorted({name.rstrip("*") for name in self.call("sinfo", "--noheader", "-o", "%P").split()})

    def pmix_plugins(self) -> list[str]:
        """The PMIx plugins of `srun --mpi` here."""
        _, printed, said = self._run(("srun", "--mpi=list"), None, _DEADLINE_S)
        return sorted(set(re.findall(r"\bpmix(?:_v\d+)?\b", f"{printed}\n{said}")))

    def has_pyxis(self) -> bool:
        """Whether `srun` supports containers."""
        _, printed, _ = self._run(("srun", "--help"), None, _DEADLINE_S)
        return "--container-image" in printed

    def finished(self, name: str, job: str) -> Job | None:
        """The accounting record of a job that is no longer in the queue; None where there is none."""
        # The tasks of an array share one name; other jobs may have been requeued under another number.
        task = job if "_" in job else ""
        try:
            options = ["--noheader", "--parsable2", "--allocations", "--starttime=now-30days"]
            which = f"--jobs={task}" if task else f"--name={name}"
            return sacct_text(self.call("sacct", *options, which, f"--format={SACCT_FORMAT}", tries=1), name, task)
        except (Busy, Refused):
            return None

    def usage(self, jobs: Sequence[str]) -> dict[str, JobUsage]:
        """Usage of ended jobs, as far as accounting has it; Refused where the site has no accounting."""
        options = ["--noheader", "--parsable2", f"--jobs={','.join(jobs)}", f"--format={USAGE_FORMAT}"]
        return usage_text(self.call("sacct", *options, tries=1))

    def listed(self, *command: str) -> list[str]:
        """The first words of a command's output lines; none where it fails."""
        code, printed, _ = self._run(command, None, _DEADLINE_S)
        return sorted(
            {line.split("|")[0].split()[0] for line in printed.splitlines() if line.strip()} if code == 0 else ()
        )

    def cancel(self, job: str) -> None:
        """Cancel a job; one that has ended already counts as cancelled."""
        try:
            self.call("scancel", job)
        except Refused as error:
            if "Invalid job id" not in str(error) and "already completing" not in str(error):
                raise

    def call(self, *command: str, stdin: str | None = None, tries: int = _TRIES) -> str:
        """The output of a command; Busy, Later or Refused where it fails."""
        for number in range(tries - 1):
            try:
                return self._once(command, stdin)
            except Busy:
                self._wait(_FIRST_WAIT_S * 2**number)
        return self._once(command, stdin)

    def _once(self, command: Sequence[str], stdin: str | None) -> str:
        code, printed, said = self._run(command, stdin, _DEADLINE_S)
        said = said.strip() or printed.strip() or f"exit code {code}"
        # sbatch ends with the reason; the lines before are often only context.
        reason = said.splitlines()[-1].strip()
        for prefix in ("sbatch: ", "error: ", "allocation failure: "):
            reason = reason.removeprefix(prefix)
        busy = code != 0 and any(part in said for part in _BUSY)
        if command[0] not in _NOT_THE_CONTROLLER and "--version" not in command:
            self.trouble = f"{command[0]}: {reason}" if busy else ""
            self.answered_at = time.monotonic()
        if code == 0:
            return printed
        if busy:
            raise Busy(f"{command[0]}: {reason}")
        if any(part in said for part in _LATER):
            raise Later(reason)
        raise Refused(f"{command[0]}: {reason}")


def over_ssh(host: str) -> Callable[[Sequence[str], str | None, float], tuple[int, str, str]]:
    """Runs commands on a login node; a failed connection counts as a busy controller."""

    def run(command: Sequence[str], stdin: str | None, deadline_s: float) -> tuple[int, str, str]:
        # Nobody is there to type a password; the user's own ssh configuration says how to connect.
        ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, "--", shlex.join(command))
        code, printed, said = run_command(ssh, stdin, deadline_s, _KEPT_BY_SSH)
        if code == _SSH_FAILED:
            return code, "", f"Unable to establish a connection to {host}: {said.strip() or 'ssh says nothing'}"
        return code, printed, said

    return run


def run_command(
    command: Sequence[str], stdin: str | None, deadline_s: float, kept: Sequence[str] = _KEPT
) -> tuple[int, str, str]:
    """Exit code, output and errors of a command; one that takes too long counts as a busy controller."""
    # Jobs inherit sbatch's environment: no token, secret or setting of the server's account is passed on.
    env = {name: os.environ[name] for name in kept if name in os.environ}
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=deadline_s, check=False, env=env
        )
    except subprocess.TimeoutExpired:
        return 1, "", f"Socket timed out: no answer within {deadline_s:g} s"
    except FileNotFoundError:
        return 127, "", f"{command[0]} is not installed here"
    return done.returncode, done.stdout, done.stderr


def require_installed() -> None:
    """Refuse to go on where Slurm's commands are missing."""
    missing = [name for name in ("sbatch", "squeue", "sinfo", "scancel") if shutil.which(name) is None]
    if missing:
        raise errors.JobError(
            f"Slurm's command {missing[0]} is not on this machine",
            "Create the cluster where Slurm's commands are on the PATH, such as a login node of the site.",
        )
