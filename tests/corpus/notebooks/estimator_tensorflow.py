from azureml.core import Experiment, Workspace
from azureml.train.dnn import ParameterServer, TensorFlow

ws = Workspace.from_config()
distributed_training = ParameterServer()
distributed_training.worker_count = 2
estimator = TensorFlow(source_directory="training",
                       compute_target="local",
                       script_params={"--num_epochs": 1},
                       entry_script="train_v1.py",
                       node_count=2,
                       distributed_training=distributed_training,
                       user_managed=True,
                       use_gpu=False)
run = Experiment(ws, "tf-distr-ps").submit(estimator)
print(run)
run.wait_for_completion(show_output=True)
