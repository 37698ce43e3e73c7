"""Ships what ranks print and leave behind to the server: streams, checkpoints, files and outputs."""
