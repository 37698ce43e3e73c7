"""Other launchers' command lines and batch scripts as job files. Pure: texts in, a job and notices out."""
