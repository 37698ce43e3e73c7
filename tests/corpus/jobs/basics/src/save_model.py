import argparse
import os
import shutil

parser = argparse.ArgumentParser()
parser.add_argument("--input")
parser.add_argument("--as-custom", dest="as_custom")
parser.add_argument("--as-mlflow", dest="as_mlflow")
args = parser.parse_args()
print("model:", os.listdir(args.input))
shutil.copytree(args.input, os.path.join(args.as_custom, "model"))
shutil.copytree(args.input, args.as_mlflow, dirs_exist_ok=True)
