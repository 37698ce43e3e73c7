import argparse
import os

from azureml.core.run import Run

run = Run.get_context()
parser = argparse.ArgumentParser()
parser.add_argument("--num_epochs", type=int, default=1)
parser.add_argument("--output_dir", type=str, default="./outputs")
parser.add_argument("--verbose", action="store_true")
args = parser.parse_args()
for epoch in range(args.num_epochs):
    run.log("best_val_acc", 0.5 + epoch / 10)
run.log("epochs_done", args.num_epochs)
run.log_row("lr", epoch=1, lr=0.1)
run.log_list("all", [1, 2, 3])
run.log_table("table", {"a": [1, 2], "b": [3, 4]})
os.makedirs(args.output_dir, exist_ok=True)
with open(os.path.join(args.output_dir, "model.txt"), "w") as stream:
    stream.write("weights")
print("trained", args.num_epochs, "run", run.id, run.experiment.name, run.number, run.parent, run.display_name)
