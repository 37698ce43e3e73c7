import argparse

import mlflow
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def main(args):
    mlflow.autolog()
    params = {"C": args.C, "kernel": args.kernel, "coef0": args.coef0}
    df = pd.read_csv(args.iris_csv)
    x_train, x_test, y_train, y_test = process_data(df, args.random_state)
    train_model(params, x_train, x_test, y_train, y_test)


def process_data(df, random_state):
    X = df.drop(["species"], axis=1)
    y = df["species"]
    x_train, x_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=random_state)
    return StandardScaler().fit_transform(x_train), StandardScaler().fit_transform(x_test), y_train, y_test


def train_model(params, x_train, x_test, y_train, y_test):
    model = SVC(**params)
    model = model.fit(x_train, y_train)
    print("accuracy", model.score(x_test, y_test))
    return model


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iris-csv", type=str)
    parser.add_argument("--C", type=float, default=0.5)
    parser.add_argument("--kernel", type=str, default="rbf")
    parser.add_argument("--coef0", type=float, default=0)
    parser.add_argument("--random_state", type=int, default=42)
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
