"""Where every thread of a process is, on a signal: written to the rank's log even while it hangs outside Python.

The signal is a real-time one that nobody uses: SIGUSR1 and SIGUSR2 belong to batch systems and training frameworks,
SIGQUIT to servers, which take it as a wish to end.
"""

import _signal
import faulthandler
import sys


def install() -> None:
    """Have the signal answered by a dump; one that somebody handles or ignores already is left alone."""
    number = getattr(_signal, "SIGRTMAX", 0) - 6
    if number > 0 and sys.stderr is not None and _signal.getsignal(number) == _signal.SIG_DFL:
        # Standard error by its number: a file of our own would have to stay open in every process.
        faulthandler.register(number, file=2, all_threads=True, chain=False)
