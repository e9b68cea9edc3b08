"""The number of commands of a large subscribe that are under way at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ingeborg.protocol import pacing
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.pacing import paced


class Sender:
    """Answers when the test calls ``answer``."""

    def __init__(self) -> None:
        self.held: list[tuple[bytes, asyncio.Future[dict[str, Any]]]] = []
        self.came = asyncio.Event()

    async def send(self, body: bytes) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.held.append((body, future))
        self.came.set()
        return await future

    async def under_way(self, count: int) -> None:
        while len(self.held) < count:
            self.came.clear()
            await self.came.wait()

    def answer(self) -> None:
        body, future = self.held.pop(0)
        future.set_result({"body": body})


async def test_one_more_at_once_for_each_that_was_quick_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_S_SHORT", 60.0)  # every time on this machine is quick
    monkeypatch.setattr(pacing, "AT_ONCE_MAX", 3)
    sender = Sender()
    bodies = [b"%d" % number for number in range(8)]
    sending = asyncio.create_task(paced(bodies, sender.send))
    for count in (1, 2, 3, 3, 3, 3, 2, 1):
        async with asyncio.timeout(10):
            await sender.under_way(count)
        assert len(sender.held) == count
        sender.answer()
    assert sorted(reply["body"] for reply in await sending) == bodies


async def test_half_as_many_for_each_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_S_SHORT", 60.0)
    sender = Sender()
    sending = asyncio.create_task(paced([b"x"] * 12, sender.send))
    async with asyncio.timeout(10):
        for count in (1, 2, 3):
            await sender.under_way(count)
            sender.answer()
        await sender.under_way(4)
        monkeypatch.setattr(pacing, "_S_LONG", -1.0)  # every time is long
        for _ in range(3):
            sender.answer()
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(sender.held) == 1  # after four, two, one
        while sender.held:
            sender.answer()
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(sender.held) <= 1
    assert len(await sending) == 12


async def test_the_first_error_ends_it_and_nothing_is_left_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_S_SHORT", 60.0)
    sender = Sender()
    sending = asyncio.create_task(paced([b"x"] * 5, sender.send))
    async with asyncio.timeout(10):
        await sender.under_way(1)
        sender.answer()
        await sender.under_way(2)
        (_, first), (_, second) = sender.held
        first.set_exception(ProtocolError("bad_state", "no"))
        with pytest.raises(ProtocolError, match="bad_state"):
            await sending
    assert second.cancelled()
    assert len(sender.held) == 2


async def test_nothing_is_sent_of_nothing() -> None:
    assert await paced([], Sender().send) == []
