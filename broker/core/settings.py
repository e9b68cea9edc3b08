"""The cluster settings as text: their names and values.

Owns: the spelling that command lines, files and logs share. Must never: open a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .model import HISTORIES, NO_SETTINGS, Settings

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"replication": ("off", "on"), "history": HISTORIES}
"""The possible values of each setting, by its name."""


def words(settings: Settings) -> dict[str, str]:
    """Return the value of each setting, by its name."""
    return {"replication": "on" if settings.replication else "off", "history": settings.history}


def with_words(changes: Mapping[str, str], settings: Settings = NO_SETTINGS) -> Settings:
    """Return these settings (or the defaults) with changes. ``changes``: the new values, indexed by name. Each value is
    one of ``CHOICES``."""
    values = {**words(settings), **changes}
    return Settings(values["replication"] == "on", values["history"])
