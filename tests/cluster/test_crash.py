"""Three endpoints under traffic, one of which dies, stops, leaves or comes back. SPEC section 8.

The traffic: ``a`` publishes numbered messages to topics of every home, and a client at ``b`` subscribes to all topics.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from ingeborg.broker.core.cluster.joining import PERIOD_S
from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S
from ingeborg.broker.shell.driver import TICK_S
from ingeborg.protocol.client import Client, ConnectionLost
from ingeborg.protocol.errors import ProtocolError

from .processes import PATIENCE_S, Cluster, eventually
from .stalls import Lateness
from .traffic import Ear, Stream, each, streaming

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

#: Peers notice a dead endpoint within this, in seconds: they see its last heartbeat one beat late, and the lack of
#: another at a beat. Some more for this test's own polling; and the machine's lateness.
NOTICED_S = DEAD_AFTER_S + 2 * (PERIOD_S + TICK_S) + 0.3

#: Its clients receive again within this, in seconds.
BACK_S = 6.0


#: On a machine later than this, in seconds, an endpoint can give up on a dead one before it is known to be dead.
LATE_S = 0.5


class Traffic(NamedTuple):
    """The traffic at ``a`` and ``b`` while something happens to ``c``."""

    topics: list[str]
    stream: Stream
    ear: Ear
    publisher: Client
    late: Lateness  # lateness of `a`, `b` and this process since it began


@pytest_asyncio.fixture(loop_scope="module")
async def traffic(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Traffic]:
    """Run it before the test begins; afterwards check that every message arrived exactly once."""
    await cluster.whole()
    name = request.node.name
    topics = [f"{name} {number}" for number in range(60)]
    assert {cluster.home(topic) for topic in topics} == {"a", "b", "c"}
    with Lateness(cluster["a"], cluster["b"]) as late:
        async with (
            Client(cluster["a"].url, f"{name} publisher", timeout_s=30) as publisher,
            Ear(cluster["b"].url, f"{name} ear") as ear,
        ):
            await late.begin()
            await ear.client.subscribe(topics)
            async with streaming(publisher, topics) as stream:
                await stream.goes_on(60)
                yield Traffic(topics, stream, ear, publisher, late)
                await stream.goes_on(60)
            await cluster.idle()
            await ear.all_read()
            if stream.failed and await late.so_far() > LATE_S:
                assert {type(error) for _, error in stream.failed} == {ProtocolError}, stream.failed[:5]
                told = {error.code for _, error in stream.failed if isinstance(error, ProtocolError)}
                assert told <= {"peer_unavailable", "partial"}, stream.failed[:5]
            else:
                assert not stream.failed, stream.failed[:5]
            may_be = dict.fromkeys(message for message, _ in stream.failed)
            assert {message: n for message, n in ear.heard.items() if message not in may_be} == dict.fromkeys(
                stream.acknowledged, 1
            )
            assert set(ear.heard.values()) == {1}


async def gone_counts(cluster: Cluster, name: str) -> dict[str, float]:
    """Return how many peers each endpoint but this one has seen go."""
    return {other.name: (await other.metrics())["endpoints_gone_total"] for other in cluster.others(name)}


async def gone(cluster: Cluster, name: str, before: dict[str, float], began: float) -> float:
    """Wait until every other endpoint has noticed the death; return how long after ``began`` that was, in seconds."""

    async def noticed() -> bool:
        now = await gone_counts(cluster, name)
        return all(now[other] == count + 1 for other, count in before.items())

    await eventually(noticed, f"{name} is gone for the others")
    return time.monotonic() - began


async def test_the_death_of_an_endpoint_costs_the_others_nothing(cluster: Cluster, traffic: Traffic) -> None:
    counts = await gone_counts(cluster, "c")
    names = [f"orphan {number}" for number in range(10)]
    mine = {name: [f"{name} {number}" for number in range(100)] for name in names}
    async with AsyncExitStack() as stack:
        # `c` first, then round the list: they come back at `a` or `b`, in either case.
        orphans = [await stack.enter_async_context(Ear(cluster.urls("c"), name, backoff_max_s=0.5)) for name in names]
        for orphan in orphans:
            await orphan.client.subscribe(mine[str(orphan.client.client_id)] + traffic.topics)
        await traffic.stream.goes_on(60)
        assert all(orphan.heard for orphan in orphans)

        await cluster["c"].kill()
        killed_at = time.monotonic()
        first = traffic.stream.sent  # later messages were published after the death

        async def back(orphan: Ear) -> float:
            """Return when it had received a message from every home's topics that was published after the death."""

            def hears_all_again() -> bool:
                topics = [str(topic) for topic, number in orphan.heard if number >= first]
                return {cluster.home(topic) for topic in topics} == {"a", "b", "c"}

            await orphan.until(hears_all_again, "messages published after the death, of every home's topics")
            return orphan.last_at - killed_at

        noticed_s, *back_s = await asyncio.gather(
            gone(cluster, "c", counts, killed_at), *(back(orphan) for orphan in orphans)
        )
        print(f"noticed after {noticed_s:.2f} s, clients back after {max(back_s):.2f} s")
        late_s = await traffic.late.so_far()
        assert noticed_s < NOTICED_S + late_s
        assert max(back_s) < BACK_S + late_s
        await cluster.linked("a", "b")

        # Every subscription survives, and works.
        jobs = [topic for topics in mine.values() for topic in topics]
        answers = await each(len(jobs), lambda job: traffic.publisher.publish(jobs[job], "after", ack=True))
        assert not any(answers)
        for orphan in orphans:
            its = mine[str(orphan.client.client_id)]
            assert orphan.client.reconnects >= 1
            assert orphan.client.url != cluster["c"].url
            assert await orphan.topics() == {*its, *traffic.topics}
            await orphan.all_read()
            assert all(orphan.heard[topic, "after"] == 1 for topic in its)
            assert max(orphan.heard.values()) == 1


async def test_an_endpoint_restarted_under_its_name_takes_over_at_once(cluster: Cluster, traffic: Traffic) -> None:
    former = (await cluster["c"].metrics()).incarnation
    counts = await gone_counts(cluster, "c")
    topics = cluster.topics_at_home("c", "takeover", 20)
    async with Ear(cluster["c"].url, "faithful", backoff_max_s=0.2) as faithful:
        await faithful.client.subscribe("faith")
        late_s = await traffic.late.so_far()
        await cluster["c"].kill()
        killed_at = time.monotonic()
        await cluster["c"].start(ready=False)
        await eventually(cluster["c"].answers, "c serves HTTP")
        began_at = time.monotonic()
        await cluster["c"].ready()
        await gone(cluster, "c", counts, began_at)
        answers = await each(20, lambda number: traffic.publisher.publish(topics[number], "x", ack=True))
        assert not any(answers)
        took_s = time.monotonic() - began_at
        print(f"took over {took_s:.2f} s after its port was open, {time.monotonic() - killed_at:.2f} s after the kill")
        # Nobody had to wait until the former self was found dead, which takes 3 s from its last heartbeat: visible if
        # the start took at most a second, as on an idle machine.
        late_s = await traffic.late.so_far() - late_s
        assert took_s < 2.0 + late_s or began_at - killed_at > 1.0
        await cluster.linked("a", "b", "c")
        assert (await cluster["c"].metrics()).incarnation != former

        assert await traffic.publisher.publish("faith", "before it is back", ack=True) is False
        await faithful.back()
        assert await traffic.publisher.publish("faith", "and after", ack=True) is False
        await faithful.all_read()
        assert faithful.heard["faith", "and after"] == 1


async def test_a_stopped_endpoint_is_done_without_and_comes_back(cluster: Cluster, traffic: Traffic) -> None:
    joins = (await cluster["c"].metrics())["joins_total"]
    counts = await gone_counts(cluster, "c")
    async with (
        Ear(cluster["c"].url, "asleep", timeout_s=30) as asleep,
        Client(cluster["c"].url, "asleep publisher", timeout_s=30) as publisher,
    ):
        await asleep.client.subscribe(traffic.topics)
        await traffic.stream.goes_on(30)
        cluster["c"].signal(signal.SIGSTOP)
        try:
            stopped_at = time.monotonic()
            noticed_s = await gone(cluster, "c", counts, stopped_at)
            assert noticed_s < NOTICED_S + await traffic.late.so_far()
            await traffic.stream.goes_on(60)
            # The stop has to be longer than the others' patience; no event marks the rest.
            await asyncio.sleep(max(0.0, stopped_at + 6.0 - time.monotonic()))
            await cluster.linked("a", "b")
        finally:
            cluster["c"].signal(signal.SIGCONT)
        await cluster.linked("a", "b", "c")
        scrape = await cluster["c"].metrics()
        assert scrape["joins_total"] > joins
        assert scrape["leases_lapsed_total"] >= 1

        # Its clients were connected all the time: from here on they receive everything, and their own messages arrive.
        first = traffic.stream.sent
        await traffic.stream.goes_on(120)
        woken = [(traffic.topics[number % len(traffic.topics)], number) for number in range(first, first + 60)]
        await asleep.hears(woken)
        assert asleep.client.reconnects == publisher.reconnects == 0
        async with Ear(cluster["b"].url, "woken ear") as ear:
            topics = [f"woken {number}" for number in range(30)]
            await ear.client.subscribe(topics)
            answers = await each(30, lambda number: publisher.publish(topics[number], number, ack=True))
            assert not any(answers)
            await ear.all_read()
            assert ear.heard == {(topic, number): 1 for number, topic in enumerate(topics)}
        await asleep.all_read()
        assert max(asleep.heard.values()) == 1


async def test_an_endpoint_that_leaves_in_order_hands_on_what_it_knows(cluster: Cluster, traffic: Traffic) -> None:
    topics = [f"leave {number}" for number in range(150)]
    assert {cluster.home(topic) for topic in topics} == {"a", "b", "c"}
    async with (
        Ear(cluster["b"].url, "stays") as stays,
        Ear(cluster.urls("c"), "moves on", backoff_max_s=0.5) as moves_on,
        Client(cluster["c"].url, "last words", timeout_s=30) as leaver,
        connect(cluster["c"].url) as plain,
    ):
        await stays.client.subscribe(topics)
        await moves_on.client.subscribe(topics)
        answers = await each(150, lambda number: leaver.publish(topics[number], "news", ack=True))
        assert not any(answers)

        last_words = [
            asyncio.create_task(leaver.publish(topic, "last word", ack=True, dedup=False)) for topic in topics
        ]
        await asyncio.wait(last_words, return_when=asyncio.FIRST_COMPLETED)
        with Lateness(cluster["a"], cluster["b"]) as late:
            await late.begin()
            cluster["c"].signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(PATIENCE_S):
                    await plain.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
            assert await cluster["c"].ended() == 0
            took_s = await cluster.linked("a", "b")
            assert took_s < 2.5 + await late.so_far()  # it said goodbye: nobody waits for heartbeats

        again = await each(150, lambda number: traffic.publisher.publish(topics[number], "news", ack=True))
        assert all(again), f"{again.count(False)} duplicates were taken for news"
        await moves_on.back()
        assert moves_on.client.url in (cluster["a"].url, cluster["b"].url)
        assert await moves_on.topics() == set(topics)
        answers = await each(150, lambda number: traffic.publisher.publish(topics[number], "and more", ack=True))
        assert not any(answers)
        await moves_on.all_read()
        assert all(moves_on.heard[topic, "and more"] == 1 for topic in topics)
        assert max(moves_on.heard.values()) == 1
        await stays.all_read()
        assert set(stays.heard.values()) == {1}
        # Acknowledged messages of the last moment arrived; of the others, each arrived at most once.
        outcomes = await asyncio.gather(*last_words, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {bool, ConnectionLost}
        accepted = [topic for topic, outcome in zip(topics, outcomes, strict=True) if outcome is False]
        assert stays.heard.keys() >= {(topic, "last word") for topic in accepted}
        assert stays.heard.keys() >= {(topic, word) for topic in topics for word in ("news", "and more")}


async def test_subscriptions_that_were_acknowledged_outlive_a_kill_in_the_middle_of_a_batch(
    cluster: Cluster, traffic: Traffic
) -> None:
    few = [f"acknowledged {number}" for number in range(5_000)]
    many = [f"batch {number}" for number in range(100_000)]
    others = [f"other batch {number}" for number in range(40_000)]
    async with (
        Client(cluster["c"].url, "cut short", timeout_s=60) as cut_short,
        Client(cluster["a"].url, "goes on", timeout_s=60) as goes_on,
        Client(cluster["c"].url, "drips", timeout_s=60) as drips,
    ):
        acknowledged: set[str] = set()

        async def drip(worker: int) -> None:
            for number in range(10_000):
                topic = f"drip {worker} {number}"
                await drips.subscribe(topic)
                acknowledged.add(topic)

        await cut_short.subscribe(few)
        before = sum([(await endpoint.metrics())["subscriptions_changed_total"] for endpoint in cluster.others("c")])

        async def well_under_way() -> bool:
            now = sum([(await endpoint.metrics())["subscriptions_changed_total"] for endpoint in cluster.others("c")])
            return now - before > 10_000

        batch = asyncio.create_task(cut_short.subscribe(many))
        other_batch = asyncio.create_task(goes_on.subscribe(others))
        dripping = [asyncio.create_task(drip(worker)) for worker in range(8)]
        await eventually(well_under_way, "10,000 subscriptions of the batches")
        assert not batch.done()
        assert not other_batch.done()
        await cluster["c"].kill(writers=True)  # as in a power cut, except for the disk's own cache
        for task in dripping:
            task.cancel()
        certain = frozenset(acknowledged)
        assert certain
        # The command of the client elsewhere succeeds; a third of its topics had the dead endpoint as their home.
        await other_batch
        await traffic.stream.goes_on(60)
        async with Ear(cluster["b"].url, "cut short") as ear:
            kept = await ear.topics()
            assert kept >= set(few)
            async with Ear(cluster["b"].url, "drips") as drip_ear:
                assert await drip_ear.topics() >= certain
            assert kept <= {*few, *many}
            assert len(kept) < len(few) + len(many)

        # After the restart its client, which has been trying all the while, repeats the command.
        await cluster["c"].start()
        await batch
        async with Ear(cluster["c"].url, "cut short") as ear, Ear(cluster["c"].url, "goes on") as other_ear:
            assert await ear.topics() == {*few, *many}
            assert await other_ear.topics() == set(others)
            sample = [*few[::500], *many[::1000], *others[::1000]]
            answers = await each(len(sample), lambda number: traffic.publisher.publish(sample[number], "x", ack=True))
            assert not any(answers)
            await ear.all_read()
            await other_ear.all_read()
            assert {*ear.heard, *other_ear.heard} == {(topic, "x") for topic in sample}
            assert {*ear.heard.values(), *other_ear.heard.values()} == {1}


async def test_an_orderly_end_does_not_wait_for_anybody(cluster: Cluster) -> None:
    await cluster.whole()
    said = len(cluster["c"].said())
    with Lateness(cluster["a"], cluster["b"]) as late:
        await late.begin()
        began = time.monotonic()
        cluster["c"].signal(signal.SIGTERM)
        assert await cluster["c"].ended() == 0
        assert time.monotonic() - began < 3.0 + await late.so_far()
    # The log names each fruitless wait: for the transfer of slots, for the end of work, for an answer.
    assert not re.search("could not|did not answer", cluster["c"].said()[said:])
