"""Ranks of an MPI job that log while the server is there, while it is away, and after that."""

import os
import sys
import time
from pathlib import Path

import mlflow

rank, folder = int(os.environ["OMPI_COMM_WORLD_RANK"]), Path(sys.argv[1])
mlflow.log_metric(f"loss_{rank}", 1.0, step=0)
(folder / f"began_{rank}").touch()
while not (folder / "gone").exists():
    time.sleep(0.05)
for step in range(1, 50):
    mlflow.log_metric(f"loss_{rank}", 1.0 / (step + 1), step=step)
mlflow.log_params({f"away_{rank}": "yes"})
mlflow.set_tags({f"tag_{rank}": "set while the server was away"})
mlflow.log_dict({"rank": rank}, f"reports/rank_{rank}.json")
(folder / f"logged_{rank}").touch()
while not (folder / "back").exists():
    time.sleep(0.05)
if rank == 0:
    # A read is answered once the server has what was logged before.
    run = mlflow.MlflowClient().get_run(os.environ.get("MLFLOW_RUN_ID") or mlflow.active_run().info.run_id)
    assert run.data.metrics["loss_0"] == 0.02 and run.data.params["away_0"] == "yes", run.data
