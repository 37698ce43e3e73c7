"""What a browser needs of the server: the portal's files, sessions, and a port of this machine to reach it by."""
