from azureml.core import Dataset, Experiment, Workspace
from azureml.train.sklearn import SKLearn

ws = Workspace.from_config()
dataset = Dataset.File.from_files("./data/numbers.csv")
est = SKLearn(source_directory="training", entry_script="train_inputs.py", compute_target="local",
              inputs=[dataset.as_named_input("numbers").as_mount()], user_managed=True,
              environment_variables={"A_WORD": "said"})
run = Experiment(ws, "sklearn-inputs").submit(est)
run.wait_for_completion(show_output=True)
