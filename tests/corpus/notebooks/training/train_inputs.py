import os

from azureml.core import Dataset, Run

run = Run.get_context()
path = run.input_datasets["numbers"]
print("rows", len(open(path).readlines()), os.environ["A_WORD"])
