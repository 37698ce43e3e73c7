"""Where every thread of a process is, on a signal: written to the rank's log even while it hangs outside Python.

The signal is a real-time one that nobody uses: SIGUSR1 and SIGUSR2 belong to batch systems and training frameworks,
SIGQUIT to servers, which take it as a wish to end.
"""

import faulthandler
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # Without the names of signals as an enumeration, which take as long to make as all the rest.
    import _signal as signal


def install() -> None:
    """Have the signal answered by a dump; one that somebody handles or ignores already is left alone."""
    number = getattr(signal, "SIGRTMAX", 0) - 6
    if number > 0 and sys.stderr is not None and signal.getsignal(number) == signal.SIG_DFL:
        # Standard error by its number: a file of our own would have to stay open in every process.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
