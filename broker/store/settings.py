"""The settings of a cluster as a store records them.

Owns: the format of a record, and the merge of two records. Must never: know a store, or what a setting does.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.model import HISTORIES, Settings


def unpacked(value: Any) -> Settings:
    """Return the settings in a stored record. Raise ``ValueError`` if the record is invalid."""
    if not isinstance(value, list) or list(map(type, value)) != [bool, str] or value[1] not in HISTORIES:
        raise ValueError("the record of settings is invalid")
    return Settings(*value)


def packed(settings: Settings) -> list[Any]:
    """Return the record of the settings. Raise ``ValueError`` if they are invalid."""
    record = list(settings)
    unpacked(record)
    return record


def weaker(one: Settings, other: Settings) -> Settings:
    """Return the strongest settings that both arguments promise."""
    return Settings(one.replication and other.replication, min(one.history, other.history, key=HISTORIES.index))
