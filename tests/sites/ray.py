"""A real Ray cluster of several hosts on one machine: each a network namespace with an address and a name of its own.

Needs root, `ip`, and the ray package. Traffic stays on a bridge of the site's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from muster.engines.ray.machines import certificates, starting

_PATIENCE_S = 180.0
_STARTS = 5
REDIS_PORT = 6380
FAKE_HEAD_ID = "f" * 51 + "00000"
_numbers = itertools.count()
_STARTED = "Ray runtime started"


def missing() -> str:
    """Why there can be no such site here; empty where there can."""
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed (pip install 'muster-ml[ray]')"
    if shutil.which("ip") is None:
        return "`ip` is not installed (apt-get install iproute2)"
    made = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "network namespaces cannot be made here (root is needed)"


class RaySite:
    """Hosts `NAME1` … with Ray on each; the first is the head. `server_address` is this machine's on their network.

    With `redis` the head keeps its tables in a Redis on this machine, and gives no CPUs to gangs.
    """

    def __init__(
        self,
        hosts: int = 3,
        cpus: int = 2,
        *,
        autoscaling: Mapping[str, object] | None = None,
        dashboard: bool = False,
        secured: bool = True,
        redis: bool = False,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mr-"))
        # Its own for every site, so that two on one machine do not meet.
        number = os.getpid() * 8 + next(_numbers) % 8
        name = self.name = f"h{number % 1_000_000}-"
        subnet = f"10.{200 + number // 250 % 50}.{number % 250}"
        self.cpus = cpus
        self._networked = False
        self._autoscaling = autoscaling
        self._secured = secured
        self._session = self.root / "ray"
        self.hosts = [f"{name}{number}" for number in range(1, hosts + 1)]
        self.addresses = {host: f"{subnet}.{10 + number}" for number, host in enumerate(self.hosts, 1)}
        self.server_address = f"{subnet}.1"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        listed = [starting.Host(self.addresses[host]) for host in self.hosts]
        further = ["--block", "--object-store-memory=80000000"]
        if autoscaling is not None:
            # Ray's own autoscaler, with machines that are processes of the head's host.
            further.append(f"--autoscaling-config={self.root}/autoscaling.yaml")
        head = f"--dashboard-host={self.addresses[self.hosts[0]]}"
        self._of_head = ["--include-dashboard=true", head] if dashboard else []
        ray = str(Path(sys.executable).with_name("ray"))
        kept_in = f"{self.server_address}:{REDIS_PORT}" if redis else ""
        self.setup = starting.Setup(
            listed, str(self.root), ray, further=further, redis=kept_in, storage_namespace=name if redis else ""
        )
        certificates.make(self.root, list(self.addresses.values()))

    @property
    def options(self) -> dict[str, object]:
        """Of a cluster that attaches to it."""
        secrets = {
            "token_file": f"{self.root}/{starting.TOKEN}",
            "tls_ca": f"{self.root}/{starting.CA}",
            "tls_cert": f"{self.root}/{starting.CERTIFICATE}",
            "tls_key": f"{self.root}/{starting.KEY}",
        }
        return {
            "address": self.setup.address,
            "server_address": self.server_address,
            "node_folder": f"{self.root}/nodes",
            **(secrets if self._secured else {}),
        }

    def _environment(self, host: str) -> dict[str, str]:
        me = starting.Host(self.addresses[host])
        return starting.environment(self.setup, me) if self._secured else dict(starting.TUNING)

    @property
    def dashboard(self) -> str:
        return f"http://{self.setup.head.address}:8265"

    def start(self) -> None:
        self._make_network()
        if self.setup.redis:
            self._start_redis()
        self.start_all()

    def _start_redis(self) -> None:
        """On this machine, for the hosts' network alone."""
        command = ["redis-server", "--bind", self.server_address, "--port", str(REDIS_PORT), "--protected-mode", "no"]
        with (self.root / "redis.log").open("wb") as log:
            self._daemons["redis"] = subprocess.Popen(
                [*command, "--save", "", "--dir", str(self.root)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ready = "Ready to accept connections"
        self._wait(lambda: ready in (self.root / "redis.log").read_text(errors="replace"), "Redis", "redis")

    def start_all(self) -> None:
        """Ray on every host, the head first."""
        self.start_ray(self.hosts[0])
        for host in self.hosts[1:]:
            self.start_ray(host, wait=False)
        for host in self.hosts[1:]:
            self.wait_for_ray(host)

    def revive(self) -> None:
        """Ray again on every host where it ended."""
        gone = [host for host in self.hosts if (at := self._daemons.get(host)) is None or at.poll() is not None]
        if self.hosts[0] in gone and not self.setup.redis:
            # The others serve a head that nobody knows any more.
            gone = self.hosts
        for host in gone:
            self.kill_ray(host)
        for host in gone:
            self.start_ray(host, wait=host == self.hosts[0])
        for host in gone:
            self.wait_for_ray(host)

    def start_ray(self, host: str, wait: bool = True, python_path: str = "") -> None:
        """Ray on a host; `python_path`: where its processes find modules first."""
        me = starting.Host(self.addresses[host])
        is_head = host == self.hosts[0]
        cpus = 0 if is_head and self.setup.redis else self.cpus
        made = [*starting.arguments(self.setup, me), f"--num-cpus={cpus}", *(self._of_head if is_head else ())]
        self._session.mkdir(exist_ok=True)
        if self._autoscaling is not None:
            (self.root / "autoscaling.yaml").write_text(json.dumps(self._autoscaling))
        told = {**self._environment(host), "RAY_TMPDIR": str(self._session)}
        if python_path:
            told["PYTHONPATH"] = python_path
        if self._autoscaling is not None:
            told |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
            told |= {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_ID}
        self.spawn(host, made, told)
        if wait:
            self.wait_for_ray(host)

    def spawn(self, host: str, command: Sequence[str], told: Mapping[str, str]) -> None:
        """Start something that stays, on a host of the site."""
        # Ray's folder has the same name everywhere, and each host must have its own.
        enter = 'hostname "$0" && mount -t tmpfs ray "$RAY_TMPDIR" && exec "$@"'
        inside = ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", enter, host]
        with (self.root / f"{host}.log").open("wb") as log:
            self._daemons[host] = subprocess.Popen(
                [*inside, *command],
                env={
                    **os.environ,
                    **told,
                    # A raylet whose helpers are late ends by itself within half a minute.
                    "RAY_raylet_start_wait_time_s": "60",
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def wait_for_ray(self, host: str) -> None:
        for left in reversed(range(_STARTS)):
            try:
                self._wait_once(host)
                return
            except TimeoutError:
                if not left:
                    raise
                # On a crowded machine Ray gives its own start up.
                self.kill_ray(host)
                self.start_ray(host, wait=False)

    def _wait_once(self, host: str) -> None:
        log = self.root / f"{host}.log"
        self._wait(lambda: _STARTED in log.read_text(errors="replace"), f"the start of Ray on {host}", host)

    def kill_ray(self, host: str) -> None:
        """End everything of Ray on a host at once, but nothing of Muster."""
        for process, command in self.running(host).items():
            words = " ".join(command)
            if "ray" in words[:300] and "muster" not in words:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        daemon = self._daemons.pop(host, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait()

    def raylet(self, host: str) -> psutil.Process:
        return next(process for process, command in self.running(host).items() if command[0].endswith("/raylet"))

    def broker(self) -> psutil.Process:
        return next(process for process, command in self.running(self.hosts[0]).items() if command[0] == "ray::Broker")

    def running(self, host: str) -> dict[psutil.Process, list[str]]:
        """Everything that runs on a host, with its command line."""
        listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True)
        found = {}
        for pid in listed.stdout.split():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                found[process] = process.cmdline() or [""]
        return found

    def drain(self, host: str, seconds: int = 300) -> None:
        """Have Ray give notice that a host goes."""
        asked = (
            "import ray; ray.init('auto', logging_level='ERROR'); print({n['NodeManagerAddress']: n['NodeID'] for n in "
        )
        asked += f"ray.nodes() if n['Alive']}}[{self.addresses[host]!r}])"
        listed = self.ray("python", "-c", asked)
        head = f"{self.setup.head.address}:{starting.GCS_PORT}"
        reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "notice"]
        node = listed.split()[-1]
        self.ray("ray", "drain-node", "--address", head, "--node-id", node, *reason,
                 "--deadline-remaining-seconds", str(seconds))  # fmt: skip

    def ray(self, program: str, *arguments: str) -> str:
        """What a program of Ray's environment prints on the head."""
        found = str(Path(sys.executable).with_name(program))
        told = {**self._environment(self.hosts[0]), "RAY_TMPDIR": str(self._session)}
        daemon = str(self._daemons[self.hosts[0]].pid)
        done = subprocess.run(
            ["nsenter", "--target", daemon, "--mount", "--net", "--uts", found, *arguments],
            env={**os.environ, **told}, capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def last_words(self) -> str:
        """The ends of what the head printed, and the servers that it starts for its clients."""
        head = self.hosts[0]
        daemon = self._daemons.get(head)
        # Its folder is mounted for it alone.
        seen = Path(f"/proc/{daemon.pid}/root{self._session}") if daemon is not None else self._session
        logs = sorted(seen.glob("ray/session_2*/logs/ray_client_server*.err"))
        return "\n".join(f"--- {log.name}\n{_tail(log)}" for log in (self.root / f"{head}.log", *logs))

    def cut(self, host: str) -> None:
        """Take a host's network away."""
        _ip("link", "set", f"v{host}", "down")

    def heal(self, host: str) -> None:
        _ip("link", "set", f"v{host}", "up")

    def cut_server(self) -> Callable[[], None]:
        """Take this machine's address on the hosts' network away, until the returned is called."""
        address = (f"{self.server_address}/24", "dev", f"{self.name}0")
        _ip("addr", "del", *address)
        return lambda: _ip("addr", "add", *address)

    def has_ray(self, host: str) -> bool:
        return any(command[0].endswith("/raylet") for command in self.running(host).values())

    def close(self) -> None:
        for host in self.hosts if self._networked else ():
            for process in self.running(host):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        if redis := self._daemons.get("redis"):
            redis.kill()
        for daemon in self._daemons.values():
            daemon.wait()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / host, ignore_errors=True)
        subprocess.run(["ip", "link", "del", f"{self.name}0"], capture_output=True, check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def _make_network(self) -> None:
        self._networked = True
        bridge = f"{self.name}0"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self.server_address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        names = "".join(f"{address} {host}\n" for host, address in self.addresses.items())
        for host, address in self.addresses.items():
            # `ip netns exec` puts files from here over those in /etc.
            folder = Path("/etc/netns") / host
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            # There is no name server to ask in vain.
            (folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
            _ip("netns", "add", host)
            _ip("link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("link", "set", f"v{host}", "master", bridge, "up")
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")

    def _wait(self, condition: Callable[[], object], what: str, host: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            daemon = self._daemons.get(host)
            if time.monotonic() > deadline or (daemon is not None and daemon.poll() is not None):
                raise TimeoutError(f"{what} failed:\n{_tail(self.root / f'{host}.log')}")
            time.sleep(0.05)


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else "(nothing)"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
