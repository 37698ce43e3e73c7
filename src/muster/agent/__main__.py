"""`python -m muster.agent CONFIG`."""

from muster.agent.main import main

main()
