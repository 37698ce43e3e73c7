import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--data-folder", type=str)
args = parser.parse_args()
print("referenced", sorted(os.listdir(args.data_folder)))
