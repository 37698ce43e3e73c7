import os
from random import random

import mlflow


def main():
    mlflow.log_param("greeting_param", "action_classifier")
    mlflow.log_metric("greeting_metric", random())
    os.system("echo 'an artifact' > kept.txt")
    mlflow.log_artifact("kept.txt")


if __name__ == "__main__":
    main()
