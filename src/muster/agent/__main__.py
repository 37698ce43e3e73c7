"""`python -m muster.agent CONFIG`."""

import gc

# A gang waits for its slowest agent, and a tenth of the imports' time is garbage collection that finds nothing.
gc.disable()

from muster.agent.main import main  # noqa: E402

gc.enable()

main()
