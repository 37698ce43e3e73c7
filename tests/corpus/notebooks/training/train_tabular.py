import argparse

from azureml.core import Dataset, Run

parser = argparse.ArgumentParser()
parser.add_argument("--input-data", type=str)
args = parser.parse_args()
run = Run.get_context()
ws = run.experiment.workspace
dataset = Dataset.get_by_id(ws, id=args.input_data)
print("files", len(dataset.download()))
print("by name", Dataset.get_by_name(ws, name="numbers tabular").to_path())
print("by input", run.input_datasets["titanic"].to_path())
