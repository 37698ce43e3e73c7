import argparse
import os

import joblib
import mlflow
import mlflow.sklearn
import pandas as pd
from sklearn.linear_model import Ridge

parser = argparse.ArgumentParser()
parser.add_argument("--diabetes-csv", type=str)
parser.add_argument("--alpha", type=float, default=0.1)
args = parser.parse_args()
df = pd.read_csv(args.diabetes_csv)
X, y = df[["sepal_length", "sepal_width", "petal_length"]].values, df["petal_width"].values
with mlflow.start_run():
    model = Ridge(alpha=args.alpha).fit(X, y)
    mlflow.log_param("alpha", args.alpha)
    mlflow.log_metric("r2", model.score(X, y))
    mlflow.sklearn.log_model(model, "model")
os.makedirs("outputs", exist_ok=True)
joblib.dump(model, "outputs/model.pkl")
