"""A recorded log is read as it is, or one line gives the fault and its place."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pytest

from ingeborg.loadgen.workloads.nowplaying import entries
from ingeborg.loadgen.workloads.settings import WorkloadError

HEADER = "station,offset_s,artist,track,duration_s\n"


def log_file(folder: Path, content: str | bytes) -> Path:
    path = folder / "log.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(folder: Path, content: str | bytes, *, durations: bool = False) -> str:
    """Return the error about the log, without its path."""
    path = log_file(folder, content)
    with pytest.raises(WorkloadError) as caught:
        list(entries(path, durations=durations))
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.startswith(str(path))
    return said.removeprefix(str(path)).lstrip(", :")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_come_as_they_are_with_the_line_where_each_begins(tmp_path: Path, end: str) -> None:
    lines = ["\ufeff" + HEADER.strip(), "", 's,1,"A","two', 'lines",3', "", "", "t,2.5,r\u00c3gresser,B,4", ""]
    found = list(entries(log_file(tmp_path, end.join(lines)), durations=True))
    assert [(entry.line, entry.station, entry.offset_s, entry.duration_s) for entry in found] == [
        (3, "s", 1.0, 3.0),
        (7, "t", 2.5, 4.0),
    ]
    assert [entry.song for entry in found] == [f"A - two{end}lines", "r\u00c3gresser - B"]


def test_columns_that_nobody_asks_for_are_not_looked_at(tmp_path: Path) -> None:
    text = "x,track,artist,x,offset_s,station,duration_s\n1,T,A,2,3,S,long\n1,T,A,2,4,S\n1,T,A,2,5,S,,,\n"
    found = list(entries(log_file(tmp_path, text)))
    assert [(entry.station, entry.offset_s, entry.song) for entry in found] == [("S", at, "A - T") for at in (3, 4, 5)]


def test_packed_members_are_one_log(tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + "s,1,A,B,1\n").encode()) + gzip.compress(b"s,2,A,B,1\n")
    assert [entry.offset_s for entry in entries(log_file(tmp_path, packed))] == [1, 2]


#: Values that a column of seconds must not hold, for any reader.
NO_SECONDS = [
    *("nan", "inf", "-inf", "infinity", "1e400", "1e308", "1.8e305", "1e15", "9" * 40, "9" * 5000),
    *("-1", "-1e-9", "", " ", "x", "1,5", "00:01:02", "2026-01-01T00:00:00Z", "0x10"),
]


@pytest.mark.parametrize("column", ["offset_s", "duration_s"])
@pytest.mark.parametrize("text", NO_SECONDS, ids=range(len(NO_SECONDS)))
def test_what_is_no_number_of_seconds_is_refused_in_every_column(tmp_path: Path, column: str, text: str) -> None:
    numbers = {"offset_s": "1", "duration_s": "1", column: text}
    row = f's,"{numbers["offset_s"]}",A,B,"{numbers["duration_s"]}"\n'
    said = refusal(tmp_path, HEADER + "s,1,A,B,1\n" + row, durations=True)
    assert said.startswith(f"line 3: {column} is '{text[:150]}")
    assert "not a number of seconds from 0 to 9,000,000,000,000" in said
    assert len(said) < 400


@pytest.mark.parametrize(
    ("offset", "unit"), [("1700000000000000", "microseconds"), ("1700000000000000000", "nanoseconds"), ("1e30", None)]
)
def test_a_time_in_another_unit_is_recognised(tmp_path: Path, offset: str, unit: str | None) -> None:
    hint = f" (this looks like {unit} since 1970: offset_s is in seconds)" if unit else "9,000,000,000,000"
    assert refusal(tmp_path, HEADER + f"s,{offset},A,B,1\n").endswith(hint)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: it has no header line (station,offset_s,artist,track)"),
        ("\n\n", "is empty: it has no header line (station,offset_s,artist,track)"),
        (HEADER + "s,1,A\n", "line 2: 3 columns, but the header line has 5"),
        (HEADER + "\n\ns,1,A\n", "line 4: 3 columns, but the header line has 5"),
        (HEADER + 's,1,A,"B\nC",1\ns,1,A\n', "line 4: 3 columns, but the header line has 5"),
        (
            HEADER + "s,1,A,Baby, Please,1\n",
            "line 2: 6 columns, but the header line has 5; a text with a comma needs quotes",
        ),
        (HEADER + 's,1,A,"open,1\n', "line 2: a quote that opens here is never closed"),
        (HEADER + "s,1,A,B,1\n" * 7 + '"s,1', "line 9: a quote that opens here is never closed"),
        (HEADER + '\ns,1,A,"B" C,1\n', 'line 3: text follows a closing quote: within quotes, a quote is written as ""'),
        (
            HEADER + "s,1,A," + "x" * 200_000 + ",1\n",
            "line 2: a field that begins here has more than 131,072 characters: is a quote not closed?",
        ),
        (
            HEADER.encode() + b"s,1,\xff,b,1\n",
            "line 2: not UTF-8 at byte 45: the log has to be text in UTF-8, gzipped or plain",
        ),
        (
            b"\xff" + HEADER.encode(),
            "line 1: not UTF-8 at byte 0: the log has to be text in UTF-8, gzipped or plain",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_line_where_it_is(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    assert refusal(tmp_path, content) == said


@pytest.mark.parametrize("content", [HEADER.encode("utf-16"), HEADER.encode("utf-32"), bz2.compress(HEADER.encode())])
def test_other_encodings_and_packings_are_refused(tmp_path: Path, content: bytes) -> None:
    assert "not UTF-8 at byte" in refusal(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(HEADER.encode() * 100)[:-10],
        gzip.compress(HEADER.encode())[:5],
        gzip.compress(HEADER.encode()) + b"junk",
        gzip.compress(HEADER.encode())[:-8] + bytes(8),
        b"\x1f\x8b" + b"\x08" + bytes(50),
    ],
    ids=["short", "very short", "trailing", "checksum", "garbled"],
)
def test_a_packed_log_that_is_not_whole_is_refused(tmp_path: Path, content: bytes) -> None:
    assert refusal(tmp_path, content).startswith("is damaged or cut short; it does not unpack as gzip: ")


NAMES = "the first line has to name the columns: station,offset_s,artist,track"


@pytest.mark.parametrize(
    ("header", "missing", "hint"),
    [
        ("station,artist", "offset_s, track", NAMES),
        ("s1,0,A,B", "station, offset_s, artist, track", NAMES),
        ("station;offset_s;artist;track", "station, offset_s, artist, track", "semicolons separate its columns"),
        ("Station\tOffset_s\tArtist\tTrack", "station, offset_s, artist, track", "tabs separate its columns"),
        ("station|offset_s|artist|track", "station, offset_s, artist, track", "bars separate its columns"),
        ("Station,OFFSET_S,Artist,Track", "station, offset_s, artist, track", "in small letters and without blanks"),
        ("station, offset_s, artist, track", "offset_s, artist, track", "in small letters and without blanks"),
    ],
)
def test_a_header_that_lacks_columns_is_shown_with_a_hint(tmp_path: Path, header: str, missing: str, hint: str) -> None:
    said = refusal(tmp_path, f"\n{header}\n1,2,3,4\n")
    assert said.startswith(f"line 2: no column {missing} in the header line {header!r}: ")
    assert hint in said


def test_of_a_long_header_only_some_is_shown(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, "x" * 100_000 + "\n")) < 500


@pytest.mark.parametrize("column", ["station", "offset_s", "artist", "track", "duration_s"])
def test_a_column_that_is_there_twice_is_named(tmp_path: Path, column: str) -> None:
    content = HEADER.strip() + f",{column}\ns,1,A,B,1,2\n"
    assert refusal(tmp_path, content, durations=True) == f"line 1: the header line names {column} more than once"


@pytest.mark.parametrize("path", ["absent.csv", ".", "a\0b"])
def test_what_cannot_be_read_is_said(tmp_path: Path, path: str) -> None:
    with pytest.raises(WorkloadError, match=r"No such file|Is a directory|null byte"):
        list(entries(tmp_path / path))
