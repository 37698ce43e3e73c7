"""A team's server: logging in, which servers and folders are known and trusted."""
