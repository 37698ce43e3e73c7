"""The command line: `muster`, and `python -m muster`."""

import signal
from importlib import import_module


def main() -> None:
    """Load the command line and run it; Ctrl-C while it loads ends it as it would any program, without a traceback."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    command_line = import_module("muster.cli.main")
    signal.signal(signal.SIGINT, before)
    command_line.main()


if __name__ == "__main__":
    main()
