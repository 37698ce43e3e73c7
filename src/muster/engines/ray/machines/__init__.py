"""Machines for Ray: started on given hosts, or described for Ray's own launcher."""
