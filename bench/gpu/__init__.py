"""What needs a GPU to be measured; run by hand where there is one: `python -m bench.gpu`."""
