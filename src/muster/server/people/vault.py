"""Seals what readers of the database must not see, with the workspace's key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from muster import errors
from muster.defaults import KEY_COMMAND_S
from muster.host.files import PRIVATE, write_file
from muster.paths import WorkspacePaths
from muster.wire.codec import Json

_SEAL = "v1"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class Vault:
    """Seals and opens with keys derived from one secret; during a rotation the older keys still open."""

    def __init__(self, key: bytes, *previous: bytes, file: Path | None = None) -> None:
        self._keys = (key, *previous)
        self.file = file
        """The key's file, if the key is the workspace's own."""

    @property
    def grant_keys(self) -> tuple[bytes, ...]:
        """The keys that verify grants; the first one signs."""
        return tuple(_derive(key, "grants") for key in self._keys)

    @property
    def grant_key(self) -> bytes:
        return self.grant_keys[0]

    @property
    def run_keys(self) -> tuple[bytes, ...]:
        """The keys that verify tokens of runs; the first one signs."""
        return tuple(_derive(key, "runs") for key in self._keys)

    @property
    def key_id(self) -> str:
        return _derive(self._keys[0], "id").hex()[:16]

    @property
    def is_changing(self) -> bool:
        """Whether something may still be sealed with an older key."""
        return self.file is not None and len(self.file.read_text().split()) > 1

    def begin_change(self) -> None:
        """Seal with a fresh key from now on. Both keys are on disk before the first use of the new one."""
        assert self.file is not None
        self._keys = (secrets.token_bytes(_KEY_BYTES), *self._keys)
        self._write(self._keys)

    def end_change(self) -> None:
        """Everything is resealed: remove older keys from disk; grants made with them end with this server."""
        self._write(self._keys[:1])

    def _write(self, keys: Sequence[bytes]) -> None:
        assert self.file is not None
        write_file(self.file, b"\n".join(map(base64.b64encode, keys)), mode=PRIVATE, durable=True)

    def seal(self, value: Mapping[str, Json], about: str) -> str:
        """Encrypted JSON; `about` binds it to its row, so that rows cannot be swapped."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = _cipher(self._keys[0]).encrypt(nonce, json.dumps(value).encode(), about.encode())
        return f"{_SEAL}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, text: str, about: str) -> dict[str, Json]:
        version, _, body = text.partition(":")
        data = base64.b64decode(body)
        try:
            if version != _SEAL:
                raise InvalidTag
            plain = self._decrypted(data, about.encode())
        except InvalidTag:
            raise errors.Conflict(
                f"{about} was sealed with another key than the workspace has now",
                "Start the server with the key that it was made with (MUSTER_KEY_FILE), or set it again.",
            ) from None
        opened: dict[str, Json] = json.loads(plain)
        return opened

    def _decrypted(self, data: bytes, about: bytes) -> bytes:
        for key in self._keys:
            try:
                return _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], about)
            except InvalidTag:
                continue
        raise InvalidTag


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(_derive(key, "seal"))


def load_vault(paths: WorkspacePaths, environment: Mapping[str, str] | None = None) -> Vault:
    """The vault of a workspace: its key comes from the environment, a command, or a private file made on first use."""
    env = os.environ if environment is None else environment
    if given := env.get("MUSTER_KEY"):
        # Child processes of the server must not inherit it.
        os.environ.pop("MUSTER_KEY", None)
        return Vault(_key(given, "MUSTER_KEY"))
    if env.get("MUSTER_KEY_FILE"):
        path = Path(env["MUSTER_KEY_FILE"])
        try:
            return Vault(_key(path.read_text(), f"MUSTER_KEY_FILE={path}"))
        except OSError as error:
            raise errors.UserError(
                f"the key file {path} cannot be read: {error.strerror}", "MUSTER_KEY_FILE names it."
            ) from error
    if env.get("MUSTER_KEY_COMMAND"):
        return Vault(_key(_output(env["MUSTER_KEY_COMMAND"]), "what MUSTER_KEY_COMMAND prints"))
    path = paths.server_dir / "workspace.key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written durably: if a power cut left it empty, all that it has sealed would be lost.
        write_file(path, base64.b64encode(secrets.token_bytes(_KEY_BYTES)), mode=PRIVATE, durable=True)
    return Vault(*(_key(line, str(path)) for line in path.read_text().split() or [""]), file=path)


def _key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < _KEY_BYTES:
        raise errors.UserError(
            f"{where} is not a key: {_KEY_BYTES} bytes in base64 are needed",
            "Make one: head -c 32 /dev/urandom | base64",
        )
    return key


def _output(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=KEY_COMMAND_S, check=False)
    if done.returncode != 0:
        # Its output is not shown: it may contain the key, or a part of it.
        raise errors.UserError(f"MUSTER_KEY_COMMAND ended with {done.returncode}", "Run it by hand to see why.")
    return done.stdout


def _derive(key: bytes, purpose: str) -> bytes:
    return hmac.new(key, f"muster/{purpose}".encode(), hashlib.sha256).digest()
