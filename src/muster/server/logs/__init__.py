"""What ranks print, for those who ask: in which order, from where, which lines."""
