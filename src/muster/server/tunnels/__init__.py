"""Tunnels into nodes: who may open one, which wait for an end, and how two ends are joined."""
