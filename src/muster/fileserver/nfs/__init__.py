"""An NFS 4.0 server of a folder, read-only, that needs no root and no package."""
