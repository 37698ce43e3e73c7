"""Where every thread of a process is, on a signal: written to the rank's log even while it hangs outside Python.

The signal is a real-time one that nobody uses: SIGUSR1 and SIGUSR2 belong to batch systems and training frameworks,
SIGQUIT to servers, which take it as a wish to end.
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


def install() -> None:
    """Have the signal answered by a dump; one that somebody handles or ignores already is left alone."""
    number = getattr(signal, "SIGRTMAX", 0) - 6
    if number > 0 and sys.stderr is not None and signal.getsignal(number) == signal.SIG_DFL:
        # Standard error by its number: a file of our own would have to stay open in every process.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
    _let_keeper_look()


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
