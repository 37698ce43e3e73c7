"""Records of other tools: `muster import …`."""

from __future__ import annotations

import os
from typing import Annotated

from muster.cli.console import say
from muster.cli.options import Json, argument, print_json
from muster.client.connect import connect
from muster.client.importing.mlflow_address import open_store
from muster.client.importing.mlflow_calls import MlflowCalls
from muster.client.importing.mlflow_import import Importer

Uri = Annotated[str, argument("URI", "An mlruns folder, an mlflow.db, or the address of an MLflow server.")]


def mlflow(uri: Uri, as_json: Json = False) -> None:
    """Import the runs of an MLflow store: experiments, parameters, metrics, tags and files.

    Runs that were imported before are left as they are, so you can run it again. If the server wants a token, set
    MLFLOW_TRACKING_TOKEN.

    \b
    Examples:
      muster import mlflow ./mlruns
      muster import mlflow http://127.0.0.1:5000
    """
    store = open_store(uri, os.environ.get("MLFLOW_TRACKING_TOKEN", ""))
    target = MlflowCalls(connect().calls.address)
    brought, known = Importer(store, target, say).run()
    say(f"{brought} runs were imported" + (f", {known} were here already" if known else ""))
    if as_json:
        print_json({"brought": brought, "known": known})
