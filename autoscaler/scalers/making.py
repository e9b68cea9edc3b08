"""Creates a scaler from the table ``[scaler]`` of the settings file.

Owns: the class for each kind, and the location of a scaler's own files. Must never: call a scaler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..settings import Settings, SettingsError
from . import kubernetes_access
from .base import Scaler
from .http import HttpScaler
from .kubernetes import KubernetesScaler
from .nobody import NobodyScaler
from .processes import ProcessScaler

_TOKEN_BYTES_MAX = 64 << 10


def make(settings: Settings) -> Scaler:
    """Create the scaler named in the settings. Raises ``SettingsError`` if something that the scaler needs is
    missing."""
    scaler, group = settings.scaler, settings.group.name
    match scaler.kind:
        case "processes":
            folder = settings.path(scaler.state_folder or f"{group}.members")
            return ProcessScaler(scaler.command or member_command(settings), folder, scaler.grace_s, group)
        case "kubernetes":
            access = kubernetes_access.find(scaler.api_url, os.environ)
            return KubernetesScaler(scaler.namespace, scaler.deployment, access, scaler.timeout_s)
        case "http":
            token = _token(settings.path(scaler.token_file)) if scaler.token_file else None
            return HttpScaler(scaler.url, token, scaler.timeout_s, group)
        case _:
            return NobodyScaler()


def member_command(settings: Settings) -> tuple[str, ...]:
    """Return the command that starts a member of this group with the same Python. It lacks the member's name."""
    module = "ingeborg.broker.command.cli"
    return (sys.executable, "-m", module, "autoscale", str(settings.file), "--part", "member")


def _token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            token = opened.read(_TOKEN_BYTES_MAX).decode("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it must be ASCII"
        raise SettingsError(f"[scaler] token_file: {file}: {why}") from None
    if not token or any(each.isspace() for each in token):
        raise SettingsError(f"[scaler] token_file: {file} must hold a token, in one line")
    return token
