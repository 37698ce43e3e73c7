"""The in-run API: what a training script may call. Standard library only, valid in Python 3.8."""
