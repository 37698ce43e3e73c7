"""Messages between browsers and the server, beyond those of every client."""
