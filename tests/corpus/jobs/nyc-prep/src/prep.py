import argparse
import os
import shutil
from pathlib import Path

parser = argparse.ArgumentParser("prep")
parser.add_argument("--raw", type=str)
parser.add_argument("--min", type=int)
parser.add_argument("--mode", type=str)
parser.add_argument("--ratio", type=float)
parser.add_argument("--prepped", type=str)
args = parser.parse_args()
for name in os.listdir(args.raw):
    path = Path(args.raw) / name
    if path.is_file():
        shutil.copy(path, Path(args.prepped) / name)
print("prepped", os.listdir(args.prepped), args.min, args.mode, args.ratio)
