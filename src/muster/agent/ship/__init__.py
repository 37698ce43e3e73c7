"""What ranks print and leave behind, brought to the server: streams, checkpoints, files and outputs."""
