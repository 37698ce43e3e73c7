from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig, Workspace

workspace = Workspace.from_config()
datastore = workspace.get_default_datastore()
datastore.upload_files(files=["./data/numbers.csv"], target_path="train-dataset/tabular/", overwrite=True)
dataset = Dataset.Tabular.from_delimited_files(path=[(datastore, "train-dataset/tabular/numbers.csv")])
print(dataset.take(3).to_pandas_dataframe() if False else type(dataset).__name__)
dataset = dataset.register(workspace, "numbers tabular", create_new_version=True)
titanic = Dataset.get_by_name(workspace, name="numbers tabular")
conf = ScriptRunConfig(source_directory="training", script="train_tabular.py",
                       arguments=["--input-data", titanic.as_named_input("titanic")], compute_target="local",
                       environment=None)
run = Experiment(workspace, "tabular").submit(conf)
run.wait_for_completion(show_output=True)
if "numbers tabular" in workspace.datasets:
    print("kept as", workspace.datasets.get("numbers tabular").name)
