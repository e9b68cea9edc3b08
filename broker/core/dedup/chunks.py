"""The form in which keys of the table of duplicates are replicated: with what is left of their time, and with more of
some.

Owns: that form. Must never: know what a key stands for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ormsgpack

from ingeborg.protocol.hashes import SLOTS

from .dedup import KEY_BYTES

#: Of a number of seconds.
_TIME_BYTES = 4


def packed(keys: Sequence[int], times: Sequence[float], *more: dict[int, Any]) -> bytes:
    """``times``: seconds left, of each key. ``more``: by the places of some of the keys."""
    rows = [b"".join([key.to_bytes(KEY_BYTES) for key in keys]), struct.pack(f"<{len(times)}f", *times), *more]
    return ormsgpack.packb(rows, option=ormsgpack.OPT_NON_STR_KEYS)


def unpacked(data: bytes, more: int) -> tuple[list[int], tuple[float, ...], list[Any]]:
    """Keys, seconds, and ``more`` other values, which nobody has checked. Raises ``ValueError``."""
    try:
        rows = ormsgpack.unpackb(data, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError as error:
        raise ValueError(str(error)) from None
    if type(rows) is not list or len(rows) != 2 + more:
        raise ValueError(f"no array of {2 + more}")
    of_keys, times = rows[:2]
    if type(of_keys) is not bytes or type(times) is not bytes:
        raise ValueError("no keys and seconds")
    count, rest = divmod(len(of_keys), KEY_BYTES)
    if rest or len(times) != _TIME_BYTES * count or max(of_keys[::KEY_BYTES], default=0) >= SLOTS >> 8:
        raise ValueError(f"{len(of_keys)} bytes of keys, {len(times)} of seconds")
    keys = [int.from_bytes(of_keys[start : start + KEY_BYTES]) for start in range(0, len(of_keys), KEY_BYTES)]
    return keys, struct.unpack(f"<{count}f", times), rows[2:]
