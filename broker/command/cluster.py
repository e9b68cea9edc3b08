"""`ingeborg cluster`: shows the settings that a store records for all its endpoints, or changes one setting.

Owns: the command's output and messages. Must never: create a store, or write to one unless it has to record a change.
"""

from __future__ import annotations

import sys
from typing import TextIO

import orjson

from ..core.model import NO_SETTINGS, Settings
from ..core.settings import CHOICES, with_words, words
from ..store.base import Store, StoreError

OK, FAILED, USAGE = 0, 1, 2

NONE_YET = "no settings are recorded yet; the first endpoint records its own"


async def run(
    reading: Store,
    writing: Store,
    change: tuple[str, str] | None = None,
    *,
    as_json: bool = False,
    out: TextIO | None = None,
    told: TextIO | None = None,
) -> int:
    """Print the recorded settings, after making the change if one is given.

    Args:
        reading: The store, created with read-only access and not opened yet.
        writing: The same store, created with write access and not opened yet.
        change: The name of a setting and its new value.
        as_json: Print one line of JSON instead of text.
        out: The stream for the settings; standard output by default.
        told: The stream for messages to the user; standard error by default.

    Returns:
        The exit code.
    """
    out, told = out or sys.stdout, told or sys.stderr
    if change is not None and (why := _wrong(reading, *change)):
        print(f"ingeborg cluster: {why}", file=told)
        return USAGE
    try:
        # Read first, because opening the store for writing would create it if it is missing.
        recorded = await _with(reading)
        if change is not None and recorded is None:
            print(f"ingeborg cluster: {NONE_YET}: start it with --{change[0]} {change[1]}", file=told)
            return FAILED
        was_so = change is not None and recorded is not None and words(recorded)[change[0]] == change[1]
        if change is not None and not was_so:
            recorded = await _with(writing, change)
    except StoreError as error:
        print(f"ingeborg cluster: {error}", file=told)
        return FAILED
    values: dict[str, str | None] = {**dict.fromkeys(CHOICES), **({} if recorded is None else words(recorded))}
    if as_json:
        print(orjson.dumps(values).decode(), file=out)
    elif recorded is not None:
        print("\n".join(f"{name}: {value}" for name, value in values.items()), file=out)
    if recorded is None:
        print(f"ingeborg cluster: {NONE_YET}", file=told)
    if change is None:
        return OK
    name, value = change
    if values[name] != value:
        print(f"ingeborg cluster: someone else has set {name} to {values[name]} meanwhile", file=told)
        return FAILED
    print(f"ingeborg cluster: {_outcome(name, value, was_so)}", file=told)
    return OK


def _wrong(store: Store, name: str, value: str) -> str | None:
    """Return why this change cannot be made, or ``None`` if it can."""
    if name not in CHOICES:
        return f"there is no setting {name!r}; the settings are {' and '.join(CHOICES)}"
    if value not in CHOICES[name]:
        return f"{name} {value!r}: has to be {', '.join(CHOICES[name][:-1])} or {CHOICES[name][-1]}"
    if (name, value) == ("history", "store") and not store.shape.journal:
        return "history store needs the embedded store (lmdb:DIR), because this store has no journal"
    return None


async def _with(store: Store, change: tuple[str, str] | None = None) -> Settings | None:
    """Open the store, record the change if one is given, and close the store. Return the store's resulting
    settings."""
    try:
        await store.open()
        recorded = await store.settings()
        if change is not None:
            await store.set_settings(with_words(dict([change]), recorded or NO_SETTINGS))
            recorded = await store.settings()
        return recorded
    finally:
        await store.close()


def _outcome(name: str, value: str, was_so: bool) -> str:
    if was_so:
        return f"{name} is {value} already"
    return (
        f"{name} {value} is recorded. Endpoints read it when they restart. It takes effect when every running endpoint "
        "has read it, so restart them one by one"
    )
