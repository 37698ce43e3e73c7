import argparse
import os

import numpy as np
from azureml.core import Run
from azureml.core.run import _OfflineRun

parser = argparse.ArgumentParser()
parser.add_argument("--data-folder", type=str, dest="data_folder")
parser.add_argument("--regularization", type=float, default=0.5)
args = parser.parse_args()

run = Run.get_context()
assert not isinstance(run, _OfflineRun)
ws = run.experiment.workspace
print("secret has", len(run.get_secret(name="my-secret")), len(ws.get_default_keyvault().get_secret("my-secret")))
run.log("regularization rate", np.float64(args.regularization))
run.log("epochs", 3)
for epoch in range(3):
    run.log_row("training", epoch=epoch, loss=1.0 / (epoch + 1))
run.log_list("accuracies", [0.5, 0.75, 0.875])
run.log_table("scores", {"x": [1, 2], "y": [3, 4]})
matrix = {"schema_type": "confusion_matrix", "schema_version": "v1", "parameters": {},
          "data": {"class_labels": ["0", "1"], "matrix": [[3, 1], [2, 4]]}}
run.log_confusion_matrix("confusion", matrix)
run.log_accuracy_table("accuracy table", '{"schema_type": "accuracy_table", "data": {}}')
try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.plot([1, 2, 3])
    run.log_image("ROC curve", plot=plt)
except ImportError:
    pass
os.makedirs("outputs", exist_ok=True)
with open("outputs/model.pkl", "wb") as stream:
    stream.write(b"weights")
run.upload_file("reports/summary.txt", "train_logging.py")
print("uploaded", "reports/summary.txt" in run.get_file_names(), run.get_status(), run.properties)
