"""The keys that encrypt a store: where they come from, and how a file's own key is wrapped in one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from muster import errors
from muster.wire.codec import Json, WireError, from_json
from muster.wire.encryption import EncryptionConfig, NewKey

MAGIC = b"MUSTERE1"
"""The first bytes of everything that is encrypted."""
KEY_BYTES = 32
_SOURCES = ("key_file", "key_env", "key_command")
_COMMAND_S = 60.0


class WrongKey(errors.UserError):
    """The stored bytes were encrypted with another key."""

    code = "wrong_key"


@dataclass(frozen=True)
class Key:
    """One key, and an id that does not reveal it."""

    id: bytes
    secret: bytes

    @classmethod
    def of(cls, secret: bytes) -> Key:
        return cls(hmac.new(secret, b"muster/store/id", hashlib.sha256).digest()[:8], secret)


class KeyRing:
    """The key for writing, and older ones that may still be needed for reading."""

    def __init__(self, first: Key, previous: Sequence[Key] = ()) -> None:
        self.first = first
        self._by_id = {key.id: key for key in (*previous, first)}
        self._lock = threading.Lock()
        self._writing: Counter[bytes] = Counter()

    def lead(self, key: Key) -> None:
        """Use this key for everything begun from now on; the others stay for reading."""
        with self._lock:
            self._by_id[key.id] = key
            self.first = key

    @contextmanager
    def writing(self, rewrap: Callable[[], object]) -> Iterator[None]:
        """Wraps the writing of a file; if the first key changes meanwhile, `rewrap` applies the new one at the end."""
        with self._lock:
            key = self.first.id
            self._writing[key] += 1
        try:
            yield
            with self._lock:
                is_current = self.first.id == key
                if is_current:
                    self._writing[key] -= 1
            if not is_current:
                rewrap()
        except BaseException:
            is_current = False
            raise
        finally:
            if not is_current:
                with self._lock:
                    self._writing[key] -= 1

    def is_writing_with_older(self) -> bool:
        """Whether something that was begun with an older key is still being written."""
        with self._lock:
            return any(count for key, count in self._writing.items() if key != self.first.id)

    def wrap(self, file_key: bytes, about: bytes) -> bytes:
        """The encrypted file key: key id, nonce, ciphertext."""
        nonce, first = secrets.token_bytes(12), self.first
        return first.id + nonce + AESGCM(first.secret).encrypt(nonce, file_key, about)

    def unwrap(self, wrapped: bytes, about: bytes, name: str) -> bytes:
        key = self._by_id.get(wrapped[:8])
        if key is None:
            known = ", ".join(sorted(item.hex() for item in self._by_id))
            raise WrongKey(
                f"{name} is encrypted with the key {wrapped[:8].hex()}, and the workspace has {known}",
                "Name the right key under `encryption` in workspace.json, or the older one under `previous` there.",
            )
        try:
            return AESGCM(key.secret).decrypt(wrapped[8:20], wrapped[20:], about)
        except InvalidTag:
            raise WrongKey(f"{name}: its header is damaged, or was changed", "Take it from a backup.") from None


def load_keyring(config: EncryptionConfig | None, folder: Path) -> KeyRing | None:
    """The keys that `encryption` in workspace.json names; None where nothing is encrypted."""
    if config is None:
        return None
    return KeyRing(load_key(config, folder), [load_key(item, folder) for item in config.previous])


def read_config(config: Mapping[str, Json]) -> EncryptionConfig | None:
    """`encryption` of workspace.json."""
    given = config.get("encryption")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise errors.UserError("`encryption` in workspace.json must be a mapping", _HINT)
    unknown = set(given) - {*_SOURCES, "previous"}
    if unknown:
        raise errors.UserError(f"`encryption` in workspace.json has the unknown key {sorted(unknown)[0]!r}", _HINT)
    try:
        return from_json(EncryptionConfig, {name: value for name, value in given.items() if value is not None})
    except WireError as error:
        raise errors.UserError(f"`encryption` in workspace.json: {error}", _HINT) from None


def load_key(source: NewKey, folder: Path) -> Key:
    """One key: from a file, an environment variable or a command's output."""
    named = [(name, value) for name in _SOURCES if (value := getattr(source, name))]
    if len(named) != 1:
        raise errors.UserError("`encryption` in workspace.json must name one source of its key", _HINT)
    kind, value = named[0]
    if kind == "key_file":
        path = (folder / value).expanduser()
        try:
            return _parse(path.read_text(), f"the key file {path}")
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UserError(f"the key file {path} cannot be read: {error}", _HINT) from error
    if kind == "key_env":
        if value not in os.environ:
            raise errors.UserError(f"the variable {value}, which should hold the key, is not set for the server", _HINT)
        # Not inherited by the agents that the server starts.
        return _parse(os.environ.pop(value), f"the variable {value}")
    return _parse(_run(value), "what key_command prints")


def new_key() -> str:
    """A fresh key as text."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


_HINT = (
    'Write "encryption": {"key_file": PATH}, {"key_env": NAME} or {"key_command": COMMAND}; the key is 32 bytes as '
    "base64 or hexadecimal digits, such as `muster key create FILE` makes."
)


def _run(command: str) -> str:
    try:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        raise errors.UserError(f"key_command did not end within {_COMMAND_S:g} s", _HINT) from None
    if done.returncode != 0:
        # Its output may hold the key, or a part of it.
        raise errors.UserError(f"key_command ended with {done.returncode}", "Run it by hand to see why.")
    return done.stdout


def _parse(text: str, where: str) -> Key:
    text = text.strip()
    try:
        secret = bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise errors.UserError(f"{where} holds no key", _HINT)
    return Key.of(secret)
