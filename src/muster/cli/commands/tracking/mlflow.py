"""MLflow's clients outside of runs: `muster mlflow`."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Annotated

import typer

from muster.cli.console import say
from muster.cli.options import argument, option
from muster.client.connect import connect
from muster.client.door import Door

Command = Annotated[list[str] | None, argument("-- COMMAND…", "Run this with the variables set, and end with it.")]
Port = Annotated[int, option("PORT", "The port on 127.0.0.1.", "--port", show_default="any free one", min=0, max=65535)]


def mlflow(command: Command = None, port: Port = 0) -> None:
    """Let MLflow's own clients on this machine read and write this workspace.

    Opens an address on the loopback for as long as the command runs, and prints the two variables that a client
    needs. Anybody who has the token may use it.

    \b
    Examples:
      muster mlflow
      muster mlflow -- python analyse.py
    """
    client = connect()
    with Door(client.calls, port) as door:
        variables = {"MLFLOW_TRACKING_URI": door.url, "MLFLOW_TRACKING_TOKEN": client.calls.address.token}
        if command:
            # Behind the address is no page that MLflow's links would lead to.
            env = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", **os.environ, **variables}
            raise typer.Exit(subprocess.run(command, env=env, check=False).returncode)
        for name, value in variables.items():
            print(f"export {name}={shlex.quote(value)}", flush=True)
        say("open until Ctrl-C; paste the lines above where the client runs")
        door.wait()
