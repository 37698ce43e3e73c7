"""What people start in a running attempt, by way of a tunnel: a shell, a connection to a port, a look at stacks.

A keeper forks a process for each, which ends with whatever it started when its person leaves or the attempt ends.
Standard library only, Python 3.8: part of it runs inside images.
"""
