"""What runs on a file server's node: holds its data, serves them over NFS, and fills it from datastores."""
