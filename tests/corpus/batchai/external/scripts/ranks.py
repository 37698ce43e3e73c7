import os

print("rank", os.environ.get("OMPI_COMM_WORLD_RANK"), "of", os.environ.get("OMPI_COMM_WORLD_SIZE"))
