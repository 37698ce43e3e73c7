"""Hosts on one machine, each a network namespace on a bridge, with links that can be cut, made lossy and slowed down.

Needs root, `ip`, `tc` and `iptables`. This machine is on the same network, as `server_address`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from typing import Literal

Direction = Literal["in", "out", "both"]
_numbers = itertools.count()
_CHAINS = {"in": ("INPUT",), "out": ("OUTPUT",), "both": ("INPUT", "OUTPUT")}


def missing() -> str:
    """Why there can be no such site here; empty where there can."""
    lacking = [name for name in ("ip", "tc", "iptables") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (apt-get install iproute2 iptables)"
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "network namespaces cannot be made here (root is needed)"


class NetworkSite:
    """Namespaces with an address each."""

    def __init__(self, hosts: int = 2) -> None:
        # Its own for every site, so that two on one machine do not meet.
        number = os.getpid() * 8 + next(_numbers) % 8
        self._name = f"k{number % 1_000_000}-"
        subnet = f"10.{100 + number // 250 % 50}.{number % 250}"
        self.hosts = [f"{self._name}{index}" for index in range(1, hosts + 1)]
        self.addresses = [f"{subnet}.{10 + index}" for index in range(1, hosts + 1)]
        self.server_address = f"{subnet}.1"

    def start(self) -> None:
        bridge = f"{self._name}0"
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self.server_address}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for host, address in zip(self.hosts, self.addresses, strict=True):
            _run("ip", "netns", "add", host)
            _run("ip", "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _run("ip", "link", "set", f"v{host}", "master", bridge, "up")
            _run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", host, "link", "set", "eth0", "up")
            _run("ip", "-n", host, "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        """Take a host's network away."""
        _run("ip", "link", "set", f"v{host}", "down")

    def lose(self, host: str, direction: Direction, share: float = 1.0) -> None:
        """Have so many of the packets of a host vanish, those that come, those that go, or all."""
        chance = [] if share >= 1.0 else ["-m", "statistic", "--mode", "random", "--probability", f"{share:g}"]
        for chain in _CHAINS[direction]:
            _run(*self._inside(host), "iptables", "-A", chain, "!", "-i" if chain == "INPUT" else "-o", "lo", *chance,
                 "-j", "DROP")  # fmt: skip

    def slow(self, host: str, kbit: int) -> None:
        """Let a host send no faster than that."""
        shape = f"qdisc replace dev eth0 root tbf rate {kbit}kbit burst 4kb latency 400ms"
        _run(*self._inside(host), "tc", *shape.split())

    def heal(self, host: str) -> None:
        """Have a host's link as it was."""
        _run("ip", "link", "set", f"v{host}", "up")
        _run(*self._inside(host), "iptables", "-F")
        subprocess.run([*self._inside(host), "tc", "qdisc", "del", "dev", "eth0", "root"], capture_output=True)

    def close(self) -> None:
        for host in self.hosts:
            listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False)
            for pid in listed.stdout.split():
                subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._name}0"], capture_output=True, check=False)

    def _inside(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", host]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
