"""Where every thread of a process is, on a signal: written to the rank's log even while it hangs outside Python.

The signal is a real-time one that nobody uses: SIGUSR1 and SIGUSR2 belong to batch systems and training frameworks,
SIGQUIT to servers, which take it as a wish to end.

torchrun ends its processes itself once one has failed, before the keeper can ask: those write where they are when its
SIGTERM comes, each to a file of its own in TMPDIR, because they share a log and would write into each other's lines.
"""

import faulthandler
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Without the names of signals as an enumeration, which take as long to make as all the rest.
    import _signal as signal

_PR_SET_PTRACER = 0x59616D61
_HIGH = 240


def install() -> None:
    """Have the signal answered by a dump; one that somebody handles or ignores already is left alone."""
    number = getattr(signal, "SIGRTMAX", 0) - 6
    if number > 0 and sys.stderr is not None and signal.getsignal(number) == signal.SIG_DFL:
        # Standard error by its number: a file of our own would have to stay open in every process.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
    _let_keeper_look()
    folder, rank = os.environ.get("TMPDIR"), os.environ.get("RANK", "")
    if folder and rank.isdigit() and "TORCHELASTIC_RUN_ID" in os.environ:
        _show_at_end("{}/.muster_stack_{}_{}".format(folder, rank, os.getpid()))


def _show_at_end(path: str) -> None:
    """Have SIGTERM leave the stacks in a file, and then do what it does anyway."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    import fcntl

    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        # Far from the numbers that scripts close and use again.
        kept = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:
        return
    finally:
        os.close(opened)
    faulthandler.register(signal.SIGTERM, file=kept, all_threads=True, chain=True)
    # What a process forks may be ended at any time, and is no rank.
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))


def _let_keeper_look() -> None:
    """Where the kernel lets only parents read a process (Yama), let the keeper of the ranks read this one.

    A rank that the keeper started itself has said so before it began.
    """
    keeper = os.environ.get("MUSTER_KEEPER", "")
    if not keeper.isdigit() or int(keeper) == os.getppid():
        return
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:  # noqa: PTH123
            is_restricted = file.read(1) == "1"
    except OSError:
        return
    if is_restricted:
        # It takes milliseconds to load.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(keeper)), 0, 0, 0)
