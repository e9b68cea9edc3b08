"""`ingeborg.bench.budgets.slots` in small: that it works, its figures from the processes' reports, its judgements."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench.budgets import slots
from ingeborg.bench.budgets.pages import HEAD, Side, SideLost, digest, page
from ingeborg.bench.budgets.steady import Sent
from ingeborg.bench.errors import BenchError
from ingeborg.bench.micro.paged.state import Pages
from ingeborg.protocol.hashes import SLOTS

MS = 1_000_000


# -- pages


@pytest.mark.parametrize("size", [0, HEAD.size, 100, 4096])
def test_a_page_says_what_it_is_and_no_two_are_alike(size: int) -> None:
    made = page(7, 3, 2, size)
    assert len(made) == max(size, HEAD.size)
    assert HEAD.unpack_from(made) == (7, 3, 2)
    others = {page(8, 3, 2, size), page(7, 4, 2, size), page(7, 3, 3, size)}
    assert len(others | {made}) == 4
    assert len({digest([made, other]) for other in others} | {digest([]), digest([made])}) == 5


def test_what_is_packed_is_taken_in_as_it_was() -> None:
    here, there = Pages(), Pages()
    for slot in (1, 2, 2_000, 4_095):
        for number in range(20):
            here.put(slot, number, page(slot, number, 1, 50 + number))
    there.put(2, 5, b"old")
    there.put(2, 77, b"of long ago")
    keys = [key for keys in here.departing(frozenset({2, 3, 4_095})) for key in keys]
    assert sorted(keys) == [(slot, number) for slot in (2, 4_095) for number in range(20)]
    assert there.absorb(here.pack([*keys, (2, 77)])) == 41
    assert there.of == {slot: here.of[slot] for slot in (2, 4_095)}
    there.gone([2])
    assert set(there.of) == {4_095}


@pytest.mark.parametrize("cut", [1, 19, 21, 29])
def test_what_was_packed_otherwise_changes_nothing(cut: int) -> None:
    here, there = Pages(), Pages()
    for number in range(2):
        here.put(1, number, b"x" * 20)
    with pytest.raises(ValueError, match=r"of the 20 bytes of a page|requires a buffer"):
        there.absorb(here.pack([(1, 0), (1, 1)])[:-cut])
    assert there.of == {}


async def test_a_process_without_a_side_channel_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with pytest.raises(SideLost, match=r"no side channel within 0\.1 s"):
        await Side.opened(tmp_path / "side", 0.1)


async def test_who_does_not_answer_in_time_or_at_all_is_lost(tmp_path: Path) -> None:
    first = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (b'{"number":1}', b'{"failed":"so"}', b'{"number":3}'):
            await reader.readline()
            await first.wait()
            writer.write(answer + b"\n")
        await reader.readline()
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "side"):
        side = await Side.opened(tmp_path / "side", 10.0)
        with pytest.raises(SideLost, match=r"one: no answer within 0\.01 s"):
            await side.ask("one", within_s=0.01)
        first.set()
        with pytest.raises(BenchError, match="two: so"):
            await side.ask("two")
        assert await side.ask("three") == {"number": 3}
        for _ in range(2):
            with pytest.raises(SideLost, match="the process has ended"):
                await side.ask("four")
        await side.close()


# -- figures from the processes' reports


def told(**fields: Any) -> slots.Json:
    return {"told": [], "let_go": [], "copies": [], "turns": [], "paused": []} | fields


def test_a_slot_is_without_a_home_until_the_next_one_acts() -> None:
    former = told(
        copies=[(5 * MS, 1), (30 * MS, 0), (105 * MS, 1)], let_go=[(20 * MS, [1, 2]), (120 * MS, [3]), (220 * MS, [4])]
    )
    following = told(
        told=[
            (1 * MS, "arrived", [1, 2, 3], True),
            (25 * MS, "arrived", [1], True),
            (28 * MS, "arrived", [2], False),
            (30 * MS, "gone", [9], True),
            (150 * MS, "arrived", [3], True),
        ]
    )
    one = slots.move([former, following], 2 * MS, 100 * MS)
    assert one == slots.Move(5 * MS, 28 * MS, frozenset({1, 2}), 8.0, 1, 0)
    assert one.took_s == pytest.approx(0.023)
    two = slots.move([former, following], 100 * MS, 200 * MS)
    assert two == slots.Move(105 * MS, 150 * MS, frozenset({3}), 30.0, 0, 0)
    lost = slots.move([former, following], 200 * MS, 300 * MS)
    assert (lost.slots, lost.without_ms, lost.lost) == (frozenset({4}), math.inf, 1)


def test_a_turn_is_long_by_itself_only_as_far_as_it_had_the_cpu() -> None:
    turns = [(1 * MS, 80_000, 80_000), (20 * MS, 50_000, 4_000), (30 * MS, 6_000, 8_000), (99 * MS, 9_000, 9_000)]
    assert slots.stall(told(turns=turns), 10 * MS, 90 * MS) == slots.Stall(6.0, 50.0)
    assert slots.stall(told(), 0, MS) == slots.Stall(0.0, 0.0)


def sent(*each_ms: float, slot: int = 1) -> list[Sent]:
    return [Sent(0, slot, int(ms * MS)) for ms in each_ms]


LATE = slots.Move(0, 31_000 * MS, frozenset({1}), 501.0, 0, 0)
IN_PART = slots.Move(0, 1, frozenset(), 0.0, 1, 0)


def found_pages(**fields: Any) -> slots.Pages:
    one = slots.Move(0, 2_000 * MS, frozenset({1}), 500.0, 0, 0)
    usual: dict[str, Any] = {"before": sent(1.0), "joining": sent(500.0), "leaving": sent(400.0)}
    usual |= {"going": sent(900.0), "moves": (one, one)}
    usual |= {"moved_mib": (10.0, 20.0), "refused": Counter(), "unanswered": 0, "resent": 1, "unheard": 0}
    usual |= {"paused_ms": [], "pages": 5, "changes": 7, "wrong_slots": 0, "waited_ms": 9.0}
    return slots.Pages(**(usual | fields))


def test_all_is_met_at_the_bounds() -> None:
    checks = slots.checks_of_pages(found_pages())
    assert [check.met for check in checks] == [True] * 9
    assert checks[0].measured == "500 ms at most, of 1 slots"
    assert checks[1].measured == (
        "p99 500.0 ms, max 500 ms; to other slots p99 0.0 ms, max 0 ms; before the move p99 1.0 ms, max 1 ms"
    )
    assert checks[4].measured == (
        "p99 400.0 ms, max 400 ms; to other slots p99 0.0 ms, max 0 ms; before the move p99 1.0 ms, max 1 ms; "
        "for publishers that have to move p99 900.0 ms, max 900 ms"
    )
    assert checks[2].measured == "10 MiB in 2.0 s, 5 MiB/s"


@pytest.mark.parametrize(
    ("fields", "missed"),
    [
        ({"moves": (LATE, IN_PART)}, {0, 2, 4, 8}),
        ({"joining": sent(501.0), "leaving": sent(1.0, slot=2)}, {1, 4}),
        ({"refused": Counter({"busy": 1})}, {6}),
        ({"unanswered": 1}, {6}),
        ({"unheard": 1}, {6}),
        ({"paused_ms": [1.0]}, {7}),
        ({"wrong_slots": 1}, {8}),
    ],
)
def test_each_goal_can_be_missed(fields: dict[str, Any], missed: set[int]) -> None:
    checks = slots.checks_of_pages(found_pages(**fields))
    assert {number for number, check in enumerate(checks) if not check.met} == missed


def handed(keys: int, took_ms: float, own_ms: float, extra_ms: float) -> slots.Handed:
    moved = slots.Move(0, int(took_ms * MS), frozenset({1}), 5.0, 0, 0)
    stalls = {"a": (slots.Stall(1.0, 99.0), slots.Stall(own_ms, 99.0))}
    return slots.Handed(keys, moved, stalls, sent(2.0), sent(2.0 + extra_ms), sent(100.0))


def test_duplicates_have_to_be_there_in_time_and_stall_nobody() -> None:
    checks = slots.checks_of_duplicates((handed(5, 2_000, 10.0, 10.0), handed(0, 2_001, 10.1, 10.1)))
    assert [check.met for check in checks] == [True] * 3 + [False] * 3
    assert checks[1].measured == "10.0 ms (with other programs 99.0 ms; before 1.0 and 99.0 ms)"
    assert checks[2].measured == (
        "+10.0 ms (p99 12.0 ms, max 12 ms; before p99 2.0 ms, max 2 ms; to slots that move p99 100.0 ms, max 100 ms)"
    )


# -- in small


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SETTLE_S", 0.3)
    monkeypatch.setattr(slots, "AFTER_S", 0.5)


@pytest.mark.cluster
@pytest.mark.usefixtures("short")
async def test_pages_move_to_one_that_joins_and_from_one_that_leaves() -> None:
    found = await slots.measure_pages(16, 0.5)
    assert (found.pages, found.wrong_slots, found.unanswered, found.unheard) == (SLOTS, 0, 0, 0)
    assert found.refused == {}
    assert found.changes > 50
    for one, mib in zip(found.moves, found.moved_mib, strict=True):
        assert 1_000 < len(one.slots) < 2_000
        assert (one.in_part, one.lost) == (0, 0)
        assert 0 < one.without_ms < math.inf
        assert mib >= len(one.slots) * slots.PAGE_BYTES / (1 << 20)
    assert found.before
    assert {message.slot for message in found.joining} & found.moves[0].slots
    assert {message.slot for message in found.leaving} & found.moves[1].slots
    assert found.going
    assert len(slots.checks_of_pages(found)) == 9


@pytest.mark.cluster
@pytest.mark.usefixtures("short")
async def test_duplicates_are_handed_over_to_one_that_joins_and_by_one_that_leaves() -> None:
    joined, left = await slots.measure_duplicates(4_000, 0.5)
    assert 1_500 < joined.keys < 2_500 + 1_000  # including a probe's messages
    assert left.keys >= 4_000
    for one in (joined, left):
        assert one.before
        assert one.staying
        assert one.move.in_part == one.move.lost == 0
        assert set(one.stalls) == {"a", "b"}
    assert len(slots.checks_of_duplicates((joined, left))) == 8
