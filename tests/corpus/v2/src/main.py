import argparse
import os
from pathlib import Path

from azureml.core import Run

parser = argparse.ArgumentParser()
parser.add_argument("--training_data", type=str)
parser.add_argument("--max_epochs", type=int, default=1)
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--learning_rate_schedule", type=str, default="constant")
parser.add_argument("--model_output", type=str)
args = parser.parse_args()

run = Run.get_context()
lines = [f"epochs {args.max_epochs}", f"schedule {args.learning_rate_schedule}"]
if args.training_data:
    lines += sorted(os.listdir(args.training_data))
for epoch in range(args.max_epochs):
    run.log("loss", 1.0 / (epoch + 1))
if args.model_output:
    Path(args.model_output).mkdir(parents=True, exist_ok=True)
    (Path(args.model_output) / f"model_{os.environ.get('RANK', '0')}.txt").write_text("weights")
print("; ".join(lines))
