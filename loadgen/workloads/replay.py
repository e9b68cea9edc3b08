"""A recorded now-playing log as the radio world's programme.

Owns: reading the log (CSV, gzip or not: station, offset_s, artist, track, duration_s) and picking the part to play.
Must never: change a topic's text; it is sent as the station sent it, mangled accents included. What the protocol does
not allow as a topic is left out, counted, and said.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.topics import check_topic

from .radio import Crowd, World, horizon_s, world
from .schedule import Change
from .settings import WorkloadError

#: Columns that are needed; others are not looked at.
_COLUMNS = ("station", "offset_s", "artist", "track")
#: Unpacked. A day of 951 stations has 8 MB; what is a hundred times that was not meant for one process.
LOG_BYTES_MAX = 1024 * 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


class Row(NamedTuple):
    """One change as the log has it. ``offset_ms``: since the log's beginning."""

    offset_ms: int
    station: str
    topic: str


class Log(NamedTuple):
    """A log that was read. ``skipped``: rows left out, by reason."""

    rows: list[Row]
    skipped: Counter[str]


def read(path: Path) -> Log:
    """Read a whole log. ``WorkloadError`` names file, line and reason."""
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(LOG_BYTES_MAX + 1)
        if len(data) > LOG_BYTES_MAX:
            raise WorkloadError(f"{path}: more than {LOG_BYTES_MAX} bytes")
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise WorkloadError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    skipped: Counter[str] = Counter()
    return Log(list(_rows(path, text, skipped)), skipped)


def _rows(path: Path, text: str, skipped: Counter[str]) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    seen: set[Row] = set()
    try:
        missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise WorkloadError(f"{path}: no column {', '.join(missing)} in its header line")
        for record in reader:
            where = f"{path}, line {reader.line_num}"
            if any(record[column] is None for column in _COLUMNS):
                raise WorkloadError(f"{where}: fewer columns than the header has")
            try:
                offset_s = float(record["offset_s"])
            except ValueError:
                offset_s = math.nan
            if not 0 <= offset_s < math.inf:
                raise WorkloadError(f"{where}: offset_s is {record['offset_s']!r}, not a number of seconds from 0 on")
            try:
                topic = check_topic(f"{record['artist']} - {record['track']}")
            except ProtocolError as error:
                skipped[error.info] += 1
                continue
            row = Row(round(offset_s * 1000), record["station"], topic)
            if row in seen:  # to the broker it would be the same message
                skipped["The same station, time and song again"] += 1
                continue
            seen.add(row)
            yield row
    except csv.Error as error:
        raise WorkloadError(f"{path}, near line {reader.line_num}: {error}") from None


def replay(log: Log, crowd: Crowd, *, stations: int, start_s: float, speed: float, duration_s: float) -> World:
    """Play ``duration_s * speed`` seconds of the log from ``start_s`` on.

    ``stations`` are drawn from those that change in that time (all of them where there are fewer).
    """
    if not (speed > 0 and math.isfinite(speed)):
        raise WorkloadError("--speed has to be above 0")
    if not (start_s >= 0 and stations >= 1 and duration_s >= 1):
        raise WorkloadError("--start-s has to be at least 0, --stations and --duration at least 1")
    end_s = start_s + horizon_s(crowd, duration_s) * speed
    part = [row for row in log.rows if start_s * 1000 <= row.offset_ms < end_s * 1000]
    if not part:
        raise WorkloadError(f"the log has no change from second {start_s:g} to {end_s:g}")
    names = sorted({row.station for row in part})
    chosen = sorted(Random(f"stations {crowd.seed}").sample(names, min(stations, len(names))))
    wanted = frozenset(chosen)
    changes = [
        Change((row.offset_ms / 1000 - start_s) / speed, row.station, row.topic, row.offset_ms)
        for row in part
        if row.station in wanted
    ]
    songs = list(dict.fromkeys(row.topic for row in log.rows))
    return world(changes, chosen, songs, crowd)
