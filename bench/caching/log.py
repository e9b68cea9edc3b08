"""A recorded now-playing log: what was played where and when.

Owns: reading the file (CSV, gzip or not, with the columns station, offset_s, artist, track, duration_s). Must never:
change a text; a song is what the station said, mangled accents included.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from ingeborg.bench.errors import BenchError

#: Unpacked. A day of 951 stations has 8 MB; what is a hundred times that was not meant for one process.
LOG_BYTES_MAX: Final = 1024 * 1024 * 1024

_GZIP_MAGIC: Final = b"\x1f\x8b"
_COLUMNS: Final = ("station", "offset_s", "artist", "track", "duration_s")


class Play(NamedTuple):
    """A row. ``at_s``: since the log's beginning; ``size``: bytes of the row as the payload of a message, in JSON."""

    at_s: float
    song: str
    size: int


def read(path: Path) -> list[Play]:
    """All plays, by their times. Raises BenchError, which names the file and the reason."""
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(LOG_BYTES_MAX + 1)
        if len(data) > LOG_BYTES_MAX:
            raise BenchError(f"{path}: more than {LOG_BYTES_MAX} bytes")
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        missing = [column for column in _COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise BenchError(f"{path}: no column {', '.join(missing)} in its header line")
        plays = [_play(row) for row in rows]
    except (OSError, EOFError, zlib.error, csv.Error, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BenchError(
            f"{path}: {why}: it has to be CSV with the columns {', '.join(_COLUMNS)}, gzip or not"
        ) from error
    if not plays:
        raise BenchError(f"{path}: no row but its header line")
    return sorted(plays, key=lambda play: play.at_s)


def _play(row: dict[str, str]) -> Play:
    at_s = float(row["offset_s"])
    payload = {name: row[name] for name in ("station", "artist", "track")} | {"duration_s": float(row["duration_s"])}
    return Play(at_s, f"{row['artist']} - {row['track']}", len(orjson.dumps(payload)))


def songs(plays: Sequence[Play]) -> list[int]:
    """The song of each play, as a number: songs are numbered as they first come."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(play.song, len(numbers)) for play in plays]
