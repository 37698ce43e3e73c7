"""A team's server: logging in, known servers, trusted folders."""
