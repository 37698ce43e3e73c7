"""`python -m muster.scoring.serve SETTINGS`: holds the listener, and keeps the replicas behind it."""

from __future__ import annotations

import signal
import sys
from typing import Any, Optional

from muster.runtime.run import Run
from muster.scoring.listening import listener_on
from muster.scoring.serve.member import serve_as_member
from muster.scoring.serve.settings import Settings
from muster.scoring.serve.supervisor import Supervisor


def main() -> int:
    settings, run = Settings.parse(sys.argv[1]), Run.get_context()
    supervisor = serve_as_member(settings, run) if settings.endpoint else _alone(settings, run)
    if supervisor is None:
        return 1

    def end(*_: object) -> None:
        supervisor.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return supervisor.work()


def _alone(settings: Settings, run: Any) -> Optional[Supervisor]:
    """One listener that all replicas share; None where it cannot be had."""
    try:
        listener = listener_on(settings.host, settings.port)
    except OSError as error:
        print(
            "muster: {}:{} cannot be listened on: {} (--port gives another)".format(
                settings.host, settings.port, error.strerror
            ),
            file=sys.stderr,
        )
        return None
    print("serving {} on http://{}:{}".format(settings.name, settings.host, listener.getsockname()[1]))
    return Supervisor(settings, lambda number: listener, run)


if __name__ == "__main__":
    sys.exit(main())
