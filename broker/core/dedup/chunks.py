"""The form of the table of duplicates in a replica: keys with their remaining time, and further values for some keys.

Owns: that form. Must never: know a key's meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ormsgpack

from ingeborg.protocol.hashes import SLOTS

from .dedup import KEY_BYTES

#: Bytes of a packed time in seconds.
_TIME_BYTES = 4


def packed(keys: Sequence[bytes], times: Sequence[float], *more: dict[int, Any]) -> bytes:
    """Pack keys. ``times``: each key's remaining seconds. ``more``: further values for some keys, indexed by the
    positions of the keys."""
    rows = [b"".join(keys), struct.pack(f"<{len(times)}f", *times), *more]
    return ormsgpack.packb(rows, option=ormsgpack.OPT_NON_STR_KEYS)


def unpacked(data: bytes, more: int) -> tuple[list[bytes], tuple[float, ...], list[Any]]:
    """Unpack keys, seconds, and ``more`` maps of further values. Raise ``ValueError`` for malformed data, but do not
    check the further values."""
    try:
        rows = ormsgpack.unpackb(data, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError as error:
        raise ValueError(str(error)) from None
    if type(rows) is not list or len(rows) != 2 + more:
        raise ValueError(f"the chunk is not an array of {2 + more}")
    of_keys, times = rows[:2]
    if type(of_keys) is not bytes or type(times) is not bytes:
        raise ValueError("the chunk's keys and seconds are not byte strings")
    count, rest = divmod(len(of_keys), KEY_BYTES)
    if rest or len(times) != _TIME_BYTES * count or max(of_keys[::KEY_BYTES], default=0) >= SLOTS >> 8:
        raise ValueError(f"the chunk has malformed keys ({len(of_keys)} bytes) or times ({len(times)} bytes)")
    keys = [of_keys[start : start + KEY_BYTES] for start in range(0, len(of_keys), KEY_BYTES)]
    return keys, struct.unpack(f"<{count}f", times), rows[2:]
