import pathlib
import sys

pathlib.Path(sys.argv[1], "model.txt").write_text("weights")
print("the script beside the file ran")
