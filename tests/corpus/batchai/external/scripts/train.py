import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int)
parser.add_argument("--dist-url")
args = parser.parse_args()
rank = os.environ.get("OMPI_COMM_WORLD_RANK", str(args.rank))
with open(os.path.join(os.environ["AZ_BATCHAI_OUTPUT_MODEL"], "model_" + rank), "w") as model:
    model.write("weights")
print("rank", rank, "url", args.dist_url, "distributed", os.environ.get("DISTRIBUTED"))
