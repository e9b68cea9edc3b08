"""Renewing ended subscriptions: the time, the number of attempts, and the reports, with a client that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ingeborg.protocol import again as module
from ingeborg.protocol.again import Renewals
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.expiring import Again, Now

UNTIL = {"until": "disconnect"}
ENDS = {"result": "success", "grace_s": 60.0}
STAYS = {"result": "success"}
FILTER = '{"price":[1]}'


class Played:
    """A client with prepared answers."""

    def __init__(self) -> None:
        self.asked: list[Again] = []
        self.answers: list[Any] = []  # for subscribes: replies, None, or an error; by default success
        self.listens: list[dict[str, Any] | None] = []
        self.told: list[Any] = []
        self.renewals = Renewals(
            subscribe=self.subscribe,
            listen=self.listen,
            delay_s=self.delay_s,
            on_ended=lambda found, count: self.told.append(([(each.topic, each.filter) for each in found], count)),
            on_refused=lambda error: self.told.append(error.code),
            on_failure=lambda error: self.told.append(error),
        )

    async def subscribe(self, again: Again) -> Sequence[dict[str, Any]] | None:
        self.asked.append(again)
        answer = self.answers.pop(0) if self.answers else [ENDS]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def listen(self) -> dict[str, Any] | None:
        self.told.append("listen")
        return self.listens.pop(0)

    def delay_s(self, attempt: int) -> float:
        self.told.append(attempt)
        return 0.0

    def subscribed(self, *topics: str, **fields: Any) -> None:
        self.renewals.subscribed(topics, None, UNTIL | fields, [ENDS], self.renewals.now())

    async def settled(self) -> None:
        async with asyncio.timeout(10):
            await self.renewals.ended()


def reply(*topics: str, count: int | None = None) -> dict[str, Any]:
    return {"result": "success", "ended": [{"topic": topic} for topic in topics], "ended_count": count or len(topics)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(module, "_now", lambda: Now(seconds[0], 1e6 + seconds[0]))
    return seconds


@pytest.fixture
async def played(clock: list[float]) -> AsyncIterator[Played]:
    played = Played()
    played.renewals.listened({})
    yield played
    played.renewals.end()
    await played.settled()


async def test_both_clocks_are_of_this_machine() -> None:
    before, after = module._now(), module._now()
    assert before.awake_s <= after.awake_s
    assert before.all_s <= after.all_s


async def test_what_has_ended_is_subscribed_to_again_and_what_is_another_s_told(played: Played) -> None:
    played.subscribed("a", "b")
    played.renewals.left()
    played.renewals.listened(reply("a", "x"))
    await played.settled()
    assert played.asked == [Again(["a"], None, UNTIL)]
    assert played.told == [([("x", None)], 1)]


async def test_all_of_it_after_a_long_absence(played: Played, clock: list[float]) -> None:
    played.subscribed("a", "b")
    played.renewals.left()
    clock[0] = 31.0
    played.renewals.listened({})
    await played.settled()
    assert played.asked == [Again(["a", "b"], None, UNTIL)]


async def test_a_subscribe_of_several_commands_during_which_it_was_away_is_made_again(
    played: Played, clock: list[float]
) -> None:
    began = played.renewals.now()
    played.renewals.left()
    clock[0] = 100.0
    played.renewals.listened({})
    clock[0] = 101.0
    played.renewals.subscribed(["a"], None, UNTIL, [ENDS], began)  # one command, whose success came later
    await played.settled()
    assert played.asked == []
    played.renewals.subscribed(["b", "c"], None, UNTIL, [ENDS, ENDS], began)
    await played.settled()
    assert played.asked == [Again(["b", "c"], None, UNTIL)]


async def test_what_stays_or_has_only_a_time_is_not_kept(played: Played, clock: list[float]) -> None:
    played.subscribed("a", "b", "c", "d")
    played.renewals.subscribed(["a"], None, {}, [STAYS], played.renewals.now())
    played.renewals.subscribed(["b"], None, {"ttl_s": 5}, [STAYS], played.renewals.now())
    played.renewals.subscribed(["d"], FILTER, {}, [STAYS], played.renewals.now())
    played.renewals.gone(["c"])
    played.renewals.left()
    clock[0] = 100.0
    played.renewals.listened(reply("b", "d"))
    await played.settled()
    assert played.asked == [Again(["d"], None, UNTIL)]
    assert played.told == [([("b", None)], 1)]


async def test_it_is_tried_again_until_it_is_taken_without_what_was_unsubscribed_from(played: Played) -> None:
    played.subscribed("a", "b")
    played.answers = [None, None]
    delay_s = played.delay_s

    def unsubscribing(attempt: int) -> float:
        if attempt == 1:
            played.renewals.gone(["a"])
        return delay_s(attempt)

    played.renewals._delay_s = unsubscribing
    played.renewals.listened(reply("a", "b"))
    await played.settled()
    assert [again.topics for again in played.asked] == [["a", "b"], ["a", "b"], ["b"]]
    assert played.told == [0, 1]


async def test_what_is_refused_for_good_is_told_and_not_asked_for_any_more(played: Played, clock: list[float]) -> None:
    played.renewals.subscribed(["a"], FILTER, UNTIL, [ENDS], played.renewals.now())
    played.subscribed("a", "b")
    played.answers = [ProtocolError("forbidden", "no")]
    played.renewals.listened({"ended": [{"topic": "a", "filter": {"price": [1]}}], "ended_count": 1})
    await played.settled()
    assert played.told == ["forbidden", ([("a", {"price": [1]})], 1)]
    played.renewals.left()
    clock[0] = 100.0
    played.renewals.listened({})
    await played.settled()
    assert played.asked == [Again(["a"], FILTER, UNTIL), Again(["a", "b"], None, UNTIL)]


async def test_the_grace_time_is_the_one_that_the_endpoint_said_last(played: Played, clock: list[float]) -> None:
    played.subscribed("a")
    played.answers = [[ENDS | {"grace_s": 10}], [STAYS]]
    for away_s, topics in ((1.0, ["a"]), (6.0, []), (6.0, [])):
        played.renewals.left()
        clock[0] += away_s
        played.renewals.listened(reply(*topics))
        await played.settled()
    assert played.asked == [Again(["a"], None, UNTIL)] * 3


async def test_where_more_have_ended_than_are_named_it_listens_once_more(played: Played) -> None:
    played.subscribed("a", "b")
    played.listens = [reply("x", count=1)]
    played.renewals.listened(reply("b", count=1_200))
    await played.settled()
    assert played.asked == [Again(["a", "b"], None, UNTIL)]
    assert played.told == ["listen", ([("x", None)], 1)]
    played.listens = [None]  # it no longer listens, or not now
    played.renewals.listened(reply("b", count=1_200))
    await played.settled()
    assert played.told[2:] == ["listen"]


async def test_what_is_due_while_it_listens_once_more_is_not_left(played: Played, clock: list[float]) -> None:
    played.subscribed("a")
    began, reached = asyncio.Event(), asyncio.Event()

    async def listen() -> dict[str, Any] | None:
        reached.set()
        await began.wait()
        return reply("a")

    played.renewals._listen = listen
    played.renewals.listened(reply("a", count=1_200))
    async with asyncio.timeout(10):
        await reached.wait()
        played.renewals.left()
        clock[0] = 100.0
        played.renewals.listened({})  # on another connection
        began.set()
    await played.settled()
    assert [again.topics for again in played.asked] == [["a"], ["a"]]


async def test_nor_is_it_where_there_is_no_reply(played: Played, clock: list[float]) -> None:
    played.subscribed("a")

    async def listen() -> dict[str, Any] | None:
        if len(played.asked) == 1:
            played.renewals.left()
            clock[0] = 100.0
            played.renewals.listened(reply("a", count=1_200))  # on another connection
        return None

    played.renewals._listen = listen
    played.renewals.listened(reply("a", count=1_200))
    await played.settled()
    assert [again.topics for again in played.asked] == [["a"], ["a"]]


async def test_an_exception_of_a_callback_is_told_and_ends_it(played: Played) -> None:
    played.subscribed("a")
    played.answers = [LookupError("the program's own")]
    played.renewals.listened(reply("a"))
    await played.settled()
    assert [str(error) for error in played.told] == ["the program's own"]


async def test_after_the_end_nothing_is_asked_for(played: Played) -> None:
    played.subscribed("a")
    played.answers = [None] * 1_000
    played.renewals.listened(reply("a"))
    played.renewals.end()
    await played.settled()
    played.renewals.listened(reply("a"))
    await played.settled()
    assert played.asked == []
