from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
from azureml.core.conda_dependencies import CondaDependencies
from azureml.core.runconfig import DockerConfiguration, MpiConfiguration

ws = Workspace.from_config()
myenv = Environment("myenv")
myenv.python.user_managed_dependencies = True
docker_config = DockerConfiguration(use_docker=False)
src = ScriptRunConfig(source_directory="training", script="train_v1.py",
                      arguments=["--num_epochs", 1, "--output_dir", "outputs"],
                      compute_target="local", environment=myenv,
                      distributed_job_config=MpiConfiguration(process_count_per_node=2, node_count=1),
                      docker_runtime_config=docker_config)
src.run_config.environment_variables = {"EXAMPLE_ENV_VAR": "EXAMPLE_VALUE"}
run = Experiment(ws, "src").submit(config=src, tags={"k": "v"})
run.wait_for_completion(show_output=True)
print(run.get_file_names())
print(run.get_details()["status"], run.get_tags(), run.get_portal_url() is not None)
