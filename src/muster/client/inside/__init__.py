"""Ways into a run while it goes on: tunnels, ports, event files."""
