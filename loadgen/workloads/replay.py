"""Uses a recorded now-playing log as the programme of the radio world.

Owns: the decision which rows of the log are changes of songs, and the choice of the part to play. Must never: change a
topic's text. Topics stay as the station sent them, even with mangled accents. If the protocol does not allow a song as
a topic, this module leaves its row out, counts it and reports it.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.topics import check_topic

from .nowplaying import entries, unit_hint
from .radio import Crowd, World, horizon_s, world
from .schedule import Change
from .settings import WorkloadError


class Row(NamedTuple):
    """One change of songs in the log. ``offset_ms``: milliseconds since the log's beginning."""

    offset_ms: int
    station: str
    topic: str


class Log(NamedTuple):
    """The contents of a log. ``skipped``: how many rows were left out, by reason."""

    rows: list[Row]
    skipped: Counter[str]


def read(path: Path) -> Log:
    """Read a whole log. Raises ``WorkloadError``, which names the file, the line and the reason."""
    skipped: Counter[str] = Counter()
    rows: dict[Row, None] = {}
    for entry in entries(path):
        if entry.song is None:
            skipped["Neither artist nor track"] += 1
            continue
        try:
            row = Row(round(entry.offset_s * 1000), entry.station, check_topic(entry.song))
        except ProtocolError as error:
            skipped[error.info] += 1
            continue
        if row in rows:  # the broker would treat both rows as the same message
            skipped["The same station, time and song again"] += 1
        rows[row] = None
    if not rows:
        reasons = "".join(f"; {count:,} rows: {reason}" for reason, count in skipped.most_common())
        raise WorkloadError(f"{path} has no row that can be played{reasons}")
    return Log(list(rows), skipped)


def replay(log: Log, crowd: Crowd, *, stations: int, start_s: float, speed: float, duration_s: float) -> World:
    """Play ``duration_s * speed`` seconds of the log from ``start_s`` on.

    Draw ``stations`` stations from those that change songs in that time, or take all if there are fewer.
    """
    if not (speed > 0 and math.isfinite(speed)):
        raise WorkloadError("--speed has to be above 0")
    if not (start_s >= 0 and stations >= 1 and duration_s >= 1):
        raise WorkloadError("--start-s has to be at least 0, --stations and --duration at least 1")
    end_s = start_s + horizon_s(crowd, duration_s) * speed
    part = [row for row in log.rows if start_s * 1000 <= row.offset_ms < end_s * 1000]
    if not part:
        first_s, last_s = (pick(row.offset_ms for row in log.rows) / 1000 for pick in (min, max))
        raise WorkloadError(
            f"the log has no change from second {start_s:.15g} to {end_s:.15g}: it begins at second {first_s:.15g} and "
            f"ends at {last_s:.15g}; see --start-s and --speed{unit_hint(first_s)}"
        )
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
