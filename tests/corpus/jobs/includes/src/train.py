import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--model")
args = parser.parse_args()
print("with", os.path.getsize("flowers.csv") > 0)
open(os.path.join(args.model, "MLmodel"), "w").write("flavors: {}")
