"""Reads a recorded now-playing log row by row. Each row has a song, its station and its time.

Owns: the format of such a log, and the errors about files in another format. Errors name the wrong line. Must never:
change a text. Texts stay as the station sent them, even with mangled accents.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ingeborg.protocol.options import shown

from .settings import LOG_S_MAX, WorkloadError

#: Columns that every log must have. The reader ignores other columns.
COLUMNS: Final = ("station", "offset_s", "artist", "track")
#: The largest unpacked log. One day of 951 stations takes 8 MB, and a hundred times as much is too much for one
#: process.
LOG_BYTES_MAX: Final = 1024 * 1024 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
_DELIMITERS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}
#: Each number has a unit. The present time since 1970 in that unit is greater than the number. The present time in
#: seconds is far less than all these numbers.
_UNITS: Final = ((1e17, "nanoseconds"), (1e14, "microseconds"), (1e11, "milliseconds"))


class Entry(NamedTuple):
    """A row of the log.

    ``line``: the number of the line in the file where the row begins, from 1. ``offset_s``: seconds since the log's
    beginning. ``duration_s``: the value of that column, or 0 if the caller of ``entries`` did not request it.
    """

    line: int
    station: str
    offset_s: float
    artist: str
    track: str
    duration_s: float

    @property
    def song(self) -> str | None:
        """Artist and track if the row has both, only the artist or only the track if the other is missing, or ``None``
        if both are missing."""
        return " - ".join(text for text in (self.artist, self.track) if text.strip()) or None


def entries(path: Path, *, durations: bool = False) -> Iterator[Entry]:
    """Yield all rows of the log, in the file's order. With ``durations``, the log also needs the column ``duration_s``.

    Raises ``WorkloadError``, which names the file, the line and the reason.
    """
    columns = (*COLUMNS, "duration_s") if durations else COLUMNS
    rows = _rows(path, _text(path))
    line, header = next(rows, (0, []))
    if not line:
        raise WorkloadError(f"{path} is empty: it has no header line ({','.join(columns)})")
    if wrong := _wrong_header(header, columns):
        raise WorkloadError(f"{path}, line {line}: {wrong}")
    places = [header.index(column) for column in columns]
    for line, cells in rows:
        where = f"{path}, line {line}"
        if len(cells) <= max(places):
            raise WorkloadError(f"{where}: {len(cells)} columns, but the header line has {len(header)}")
        if any(cells[len(header) :]):
            raise WorkloadError(
                f"{where}: {len(cells)} columns, but the header line has {len(header)}; a text with a comma needs "
                "quotes"
            )
        station, offset, artist, track, *rest = (cells[place] for place in places)
        duration_s = seconds(rest[0], f"{where}: duration_s") if rest else 0.0
        yield Entry(line, station, seconds(offset, f"{where}: offset_s"), artist, track, duration_s)


def seconds(text: str, where: str) -> float:
    """Convert a cell to seconds. Raises ``WorkloadError`` if the cell is invalid. The message begins with ``where``."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0 <= value <= LOG_S_MAX:  # NaN also fails
        return value
    raise WorkloadError(f"{where} is {shown(text)}, not a number of seconds from 0 to {LOG_S_MAX:,}{unit_hint(value)}")


def unit_hint(offset_s: float) -> str:
    """Return a hint if the offset looks like the present time in another unit, and an empty text otherwise."""
    for least, unit in _UNITS:
        if least <= offset_s < least * 1e3:
            return f" (this looks like {unit} since 1970: offset_s is in seconds)"
    return ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LOG_BYTES_MAX + 1)
        if data.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(LOG_BYTES_MAX + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path} is damaged or cut short; it does not unpack as gzip: {error}") from None
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        raise WorkloadError(f"{shown(str(path))[1:-1]}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LOG_BYTES_MAX:
        raise WorkloadError(f"{path}: more than {LOG_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = len((data[: error.start] + b".").splitlines())
        raise WorkloadError(
            f"{path}, line {line}: not UTF-8 at byte {error.start}: the log has to be text in UTF-8, gzipped or plain"
        ) from None


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, with the number of the line where it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise WorkloadError(f"{path}, line {line}: {_said(error)}") from None
        if cells:
            yield line, cells


def _said(error: csv.Error) -> str:
    """Return the reason in our own words, because the library's messages do not say what to do."""
    text = str(error)
    if "unexpected end" in text:
        return "a quote that opens here is never closed"
    if "field larger" in text:
        return f"a field that begins here has more than {csv.field_size_limit():,} characters: is a quote not closed?"
    if "expected after" in text:
        return 'text follows a closing quote: within quotes, a quote is written as ""'
    return text


def _wrong_header(header: list[str], columns: tuple[str, ...]) -> str | None:
    if twice := [column for column in columns if header.count(column) > 1]:
        return f"the header line names {', '.join(twice)} more than once"
    missing = [column for column in columns if column not in header]
    if not missing:
        return None
    found = ",".join(header)
    hint = f"the first line has to name the columns: {','.join(columns)}"
    for delimiter, name in _DELIMITERS.items():
        if _named(found.split(delimiter), columns):
            hint = f"{name} separate its columns: use commas instead"
    if _named(header, columns):
        hint = "names are written in small letters and without blanks"
    return f"no column {', '.join(missing)} in the header line {shown(found)}: {hint}"


def _named(header: list[str], columns: tuple[str, ...]) -> bool:
    """Return whether the header has all columns when capitals, blanks and quotes are ignored."""
    return set(columns) <= {name.strip(' "').lower() for name in header}
