from azureml.core import Experiment, ScriptRunConfig, Workspace
from azureml.core.conda_dependencies import CondaDependencies
from azureml.core.runconfig import DEFAULT_CPU_IMAGE, RunConfiguration

ws = Workspace.from_config()
run_config = RunConfiguration(framework="python")
run_config.target = "local"
run_config.auto_prepare_environment = True
run_config.environment.docker.enabled = False
run_config.environment.docker.base_image = None
run_config.environment.python.user_managed_dependencies = True
run_config.node_count = 1
src = ScriptRunConfig(source_directory="./training", script="train_v1.py", run_config=run_config,
                      arguments=["--num_epochs", 1])
run = Experiment(workspace=ws, name="train-on-local").submit(config=src)
run.wait_for_completion(show_output=True)
print(run.get_metrics())
