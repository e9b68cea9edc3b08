"""Whether a client has a subscription, in the embedded store: in slices, and at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.broker.store.base import Term
from ingeborg.broker.store.embedded import now
from ingeborg.broker.store.embedded import store as embedded
from ingeborg.broker.store.embedded.store import EmbeddedStore

from .test_embedded import opened

GONE = Term(True, 0.0)
PIZZA = '{"food":["pizza"]}'
TOPICS = [f"{index}" for index in range(3 * now.TOPICS_PER_LOOK + 1)]
WANTED = [index % 4 != 3 for index in range(len(TOPICS))]


async def subscribed(store: EmbeddedStore) -> None:
    """Of four topics one is plain, one ending, one has a filter."""
    await store.subscribe([("ann", TOPICS[::4]), ("bob", TOPICS)])
    await store.subscribe_ending([("ann", TOPICS[1::4], GONE), ("bo", TOPICS, GONE)])
    await store.subscribe_filtered([("ann", TOPICS[2::4], PIZZA, False), ("bob", TOPICS, PIZZA, False)])


async def test_what_takes_many_slices_is_whole_and_is_not_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await subscribed(store)
        monkeypatch.setattr(embedded, "SLICE_S", -1.0)
        assert await store.subscribed("ann", TOPICS) == WANTED
        assert await store.subscribed("ann", []) == []
        assert store.subscribed_now("ann", TOPICS) is None
        few = now.TOPICS_PER_LOOK
        assert store.subscribed_now("ann", TOPICS[:few]) == WANTED[:few]
        assert store.subscribed_now("ann", TOPICS[: few + 1]) is None


async def test_256_topics_are_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "SLICE_S", 60.0)
    async with opened(tmp_path) as store:
        await subscribed(store)
        asked = (TOPICS * 3)[:256]
        before = store.counters["reads"]
        assert store.subscribed_now("ann", asked) == (WANTED * 3)[:256]
        assert store.counters["reads"] == before + 256


async def test_ending_ones_are_read_in_the_transaction_that_has_begun_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        await store.subscribe_ending([("ann", ["rock"], GONE)])
        begun: list[str | None] = []
        reading = store._reading

        def noted(lane: object, database: str | None) -> object:
            begun.append(database)
            return reading(lane, database)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "_reading", noted)
        assert store.subscribed_now("ann", ["rock"]) == [True]
        assert begun == ["ending_of", "topics_of"]
