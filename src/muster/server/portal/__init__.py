"""The server's side of the portal: its files, sessions, and a loopback port for browsers."""
