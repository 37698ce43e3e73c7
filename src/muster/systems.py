"""Which operating systems Muster runs on. Valid in Python 3.8 and without dependencies."""

_WINDOWS = (
    "Muster does not run on Windows itself; it runs in WSL, the Windows Subsystem for Linux. "
    "Type `wsl --install` once, then install and use Muster in the Linux that it gives you."
)
_SERVER = (
    "Servers and nodes need Linux. On this system Muster is a client: "
    "`muster login URL` connects it to a team's server (see docs/team.md)."
)


def refusal(platform: str) -> str | None:
    """Why Muster cannot be used on a system (`sys.platform`) at all; None where it can."""
    return _WINDOWS if platform in ("win32", "cygwin") else None


def server_refusal(platform: str) -> str | None:
    """Why a system cannot have a server or nodes of its own; None where it can."""
    return None if platform.startswith("linux") else _SERVER
