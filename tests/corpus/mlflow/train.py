import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--table")
parser.add_argument("--alpha", type=float)
parser.add_argument("--l1-ratio", type=float)
args = parser.parse_args()
rows = len(open(args.table).readlines()) - 1
print(f"trained on {rows} rows with alpha {args.alpha} and l1_ratio {args.l1_ratio}")
