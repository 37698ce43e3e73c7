import argparse
import glob
import os

from azureml.core import Dataset, Run

parser = argparse.ArgumentParser()
parser.add_argument("--data-folder", type=str)
parser.add_argument("--output", type=str)
args = parser.parse_args()
run = Run.get_context()
found = glob.glob(os.path.join(args.data_folder, "**/*.csv"), recursive=True)
print("files", sorted(os.path.basename(name) for name in found))
print("same folder", run.input_datasets["mnist"] == args.data_folder)
os.makedirs(args.output, exist_ok=True)
with open(os.path.join(args.output, "prepared.txt"), "w") as stream:
    stream.write(str(len(found)))
