import os

print("files", sorted(os.listdir(os.environ["AZURE_ML_INPUT_numbers"])))
with open(os.path.join(os.environ["AZURE_ML_OUTPUT_kept"], "said.txt"), "w") as file:
    file.write("kept")
