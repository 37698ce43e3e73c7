"""The agent of a node, by stage of an attempt's life: prepare, run, ship."""
