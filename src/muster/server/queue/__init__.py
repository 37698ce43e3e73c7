"""What waits: the queue, what is learned for it, and what runs are told about their start."""
