"""Variables and paths that the agent's own processes and every rank know."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODE_MARK = "MUSTER_NODE_MARK"
"""In the environment of every process of a node, by which a later agent finds what was left."""
