"""Compares hit rates with libcachesim's, if an environment with it is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ingeborg.bench.caching import log as logs
from ingeborg.bench.caching import simulator
from ingeborg.bench.caching.policies.belady import Belady
from ingeborg.bench.caching.policies.named import ONLINE, PLAIN
from ingeborg.bench.caching.policies.tinylfu import TinyLfu
from ingeborg.bench.caching.replay import requests
from ingeborg.bench.caching.requests import following, zipf
from ingeborg.bench.caching.simulator import Simulator
from ingeborg.bench.errors import BenchError
from ingeborg.broker.core.caches.lru import Lru
from tests import wants

from . import small

VARIABLE = "INGEBORG_TEST_LIBCACHESIM"

#: Answers as `simulator_program.py` does, for FIFO.
PROGRAM = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    inside, hits = [], 0
    for item in question["items"]:
        hits += item in inside
        if item not in inside:
            inside = [*inside, item][-question["entries_max"]:]
    print(json.dumps(hits), flush=True)
"""


def test_a_question_is_answered_by_the_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fifo.py"
    path.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(simulator, "PROGRAM", path)
    with Simulator(sys.executable) as asked:
        assert asked.hits("lru", 2, [1, 2, 1, 3, 1]) == 1
        assert asked.hits("lru", 3, [1, 2, 1, 3, 1]) == 2


def test_an_interpreter_that_is_none_or_has_no_libcachesim_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BenchError, match=r"nothing-here does not start .*libcachesim"):
        Simulator(str(tmp_path / "nothing-here"))
    fails = tmp_path / "fails.py"
    fails.write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.setattr(simulator, "PROGRAM", fails)
    with Simulator(sys.executable) as asked, pytest.raises(BenchError, match=r"the simulator has ended: .*libcachesim"):
        asked.hits("lru", 1, [1])


# With the real one


@pytest.fixture(scope="module")
def python() -> str:
    path = os.environ.get(VARIABLE)
    if not path:
        wants.skip("libcachesim", f"{VARIABLE} names an interpreter that has libcachesim (make simulator)")
    return path


#: Room of the synthetic streams; with less than a hundred entries libcachesim's W-TinyLFU has no window.
ITEMS = 10_000

STREAMS = ("0.8", "1.0", "1.2", pytest.param("plays", marks=pytest.mark.slow))


def items_of(stream: str) -> list[int]:
    if stream == "plays":
        return logs.songs(small.plays())
    return zipf(float(stream), 1, ITEMS, 50_000)


@pytest.mark.parametrize("stream", STREAMS)
def test_hit_rates_are_libcachesims(python: str, stream: str) -> None:
    """LRU, SIEVE and GDSF have exactly the same hits. W-TinyLFU's depend on the sketch: libcachesim's adds to all
    counters of a key, and so counts more requests for other keys. With half of our counters it is within half a point,
    with all counters not below that."""
    items = items_of(stream)
    with Simulator(python) as asked:
        for share in (0.01, 0.1):
            room = int((len(set(items)) if stream == "plays" else ITEMS) * share)
            theirs = {name: asked.hits(name, room, items) / len(items) for name in (*PLAIN, "belady")}
            ours = {name: requests(items, ONLINE[name](room, room), room).hits / len(items) for name in PLAIN}
            assert ours["lru"] == theirs["lru"]
            assert ours["sieve"] == theirs["sieve"]
            assert ours["gdsf"] == pytest.approx(theirs["gdsf"], abs=0.005)
            half = requests(items, TinyLfu(room, room, width=2), room).hits / len(items)
            assert half == pytest.approx(theirs["tinylfu"], abs=0.005)
            assert ours["tinylfu"] > theirs["tinylfu"] - 0.005
            best = requests(items, Belady(following(items)), room).hits / len(items)
            assert theirs["belady"] <= best < theirs["belady"] + 0.005  # ours need not admit a newcomer
            assert max(*ours.values(), *theirs.values()) <= best


def test_the_logs_hit_rates_are_those_that_were_found_before() -> None:
    """The room is 10 % of the songs."""
    items = items_of("plays")
    room = len(set(items)) // 10
    for name, rate in (("lru", 0.474), ("gdsf", 0.576), ("sieve", 0.591), ("tinylfu", 0.614)):
        assert requests(items, ONLINE[name](room, room), room).hits / len(items) == pytest.approx(rate, abs=0.01)
    assert requests(items, Belady(following(items)), room).hits / len(items) == pytest.approx(0.725, abs=0.01)
    assert requests(items, Lru(), len(items)).hits == len(items) - len(set(items))
