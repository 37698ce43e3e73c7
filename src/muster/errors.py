"""The error tree. Every error has a stable code and says what to do next.

MusterError
├── UserError              something the user can put right; shown without a traceback
│   ├── JobError           the job file or configuration is wrong           bad_input
│   ├── NotFound           no such run, cluster, environment, file …         not_found
│   ├── Conflict           the thing exists, or is in the wrong state        conflict
│   ├── AccessDenied       missing, wrong or too narrow token                access_denied
│   └── MissingExtra       an optional part is not installed                 missing_extra
├── ServerUnavailable      no server answers, or it cannot be started        server_unavailable
├── DiskFull               the workspace's disk has no room left             disk_full
├── ProtocolMismatch       client, server and agent versions do not fit      protocol_mismatch
└── RunFailed              a run ended badly; carries its verdict            run_failed

Standard library only, and valid in Python 3.8: the in-run runtime imports it.
"""

from typing import Any, Dict, Optional


class MusterError(Exception):
    """Any error of Muster: what happened, what to do next, and a stable code."""

    code = "error"

    def __init__(self, message: str, hint: str = "", code: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return "\n  ".join([self.message, *self.hint.splitlines()])


class UserError(MusterError):
    """Something that the user can put right."""

    code = "user_error"


class JobError(UserError):
    """The job file or configuration is wrong."""

    code = "bad_input"


class NotFound(UserError):
    """There is no such run, cluster, environment or file."""

    code = "not_found"


class Conflict(UserError):
    """The thing exists already, or is in the wrong state."""

    code = "conflict"


class AccessDenied(UserError):
    """The token is missing, wrong or too narrow."""

    code = "access_denied"


class MissingExtra(UserError):
    """An optional part is not installed."""

    code = "missing_extra"


class ServerUnavailable(MusterError):
    """No server answers, or it cannot be started."""

    code = "server_unavailable"


class DiskFull(MusterError):
    """The workspace's disk has no room left."""

    code = "disk_full"


class ProtocolMismatch(MusterError):
    """The versions of client, server and agent do not fit."""

    code = "protocol_mismatch"


class RunFailed(MusterError):
    """A run ended badly; `verdict` says why."""

    code = "run_failed"

    def __init__(self, message: str, verdict: Optional[Dict[str, Any]] = None, hint: str = "") -> None:
        super().__init__(message, hint)
        self.verdict = verdict or {}


__all__ = [
    "AccessDenied",
    "Conflict",
    "DiskFull",
    "JobError",
    "MissingExtra",
    "MusterError",
    "NotFound",
    "ProtocolMismatch",
    "RunFailed",
    "ServerUnavailable",
    "UserError",
]
