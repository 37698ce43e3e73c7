"""Variables and paths that the agent's own processes and every rank share."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODE_MARK = "MUSTER_NODE_MARK"
"""Set in the environment of every process of a node: by it a later agent finds leftovers."""
