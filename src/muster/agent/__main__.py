"""`python -m muster.agent CONFIG`."""

import gc

# A gang waits for its slowest agent, and a tenth of the imports' time is a search for garbage that is not there.
gc.disable()

from muster.agent.main import main  # noqa: E402

gc.enable()

main()
