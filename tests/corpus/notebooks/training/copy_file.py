import argparse
import os
import shutil

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--lr", type=float)
parser.add_argument("--out")
args = parser.parse_args()
shutil.copy(args.data, os.path.join(args.out, "numbers.csv"))
print("copied", args.lr)
