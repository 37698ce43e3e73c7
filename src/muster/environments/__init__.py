"""What ranks run in: virtual environments and images, from what a job says to what is there on a node."""
