"""Before ranks start: code, inputs, environment, ports and checks of the node, in worker threads."""
