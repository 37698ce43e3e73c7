"""What the server holds to tell people apart and to keep their secrets."""

from __future__ import annotations

from dataclasses import dataclass

from muster.server.people.access import Tokens
from muster.server.people.vault import Vault


@dataclass
class People:
    """Tokens, and the vault of the workspace."""

    tokens: Tokens
    vault: Vault
    """Seals credentials and secrets; signs grants."""
