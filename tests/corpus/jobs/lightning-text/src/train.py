import os

print("NODE_RANK", os.environ["NODE_RANK"], "of", os.environ["AZUREML_NODE_COUNT"], "master", os.environ["MASTER_ADDR"])
