"""Other launchers' command lines and batch scripts as job files. Pure: from texts to a job and notices."""
