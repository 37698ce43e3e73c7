"""Metrics that scripts write into files of other tools (TensorBoard, Weights & Biases), read while the job runs."""
