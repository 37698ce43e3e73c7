import argparse
import glob
import os

from azureml.core import Run
from azureml.core.model import Model

parser = argparse.ArgumentParser()
parser.add_argument("--data-folder", type=str, dest="data_folder", help="data folder mounting point")
parser.add_argument("--regularization", type=float, dest="reg", default=0.01)
args = parser.parse_args()
print("Data folder:", args.data_folder, glob.glob(os.path.join(args.data_folder, "**/*.csv"), recursive=True))
run = Run.get_context()
run.log("regularization rate", args.reg)
os.makedirs("outputs", exist_ok=True)
with open("outputs/model.txt", "w") as stream:
    stream.write("weights")
