"""Horovod's exceptions, under the name that scripts import."""


class HorovodInternalError(RuntimeError):
    """A collective operation failed."""


class HostsUpdatedInterrupt(RuntimeError):
    """Never raised: the ranks of a job stay the same. Scripts catch it together with the other one."""
