"""How subscriptions end in the embedded store: the steps of ``end``, events between them, and cleaning up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ingeborg.broker.store.base import (
    ENDED_BYTES_MAX,
    ENDED_MAX,
    Ended,
    Location,
    StoreUnavailable,
    Subscribe,
    Subscription,
    Term,
)
from ingeborg.broker.store.embedded import operations as soft_operations
from ingeborg.broker.store.embedded import slices
from ingeborg.broker.store.embedded.expiry import EndedItem, EndedRecord, pack_ended, unpack_ended
from ingeborg.broker.store.embedded.layout import FRAME_ITEMS, Lane, prepare
from ingeborg.broker.store.embedded.operations import operations
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol.hashes import SLOTS
from tests.store.asked import listen, subscribers

from .test_embedded import MAP_BYTES, opened, start
from .test_embedded import end as kill

AWAY = Term(True, 0.0)
LATER = Term(False, 4e9)
PIZZA = '{"food":["pizza"]}'

Step = Callable[[], Awaitable[Any]]


async def made(
    store: EmbeddedStore, client: str, topics: list[str], text: str | None = None, term: Term = LATER
) -> list[Subscription]:
    """Subscribe with a term, and return what the store then has."""
    await store.subscribe([Subscribe(client, topics, text, term)])
    records = await store.subscriptions_of([(client, topic) for topic in topics])
    return [each for record in records for each in record if each.filter == text]


async def all_expiring(store: EmbeddedStore) -> list[Subscription]:
    """Return all subscriptions with a term."""
    found: list[Subscription] = []
    for slot in await store.expiring_slots() or []:
        page, cursor = await store.expiring(slot, None, 100_000)
        assert cursor is None
        found += page
    return found


def between(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, operation: str, then: Step) -> None:
    """Run something else before the store next sends the operation to a writer."""
    for name in ("_soft", "_durable"):
        call = getattr(store._expiry, name)

        async def interrupted(asked: str, frames: Any, call: Any = call) -> Any:
            nonlocal then
            if asked == operation:
                step, then = then, nothing
                await step()
            return await call(asked, frames)

        monkeypatch.setattr(store._expiry, name, interrupted)


async def nothing() -> None:
    """Do nothing."""


# --- the steps of end

DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from ingeborg.broker.store.base import Subscribe, Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
directory, last = Path(sys.argv[1]), sys.argv[2]
async def run():
    store, other = EmbeddedStore(directory, timeout_s=60.0), EmbeddedStore(directory, timeout_s=60.0)
    await store.open()
    await other.open()
    mine = [each for record in await store.subscriptions_of([("ann", "rock"), ("ann", "jazz")]) for each in record]
    soft, durable = store._expiry._soft, store._expiry._durable
    def dying(call):
        async def called(operation, frames):
            if operation == last:
                os.kill(os.getpid(), signal.SIGKILL)
            if operation == "has_ended":
                await other.subscribe([Subscribe("ann", ["jazz"], None, Term(False, 4e9))])
            return await call(operation, frames)
        return called
    store._expiry._soft, store._expiry._durable = dying(soft), dying(durable)
    await store.end([(mine, None, True)])
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(run())
"""


@pytest.mark.parametrize("last", ["has_ended", "take_out", "has_not_ended", "none"])
async def test_kill_9_between_two_steps_loses_none_without_a_word(tmp_path: Path, last: str) -> None:
    """One subscription ends. The client renews the other before the first step, which does not see it."""
    async with opened(tmp_path) as store:
        before = await made(store, "ann", ["rock", "jazz"])
    process = start("-c", DYING, str(tmp_path), last)
    assert process.wait(60) == -signal.SIGKILL
    kill(process)
    async with opened(tmp_path) as store:
        left = {each.topic for each in await all_expiring(store)}
        (said,) = await store.ended(["ann"])
        named = {topic for topic, _ in said.subscriptions} if said else set()
        assert left | named == {"rock", "jazz"}
        assert (left, named) == {
            "has_ended": ({"rock", "jazz"}, set()),
            "take_out": ({"rock", "jazz"}, {"rock", "jazz"}),
            "has_not_ended": ({"jazz"}, {"rock", "jazz"}),
            "none": ({"jazz"}, {"rock"}),
        }[last]
        # The next expiry walk continues from there, with any stamps.
        mine = await all_expiring(store)
        assert await store.end([([*before, *mine], None, True)]) == [
            [each for each in [*before, *mine] if each in mine or each.topic == "rock"]
        ]
        (said,) = await store.ended(["ann"])
        assert said is not None
        assert (sorted(said.subscriptions), said.total) == ([("jazz", None), ("rock", None)], 2)


async def test_what_is_subscribed_to_between_the_steps_stays_and_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for number, (step, term) in enumerate(product(("has_ended", "take_out"), (None, AWAY))):
            client = f"{number}"
            mine = await made(store, client, ["rock", "jazz"], PIZZA)
            again = partial(other.subscribe, [Subscribe(client, ["rock"], PIZZA, term)])
            with monkeypatch.context() as patched:
                between(store, patched, step, again)
                assert await store.end([(mine, None, True)]) == [[mine[1]]]
            assert await store.ended([client]) == [Ended([("jazz", PIZZA)], 1)]
            assert await store.subscribed(client, ["rock", "jazz"]) == [True, False]


@pytest.mark.parametrize("term", [None, LATER, AWAY])
async def test_what_is_subscribed_to_before_the_soft_step_stays_and_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: Term | None
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock", "jazz"], PIZZA, AWAY)
        between(store, monkeypatch, "end", partial(other.subscribe, [Subscribe("ann", ["rock"], PIZZA, term)]))
        assert await store.end([(mine, None, True)]) == [[mine[1]]]
        assert await store.ended(["ann"]) == [Ended([("jazz", PIZZA)], 1)]
        assert await store.subscribed("ann", ["rock", "jazz"]) == [True, False]


async def test_what_is_in_both_environments_by_the_soft_step_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock"], PIZZA, AWAY)

        async def failing(operation: str, frames: Any) -> Any:
            raise StoreUnavailable("played")

        async def half() -> None:
            with pytest.raises(StoreUnavailable):
                await other.subscribe([Subscribe("ann", ["rock"], PIZZA)])

        monkeypatch.setattr(other._subscriptions._writers[Lane.SOFT], "call", failing)
        between(store, monkeypatch, "end", half)
        assert await store.end([(mine, None, True)]) == [[]]
        assert await store.ended(["ann"]) == [None]
        assert await store.subscribed("ann", ["rock"]) == [True]


async def test_a_late_correction_leaves_the_name_of_a_later_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ends run at once: the first finds another stamp, and the second removes that one before the first reports
    it."""
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock"])
        later: list[Subscription] = []

        async def renewed() -> None:
            later.extend(await made(other, "ann", ["rock"]))

        async def ended() -> None:
            assert await other.end([(later, None, True)]) == [later]

        between(store, monkeypatch, "take_out", renewed)
        between(store, monkeypatch, "has_not_ended", ended)
        assert await store.end([(mine, None, True)]) == [[]]
        assert await other.ended(["ann"]) == [Ended([("rock", None)], 1)]
        assert await subscribers(store, ["rock"]) == [set()]


async def test_a_late_first_step_leaves_the_name_of_a_later_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock"])

        async def renewed() -> None:
            later = await made(other, "ann", ["rock"])
            between(other, monkeypatch, "take_out", going_on.wait)  # named, but not removed yet
            waiting.append(asyncio.create_task(other.end([(later, None, True)])))
            while await other.ended(["ann"]) == [None]:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)

        going_on, waiting = asyncio.Event(), list["asyncio.Task[Any]"]()
        between(store, monkeypatch, "has_ended", renewed)
        assert await store.end([(mine, None, True)]) == [[]]
        going_on.set()
        (found,) = await asyncio.gather(*waiting)
        assert len(found[0]) == 1
        assert await other.ended(["ann"]) == [Ended([("rock", None)], 1)]


async def test_what_ends_before_its_subscribe_has_returned_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock"])
        await store.end([(mine, None, True)])

        async def ended() -> None:
            later = await all_expiring(other)
            assert await other.end([(later, None, True)]) == [later]

        between(store, monkeypatch, "subscribed", ended)
        await store.subscribe([Subscribe("ann", ["rock"], None, AWAY)])
        assert await store.ended(["ann"]) == [Ended([("rock", None)], 1)]
        assert await subscribers(store, ["rock"]) == [set()]


async def test_a_step_that_fails_leaves_a_name_too_many_and_the_next_end_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        mine = await made(store, "ann", ["rock"])

        async def failing() -> None:
            raise StoreUnavailable("played")

        with monkeypatch.context() as patched:
            between(store, patched, "take_out", failing)
            with pytest.raises(StoreUnavailable):
                await store.end([(mine, None, True)])
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert await store.ended(["ann"]) == [Ended([("rock", None)], 1)]
        assert await store.end([(mine, None, True)]) == [mine]
        assert await store.ended(["ann"]) == [Ended([("rock", None)], 1)]


# --- and a listen


async def test_what_ends_before_the_location_is_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine, call = await made(store, "ann", ["rock"], PIZZA), other._soft_writer.call

        async def ending(name: str, frames: Any) -> list[Any]:
            assert await store.end([(mine, None, True)]) == [mine]
            return await call(name, frames)

        monkeypatch.setattr(other._soft_writer, "call", ending)
        ((_, said),) = await other.listen(["ann"], "here")
        assert said == Ended([("rock", PIZZA)], 1)


async def test_a_listen_between_the_steps_is_told_what_ends_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        mine = await made(store, "ann", ["rock"])
        told: list[tuple[Location, Ended | None]] = []

        async def listening() -> None:
            told.extend(await other.listen(["ann"], "here"))

        between(store, monkeypatch, "take_out", listening)
        assert await store.end([(mine, None, True)]) == [mine]
        assert [said for _, said in told] == [Ended([("rock", None)], 1)]


async def test_a_listen_that_comes_while_many_end_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"{index}" for index in range(2 * FRAME_ITEMS + 50)]
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.subscribe([Subscribe("ann", topics, None, LATER), Subscribe("bob", topics[:5], None, LATER)])
        mine = await all_expiring(store)
        batch = [[each for each in mine if each.client == client] for client in ("bob", "ann")]
        soft, durable, steps = store._expiry._soft, store._expiry._durable, list[tuple[str, int]]()

        def counted(call: Any) -> Any:
            async def called(operation: str, frames: Any) -> Any:
                sent = list(frames)
                groups = [group for frame in sent for group in (frame[1] if operation == "has_ended" else frame)]
                steps.append((operation, sum(len(items) for _, entries in groups for _, items in entries)))
                if len(steps) == 3:  # before the second part's first step
                    await listen(other, ["ann"], "here")
                return await call(operation, sent)

            return called

        monkeypatch.setattr(store._expiry, "_soft", counted(soft))
        monkeypatch.setattr(store._expiry, "_durable", counted(durable))
        assert await store.end([(each, None, True) for each in batch]) == [batch[0], batch[1][: FRAME_ITEMS - 5]]
        part = FRAME_ITEMS
        assert steps == [
            ("has_ended", part),
            ("take_out", part),
            ("has_ended", part),
            ("take_out", 0),
            ("has_ended", 55),
            ("take_out", 0),
        ]
        (said,) = await other.ended(["ann"])
        assert said is not None
        assert said.total == FRAME_ITEMS - 5
        left = {each.topic for each in batch[1][FRAME_ITEMS - 5 :]}
        assert set((await other.topics("ann", None, 10_000))[0]) == left


# --- reads of expiry


class Counted:
    """A transaction or a cursor that counts its calls."""

    def __init__(self, one: Any, calls: list[str]) -> None:
        self._one, self._calls = one, calls

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        found = getattr(self._one, name)
        return self._each(found) if name == "iternext" else found

    def _each(self, found: Callable[[], Any]) -> Callable[[], Any]:
        def each() -> Any:
            for item in found():
                self._calls.append("next")
                yield item

        return each


@pytest.mark.parametrize("term", [AWAY, LATER])
async def test_expiry_reads_none_without_a_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: Term) -> None:
    """The number of database calls is the same with two thousand subscriptions without a term as with none."""
    monkeypatch.setattr(slices, "SLICE_S", 60.0)
    topics = [f"song {index}" for index in range(20)]
    calls: list[str] = []
    async with opened(tmp_path) as store:
        await store.subscribe([Subscribe("ann", topics, PIZZA, term)])
        reading = store._slices.reading

        class Reading:
            def __init__(self, lane: Lane, database: str) -> None:
                self._reading = reading(lane, database)

            def __enter__(self) -> tuple[Any, Any]:
                txn, cursor = self._reading.__enter__()
                return Counted(txn, calls), Counted(cursor, calls)

            def __exit__(self, *error: Any) -> None:
                self._reading.__exit__(*error)

        monkeypatch.setattr(store._slices, "reading", Reading)
        counts = []
        for number in range(2):
            calls.clear()
            mine = await all_expiring(store)
            assert {each.topic for each in mine} == set(topics)
            await store.end([([each._replace(stamp=1_000) for each in mine], None, True)])
            counts.append(len(calls))
            if not number:
                everywhere = [*topics, *(f"{index}" for index in range(SLOTS // 2))]
                await store.subscribe([Subscribe(client, everywhere) for client in ("ann", "bob", "zoe")])
                await store.subscribe([Subscribe("bob", everywhere, PIZZA)])
        assert counts[0] == counts[1] > 20


# --- clearing up


class Clock:
    """Unix time in seconds, set by the test."""

    def __init__(self) -> None:
        self.unix_s = 1_000_000_000.0

    def __call__(self) -> float:
        return self.unix_s


async def test_what_is_old_goes_and_who_listens_stays(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, wall_clock=clock) as store:
        here = await listen(store, ["away", "here"], "i")
        await store.unlisten([("away", here[0])])
        mine = await made(store, "old", ["rock"])
        await made(store, "away", ["rock"])
        await store.end([(mine, None, True)])
        clock.unix_s += 600.0
        (young,) = await listen(store, ["young"], "i")
        await store.unlisten([("young", young)])
        assert await store.tidy(600.0) == 0  # not old enough yet
        clock.unix_s += 0.001
        assert await store.tidy(600.0) == 2
        assert await store.tidy(600.0) == 0
        assert await store.ended(["old"]) == [None]
        assert await store.locations(["away", "here", "young"]) == [None, here[1], young._replace(online=False)]
        assert await subscribers(store, ["rock"]) == [{"away"}]


async def test_a_later_end_keeps_what_has_ended_for_longer(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, wall_clock=clock) as store:
        for each in await made(store, "ann", ["rock", "jazz"]):
            await store.end([([each], None, True)])
            clock.unix_s += 400.0
        assert await store.tidy(600.0) == 0
        assert await store.ended(["ann"]) == [Ended([("rock", None), ("jazz", None)], 2)]
        clock.unix_s += 201.0
        assert await store.tidy(600.0) == 1


def test_a_step_is_bounded_and_goes_on_where_the_last_one_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_operations, "TIDY_RECORDS", 10)
    monkeypatch.setattr(soft_operations, "TIDY_S", 60.0)
    environment = prepare(tmp_path, Lane.SOFT, MAP_BYTES).environment
    soft = operations(environment, Lane.SOFT)
    with environment.env as env:
        with env.begin(write=True) as txn:
            soft["listen"](txn, [(f"{number:03}", number, "i") for number in range(100)])
            soft["unlisten"](txn, [(f"{number:03}", number, "i") for number in range(0, 100, 2)])
        went = []
        for _ in range(11):
            with env.begin(write=True) as txn:
                went += soft["tidy"](txn, (95, 0))
        # Among the offline clients, the numbers up to 94 are old: five in ten, and the last two of the last ten stay.
        assert went == [5, 5, 5, 5, 5, 5, 5, 5, 5, 3, 0]
        monkeypatch.setattr(soft_operations, "TIDY_S", -1.0)
        with env.begin(write=True) as txn:
            assert soft["tidy"](txn, (1_000, 0)) == [0]
        with env.begin() as txn:
            assert txn.stat(environment.db["locations"])["entries"] == 52


def test_names_are_bounded_by_their_number_and_by_their_bytes() -> None:
    many: list[EndedItem] = [(f"{number}", None, number) for number in range(ENDED_MAX + 7)]
    found = unpack_ended(pack_ended(EndedRecord(5, 2_000, many)))
    assert found[:2] == (5, 2_000)
    assert [tuple(each) for each in found.named] == many[7:]
    long: list[EndedItem] = [("é" * 500, "f" * 4_000, number) for number in range(500)]
    found = unpack_ended(pack_ended(EndedRecord(5, 500, long)))
    assert found.total == 500
    assert [tuple(each) for each in found.named] == long[-(ENDED_BYTES_MAX // 5_000) :]
