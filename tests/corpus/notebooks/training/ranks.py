import os

print("rank", os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))
