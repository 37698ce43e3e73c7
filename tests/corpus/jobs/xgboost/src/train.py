import argparse
import os

import mlflow
import pandas as pd
import xgboost as xgb

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--rounds", type=int)
parser.add_argument("--depth", type=int, default=3)
args = parser.parse_args()
df = pd.read_csv(os.path.join(args.data, "flowers.csv"))
train = xgb.DMatrix(df.drop(columns="species"), label=df["species"].astype("category").cat.codes)
progress = {}
model = xgb.train({"objective": "multi:softprob", "num_class": 3, "max_depth": args.depth}, train,
                  args.rounds, evals=[(train, "train")], evals_result=progress)
for step, value in enumerate(progress["train"]["mlogloss"]):
    mlflow.log_metric("mlogloss", value, step=step)
os.makedirs("outputs", exist_ok=True)
model.save_model("outputs/model.json")
