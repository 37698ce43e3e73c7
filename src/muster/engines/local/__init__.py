"""The embedded engine: this machine, with as many simulated nodes as a job asks for."""
