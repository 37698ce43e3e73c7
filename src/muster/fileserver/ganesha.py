"""nfs-ganesha: where it is installed, whether it may run, and its configuration."""

from __future__ import annotations

import os
import re
import shutil

from muster.paths import FileServerPaths

PROGRAM = "ganesha.nfsd"
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_PLAIN_PATH = re.compile(r"/[^\"\n;{}#]*")


def find_program(paths: FileServerPaths) -> tuple[str | None, str]:
    """The program, if it can serve the folder; otherwise the reason why it cannot."""
    if os.geteuid() != 0:
        return None, "nfs-ganesha opens files by their handles, which only root may"
    if not _PLAIN_PATH.fullmatch(str(paths.root)):
        return None, "nfs-ganesha cannot read a path with such letters"
    program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")
    return program, "" if program else "nfs-ganesha is not installed"


def configuration(paths: FileServerPaths, name: str, host: str, port: int, clients: str) -> str:
    """The server's configuration file: only version 4, over TCP, read-only, and only for `clients`."""
    clients = ", ".join(dict.fromkeys((clients, "127.0.0.1")))
    return f"""\
NFS_CORE_PARAM {{
    Bind_Addr = {host};
    NFS_Port = {port};
    Protocols = 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = none;
}}
NFSv4 {{
    Graceless = true;
    Minor_Versions = 0, 1, 2;
    Only_Numeric_Owners = true;
    RecoveryBackend = fs;
    RecoveryRoot = "{paths.recovery}";
}}
EXPORT {{
    Export_Id = 1;
    Path = "{paths.data}";
    Pseudo = "/{name}";
    Protocols = 4;
    Transports = TCP;
    SecType = sys;
    Squash = All_Squash;
    Access_Type = NONE;
    FSAL {{ Name = VFS; }}
    CLIENT {{ Clients = {clients}; Access_Type = RO; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""
