"""Machines for Ray: started on given hosts, or described to Ray's own launcher."""
