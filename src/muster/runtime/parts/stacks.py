"""Dumps the stacks of all threads to the rank's log on a signal, even while the process hangs outside Python.

The signal is an unused real-time one: SIGUSR1 and SIGUSR2 belong to batch systems and training frameworks, SIGQUIT
to servers, which take it as a request to end.

torchrun ends its processes itself once one has failed, before the keeper can ask for their stacks: they dump them when
its SIGTERM comes, each to its own file in TMPDIR, because in a shared log their lines would mix.
"""

import faulthandler
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Without the enumeration of signal names, which takes as long to make as all the rest.
    import _signal as signal

_PR_SET_PTRACER = 0x59616D61
_HIGH = 240


def install() -> None:
    """Dump the stacks on the signal; a signal that is already handled or ignored is left alone."""
    number = getattr(signal, "SIGRTMAX", 0) - 6
    if number > 0 and sys.stderr is not None and signal.getsignal(number) == signal.SIG_DFL:
        # Standard error by its number: a separate file would have to stay open in every process.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
    _let_keeper_look()
    folder, rank = os.environ.get("TMPDIR"), os.environ.get("RANK", "")
    if folder and rank.isdigit() and "TORCHELASTIC_RUN_ID" in os.environ:
        _show_at_end("{}/.muster_stack_{}_{}".format(folder, rank, os.getpid()))


def _show_at_end(path: str) -> None:
    """Have SIGTERM write the stacks to a file before its usual effect."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    import fcntl

    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        # Far from the descriptors that scripts close and reuse.
        kept = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:
        return
    finally:
        os.close(opened)
    faulthandler.register(signal.SIGTERM, file=kept, all_threads=True, chain=True)
    # Forked children may be ended at any time, and are no ranks.
    os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))


def _let_keeper_look() -> None:
    """If the kernel lets only parents read a process (Yama), let the keeper of the ranks read this one.

    A rank that the keeper started itself has allowed it before it began.
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
        # Loading ctypes takes milliseconds.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(keeper)), 0, 0, 0)
