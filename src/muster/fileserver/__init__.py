"""The program on a file server's node: it holds the data, serves them over NFS, and fills in more from datastores."""
