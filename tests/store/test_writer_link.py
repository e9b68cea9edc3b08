"""The endpoint's side of a writer process; the test plays the writer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ingeborg.broker.store.base import StoreError, StoreUnavailable, Superseded
from ingeborg.broker.store.embedded.layout import PROGRESS, Lane, Unpacker, pack
from ingeborg.broker.store.embedded.watch import Watch
from ingeborg.broker.store.embedded.writer_link import (
    ACKNOWLEDGED_AT_ONCE,
    DISK_LOOKS,
    LARGE_BUDGET_BYTES,
    LOOKS,
    _Budget,
    _Link,
)


class PlayedWriter:
    """The other end of a link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unpacker, self._frames = Unpacker(), list[Any]()

    async def frame(self) -> Any:
        """Return the next frame that was sent: (number, operation, argument)."""
        while not self._frames:
            self._frames += self._unpacker.feed(await self._reader.read(1 << 16))
        return self._frames.pop(0)

    def reply(self, number: int, outcome: str = "", body: Any = ()) -> None:
        """Answer a frame."""
        self._writer.write(pack((number, outcome, body)))


class PlayedWatch(Watch):
    """Sees what the test says."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), Lane.DURABLE)
        self.waits: int | None = None

    def waiter(self) -> int | None:
        """Return the process that waits for the disk."""
        return self.waits

    def suspect(self) -> str:
        """Return who is in the way, if not the disk."""
        return "the suspect"


@asynccontextmanager
async def linked(timeout_s: float = 10.0, watch: Watch | None = None) -> AsyncIterator[tuple[_Link, PlayedWriter]]:
    """Yield a link and its far end."""
    ours, theirs = socket.socketpair()
    link = _Link(timeout_s, watch or PlayedWatch(), lambda: None)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    try:
        yield link, PlayedWriter(reader, writer)
    finally:
        writer.close()
        link.abort()


async def test_results_come_in_the_order_asked_whatever_the_order_of_the_replies() -> None:
    async with linked() as (link, writer):
        call = asyncio.create_task(link.call("listen", ["a", "b", "c"]))
        numbers = [(await writer.frame())[0] for _ in "abc"]
        for number, body in zip(reversed(numbers), ([5], [3, 4], [1, 2]), strict=True):
            assert not call.done()
            writer.reply(number, body=body)
        assert await call == [1, 2, 3, 4, 5]


async def test_one_failed_frame_fails_its_call_only_and_no_more_of_it_is_sent() -> None:
    async with linked() as (link, writer):
        endless = asyncio.create_task(link.call("subscribe", iter(lambda: "more" * 1_000, None)))
        number, _, _ = await writer.frame()
        good = asyncio.create_task(link.call("heartbeat", ["x"]))
        writer.reply(number, "StoreError", "the map is full")
        with pytest.raises(StoreError, match="the map is full"):
            await endless
        while (frame := await writer.frame())[1] != "heartbeat":
            pass
        writer.reply(frame[0], "Superseded", "by another")
        with pytest.raises(Superseded, match="by another"):
            await good


async def test_what_one_commit_acknowledges_goes_on_in_parts() -> None:
    async with linked() as (link, _):
        together = 5 * ACKNOWLEDGED_AT_ONCE
        calls = [asyncio.create_task(link.call("subscribe", ["x"])) for _ in range(together)]
        await asyncio.sleep(0)
        link.data_received(b"".join(pack((number, "", [])) for number in range(together)))
        passes: list[int] = []
        while not passes or passes[-1] < together:
            await asyncio.sleep(0)
            passes.append(sum(call.done() for call in calls))
        most = max(after - before for before, after in pairwise([0, *passes]))
        assert most <= ACKNOWLEDGED_AT_ONCE


async def test_what_was_acknowledged_before_the_writer_died_has_succeeded() -> None:
    async with linked() as (link, _):
        together = 5 * ACKNOWLEDGED_AT_ONCE
        calls = [asyncio.create_task(link.call("subscribe", ["x"])) for _ in range(together + 1)]
        await asyncio.sleep(0)
        link.data_received(b"".join(pack((number, "", [])) for number in range(together)))
        link.connection_lost(None)
        *good, last = await asyncio.gather(*calls, return_exceptions=True)
        assert good == [[]] * together
        assert isinstance(last, StoreUnavailable)


async def test_progress_keeps_a_long_write_alive_and_silence_ends_it() -> None:
    # The test plays time, too: the link checks when the test says so.
    async with linked(timeout_s=1_000) as (link, writer):
        call = asyncio.create_task(link.call("subscribe", ["x"]))
        number, _, _ = await writer.frame()
        for _ in range(3):
            for _ in range(LOOKS - 1):
                link._look_for_progress()
            link.data_received(pack((PROGRESS, "", [])))
        assert not call.done()
        writer.reply(number)
        await call

        call = asyncio.create_task(link.call("subscribe", ["x"]))
        await writer.frame()
        for _ in range(LOOKS):
            assert not link.lost.done()
            link._look_for_progress()
        with pytest.raises(StoreUnavailable, match="confirmed nothing in 1000 s; the suspect"):
            await call
        with pytest.raises(StoreUnavailable):
            await link.call("subscribe", ["x"])


def look_until_the_time_out(link: _Link) -> None:
    """Make time pass until the link's time-out."""
    for _ in range(LOOKS):
        link._look_for_progress()


async def test_while_the_writer_waits_for_the_disk_callers_hear_of_it_and_nothing_overtakes_what_it_has() -> None:
    watch = PlayedWatch()
    async with linked(1_000, watch) as (link, writer):
        part = "x" * 100_000
        large = asyncio.create_task(link.call("large", [part] * (2 * LARGE_BUDGET_BYTES // len(part))))
        small = asyncio.create_task(link.call("small", ["y"]))
        while not link._large._line:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        given = len(link._under_way)
        watch.waits = 7
        look_until_the_time_out(link)
        for call in (large, small):  # also the call that has queued frames
            with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
                await call
        look_until_the_time_out(link)
        assert watch.stalls == 1
        watch.waits = None
        next_ones = [asyncio.create_task(link.call("next", [index])) for index in range(2)]
        for number in range(given):
            assert len(link._under_way) == given - number, "something was sent behind what had been given up"
            link.data_received(pack((number, "", [])))
            await asyncio.sleep(0)
        for index in range(2):
            while (frame := await writer.frame())[1] != "next":
                pass
            assert frame[1:] == ["next", index]
            writer.reply(frame[0])
        assert await asyncio.gather(*next_ones) == [[], []]
        assert not link.lost.done()


async def test_while_the_disk_is_waited_for_callers_wait_no_longer_than_the_time_out() -> None:
    watch = PlayedWatch()
    async with linked(0.05, watch) as (link, writer):
        watch.waits = 7
        with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
            await link.call("first", ["x"])
        await writer.frame()
        with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
            await asyncio.wait_for(link.call("second", ["x"]), 10)
        link.fail("enough")
        with pytest.raises(StoreUnavailable, match="enough"):
            await asyncio.wait_for(link.call("third", ["x"]), 10)


async def test_a_writer_that_waits_for_the_disk_for_a_minute_or_hangs_after_it_is_given_up() -> None:
    for stays in (True, False):
        watch = PlayedWatch()
        async with linked(1_000, watch) as (link, writer):
            call = asyncio.create_task(link.call("subscribe", ["x"]))
            await writer.frame()
            watch.waits = 7
            for _ in range(LOOKS - 1 + DISK_LOOKS if stays else 2 * LOOKS):
                link._look_for_progress()
            watch.waits = 7 if stays else None
            for _ in range(LOOKS):
                assert not link.lost.done()
                link._look_for_progress()
            assert link.lost.done()
            assert "; the suspect" in link.lost.result()
            with pytest.raises(StoreUnavailable):
                await call


async def test_what_is_under_way_is_bounded_and_large_batches_take_turns() -> None:
    async with linked() as (link, writer):
        part = "x" * 100_000
        budget_frames = LARGE_BUDGET_BYTES // len(pack((0, "second", part)))
        calls = [asyncio.create_task(link.call(name, [part] * budget_frames)) for name in ("first", "second")]
        names = [(await writer.frame())[1] for _ in range(budget_frames)]
        assert abs(names.count("first") - names.count("second")) <= 1
        with pytest.raises(TimeoutError):  # the budget is spent: nothing comes until a reply
            async with asyncio.timeout(0.05):
                await writer.frame()
        small = asyncio.create_task(link.call("small", ["y"]))  # except a small call, which has its own budget
        number, name, _ = await writer.frame()
        assert name == "small"
        writer.reply(number)
        await small
        link.fail("enough")
        for call in calls:
            with pytest.raises(StoreUnavailable, match="enough"):
                await call
        with pytest.raises(StoreUnavailable, match="enough"):  # and does not wait for a lost link's budget
            await asyncio.wait_for(link.call("late", [part]), 10)


async def test_a_budget_serves_in_order_skips_the_cancelled_and_lets_one_oversized_through() -> None:
    budget, served = _Budget(10), []

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        served.append(name)

    await take("oversized", 50)
    waiting = {name: asyncio.create_task(take(name, size)) for name, size in [("a", 6), ("b", 6), ("c", 4), ("d", 4)]}
    await asyncio.sleep(0)
    assert served == ["oversized"]
    budget.give(50)
    waiting["a"].cancel()  # its turn has just come, and passes to the next
    await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({waiting["b"], waiting["c"]})
    assert served == ["oversized", "b", "c"]
    assert waiting["a"].cancelled()
    budget.give(6)
    await waiting["d"]
    budget.give(4)
    budget.give(4)
    await take("all of it", 10)
