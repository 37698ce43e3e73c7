"""Sessions that people start in a running attempt through a tunnel: a shell, a connection to a port, stack dumps.

A keeper forks a process for each, which ends with all its children when the person leaves or the attempt ends.
Standard library only, Python 3.8: part of it runs inside images.
"""
