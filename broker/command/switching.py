"""`ingeborg features`: which features of a store are switched on, and switching one off.

Owns: what is said of them. Must never: switch one on (endpoints do, who know whether all of them are able to), make a
store, or write to one that is to be looked at only.
"""

from __future__ import annotations

import sys
from typing import TextIO

import orjson

from ..store.base import Store, StoreError
from ..store.features import FEATURES, MEANING

OK, FAILED, USAGE = 0, 1, 2


async def run(
    reading: Store,
    writing: Store,
    off: str | None = None,
    *,
    as_json: bool = False,
    out: TextIO | None = None,
    told: TextIO | None = None,
) -> int:
    """The command; ``off``: the feature to switch off. Returns the exit code.

    ``reading``, ``writing``: the store, made for reading only and for writing, and not opened yet.
    """
    out, told = out or sys.stdout, told or sys.stderr
    if off is not None and off not in FEATURES:
        print(
            f"ingeborg features: this version knows no feature {off!r}, but {', '.join(sorted(FEATURES))}. "
            "Switch it off with a version that knows it",
            file=told,
        )
        return USAGE
    try:
        # For reading first: opened for writing, a store that is not there would be made.
        on = await _with(reading, None)
        was_on = off in on
        if was_on:
            on = await _with(writing, off)
    except StoreError as error:
        print(f"ingeborg features: {error}", file=told)
        return FAILED
    if as_json:
        print(orjson.dumps({"on": sorted(on), "known": sorted(FEATURES)}).decode(), file=out)
    else:
        for name in sorted(FEATURES):
            print(f"{name}: {'on' if name in on else 'off'} ({MEANING[name]})", file=out)
    if off is not None:
        print(f"ingeborg features: {_outcome(off, was_on, on)}", file=told)
    return FAILED if off in on else OK


async def _with(store: Store, off: str | None) -> frozenset[str]:
    """Open the store, switch the feature off if one is given, and close it; what is on then."""
    try:
        await store.open()
        if off is not None:
            await store.switch(off, False)
        return await store.features()
    finally:
        await store.close()


def _outcome(off: str, was_on: bool, on: frozenset[str]) -> str:
    if off in on:
        return f"{off} has been switched on again meanwhile, by an endpoint"
    if not was_on:
        return f"{off} was off already"
    left = f"; {', '.join(sorted(on))} is still on, and versions from before features refuse the store" if on else ""
    return (
        f"{off} has been switched off. Endpoints that run notice it within seconds; only then start one of a version "
        f"that does not know {off}{left}"
    )
