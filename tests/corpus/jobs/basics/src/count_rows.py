import argparse
import csv
import os

parser = argparse.ArgumentParser()
parser.add_argument("--table", type=str, default="data.csv")
args = parser.parse_args()
if not os.path.exists(args.table):
    print("no table")
else:
    with open(args.table) as stream:
        print("rows:", len(list(csv.reader(stream))))
