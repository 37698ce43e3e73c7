import argparse

import lightgbm as lgb
import mlflow
import pandas as pd
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder


def main(args):
    mlflow.autolog()
    df = pd.read_csv(args.iris_csv)
    X, y = df.drop(["species"], axis=1), LabelEncoder().fit_transform(df["species"])
    x_train, x_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=1)
    train = lgb.Dataset(x_train, label=y_train)
    params = {"objective": "multiclass", "num_class": 3, "boosting": args.boosting,
              "num_iterations": args.num_iterations, "num_leaves": args.num_leaves,
              "learning_rate": args.learning_rate, "verbosity": -1}
    model = lgb.train(params, train, valid_sets=[train])
    accuracy = accuracy_score(y_test, model.predict(x_test).argmax(axis=1))
    print("accuracy", accuracy)


parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv", type=str)
parser.add_argument("--num-iterations", type=int, default=10)
parser.add_argument("--boosting", type=str, default="gbdt")
parser.add_argument("--num-leaves", type=int, default=31)
parser.add_argument("--learning-rate", type=float, default=0.1)
main(parser.parse_args())
