"""Reading the log returns its rows, or names its fault."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ingeborg.bench.caching import log as logs
from ingeborg.bench.errors import BenchError

from . import small

HEADER = "station,offset_s,artist,track,duration_s\n"


def written(folder: Path, text: str, *, packed: bool = False) -> Path:
    path = folder / "log.csv"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_plays_come_by_their_times_with_the_bytes_of_their_payloads(tmp_path: Path, packed: bool) -> None:
    path = written(tmp_path, HEADER + 'b,7,"Fünf, sechs",t,1\na,2.5,A,t,200\nc,9,A,t,0\n', packed=packed)
    plays = logs.read(path)
    assert [(play.at_s, play.song) for play in plays] == [(2.5, "A - t"), (7.0, "Fünf, sechs - t"), (9.0, "A - t")]
    assert plays[0].size == len('{"station":"a","artist":"A","track":"t","duration_s":200.0}')
    assert logs.songs(plays) == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("station,offset_s,artist,track\n", "no column duration_s"),
        (HEADER, "no row with an artist or a track"),
        (HEADER + "a,1,,,1\n", "no row with an artist or a track"),
        *((HEADER + f"a,{number},A,t,1\n", "line 2: offset_s is") for number in ("x", "nan", "inf", "-1", "1e400")),
        *((HEADER + f"a,1,A,t,{number}\n", "line 2: duration_s is") for number in ("x", "nan", "inf", "-1", "1e400")),
        (HEADER + "a,1\n", "line 2: 2 columns"),
    ],
)
def test_a_log_that_is_none_is_said_to_be(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        logs.read(written(tmp_path, text))


def test_a_log_that_is_not_there_or_cut_short_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="No such file"):
        logs.read(tmp_path / "nothing")
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    with pytest.raises(BenchError, match=r"cut\.gz"):
        logs.read(path)


def test_the_real_log_is_read_whole() -> None:
    plays = small.plays()
    assert (len(plays), len({play.song for play in plays})) == (134_943, 16_042)
