from azureml.core import Experiment, RunConfiguration, ScriptRunConfig, Workspace
from azureml.core.environment import Environment

ws = Workspace.from_config()
user_managed_env = Environment("user-managed-env")
user_managed_env.python.user_managed_dependencies = True
src = ScriptRunConfig(source_directory="./training", script="train_v1.py")
src.run_config.environment = user_managed_env
src.run_config.target = "local"
src.run_config.script = "train_v1.py"
src.run_config.arguments = ["--num_epochs", "1"]
run = Experiment(ws, "attributes").submit(src)
run.wait_for_completion(show_output=True)
print("epochs", run.get_metrics("epochs_done"))
