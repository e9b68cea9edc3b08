"""The settings of a cluster as a store records them.

Owns: the form of a record, and what counts of two. Must never: know a store, or what a setting does.
"""

from __future__ import annotations

from typing import Any

from ingeborg.broker.core.model import HISTORIES, Settings


def unpacked(value: Any) -> Settings:
    """The settings of a record as it is stored. ``ValueError`` for what is none."""
    if not isinstance(value, list) or list(map(type, value)) != [bool, str] or value[1] not in HISTORIES:
        raise ValueError("no settings where they belong")
    return Settings(*value)


def packed(settings: Settings) -> list[Any]:
    """The record of the settings. ``ValueError`` for what are none."""
    record = list(settings)
    unpacked(record)
    return record


def weaker(one: Settings, other: Settings) -> Settings:
    """What both promise."""
    return Settings(one.replication and other.replication, min(one.history, other.history, key=HISTORIES.index))
