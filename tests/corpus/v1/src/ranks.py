import argparse
import os

from azureml.core import Run

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--local_rank", type=int)
parser.add_argument("--num_nodes", type=int)
parser.add_argument("--devices", type=int)
args = parser.parse_args()

names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "TF_CONFIG")
run = Run.get_context()
run.log("epochs", args.epochs or 0)
print("started", args.local_rank, {name: os.environ[name] for name in names if name in os.environ})
