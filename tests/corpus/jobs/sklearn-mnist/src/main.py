import argparse

import mlflow
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

parser = argparse.ArgumentParser()
parser.add_argument("--C", type=float, default=0.1)
parser.add_argument("--penalty", type=str, default="l1")
args = parser.parse_args()
mlflow.sklearn.autolog()
X, y = load_digits(return_X_y=True)
model = LogisticRegression(C=args.C, max_iter=100).fit(X / 16.0, y)
print("accuracy:", model.score(X / 16.0, y))
