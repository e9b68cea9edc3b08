"""A recorded now-playing log: which song played where and when.

Owns: how a play of the log becomes a record for a cache. Must never: parse the file, because the only reader is in
`loadgen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from ingeborg.bench.errors import BenchError
from ingeborg.loadgen.workloads.nowplaying import entries
from ingeborg.loadgen.workloads.settings import WorkloadError

_PAYLOAD = ("station", "artist", "track", "duration_s")


class Play(NamedTuple):
    """A row of the log. ``at_s`` is the number of seconds since the log's beginning. ``size`` is the number of bytes of
    the row as the JSON payload of a message."""

    at_s: float
    song: str
    size: int


def read(path: Path) -> list[Play]:
    """Read all plays, in the order of their times. Raises BenchError, which names the file, the line and the reason."""
    try:
        plays = [
            Play(entry.offset_s, entry.song, len(orjson.dumps({name: getattr(entry, name) for name in _PAYLOAD})))
            for entry in entries(path, durations=True)
            if entry.song is not None
        ]
    except WorkloadError as error:
        raise BenchError(str(error)) from error
    if not plays:
        raise BenchError(f"{path} has no row with an artist or a track")
    return sorted(plays, key=lambda play: play.at_s)


def songs(plays: Sequence[Play]) -> list[int]:
    """Return the song of each play as a number, in the order of first plays."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(play.song, len(numbers)) for play in plays]
