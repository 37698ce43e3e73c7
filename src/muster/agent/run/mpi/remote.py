"""What mpirun calls in place of ssh: `remote.py TABLE [options] HOST command…`.

Passes the command to the keeper of the node that HOST names, and waits until it has ended there. Run as a file with
`-I -S`, because mpirun waits for it. The attempt's secret is in the table, which only its owner can read; it is never
sent: the keeper sends a challenge, and the response is a keyed hash of it and of the command.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from _blake2 import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from muster.agent.run.records import RemoteTable

PATIENCE_S = 60.0
_CONNECT_S = 10.0
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


def answer(secret: str, challenge: str, command: str) -> str:
    """Proof that a holder of the secret requests this command now."""
    text = f"{challenge}\n{command}"
    return blake2b(text.encode(), key=secret.encode()[:64], digest_size=32).hexdigest()


def main() -> None:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        table = json.load(file)
    words = sys.argv[2:]
    while words and words[0].startswith("-"):
        words.pop(0)
    if len(words) < 2 or words[0] not in table["hosts"]:
        known = ", ".join(table["hosts"])
        sys.exit(f"muster: mpirun asks for the node {words[0] if words else ''!r}; the job has {known}")
    sys.exit(_run(table, words[0], " ".join(words[1:])))


def _run(table: RemoteTable, host: str, command: str) -> int:
    address, port = table["hosts"][host]
    line = _connect(address, port)
    if line is None:
        print(f"muster: node {host} ({address} port {port}) does not answer", file=sys.stderr)
        return 255
    with line, line.makefile("r") as replies:
        challenge = replies.readline().strip()
        proof = answer(table["secret"], challenge, command)
        line.sendall(json.dumps({"command": command, "proof": proof}).encode() + b"\n")
        for text in replies:
            entry = json.loads(text)
            if entry["kind"] in ("daemon", "quiet"):
                _tell(table["fifo"], {"kind": entry["kind"], "host": host})
            elif entry["kind"] == "exited":
                print(entry["output"], end="", file=sys.stderr)
                return int(entry["code"])
    print(f"muster: the connection to node {host} ({address} port {port}) was lost", file=sys.stderr)
    return 255


def _connect(address: str, port: int) -> socket.socket | None:
    """The other node may be a moment behind."""
    deadline = time.monotonic() + PATIENCE_S
    pause_s = _PAUSE_S
    while time.monotonic() < deadline:
        try:
            line = socket.create_connection((address, port), _CONNECT_S)
            line.settimeout(None)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return line
        except OSError:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    return None


def _tell(fifo: str, entry: dict[str, str]) -> None:
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
        os.close(descriptor)
    except OSError:
        # No keeper: then this process is about to be ended too.
        pass


if __name__ == "__main__":
    main()
