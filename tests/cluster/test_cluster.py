"""Three endpoints that all stay alive: who receives which messages, how often, from where. SPEC sections 2, 7 and 8."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from itertools import product

import pytest
from websockets.asyncio.client import connect

from ingeborg.protocol.client import Client, ClosedForGood

from .processes import PATIENCE_S, Cluster
from .stalls import TRIES
from .traffic import Ear, Message, each

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

DEDUP_TTL_S = 2.0
SERVE_OPTIONS = ["--dedup-ttl", str(DEDUP_TTL_S)]


async def test_a_subscriber_at_any_endpoint_hears_a_publisher_at_any(cluster: Cluster) -> None:
    ears = {name: Ear(cluster[name].url, f"pair {name}") for name in "abc"}
    publishers = {name: Client(cluster[name].url, f"pair publisher {name}") for name in "abc"}
    for_all = [f"for all {number}" for number in range(30)]
    topics = {pair: [f"pair {pair} {number}" for number in range(30)] for pair in product("abc", repeat=2)}
    async with AsyncExitStack() as stack:
        for ear in ears.values():
            await stack.enter_async_context(ear)
        for publisher in publishers.values():
            await stack.enter_async_context(publisher)
        for name, ear in ears.items():
            mine = [topic for (subscriber, _), its in topics.items() if subscriber == name for topic in its]
            await ear.client.subscribe(mine + for_all)
        for pair, its in topics.items():
            assert {cluster.home(topic) for topic in its} == {"a", "b", "c"}, pair

        jobs = [(publishers[publisher], topic, publisher) for (_, publisher), its in topics.items() for topic in its]
        jobs += [(client, topic, name) for name, client in publishers.items() for topic in for_all]
        answers = await each(len(jobs), lambda job: jobs[job][0].publish(jobs[job][1], jobs[job][2], ack=True))
        assert not any(answers)
        for name, ear in ears.items():
            await ear.all_read()
            expected: Counter[Message] = Counter((topic, publisher) for topic in for_all for publisher in "abc")
            expected.update((topic, pub) for (sub, pub), its in topics.items() if sub == name for topic in its)
            assert ear.heard == expected


async def test_a_thousand_identical_publishes_are_one_until_they_pause_for_the_time_to_live(cluster: Cluster) -> None:
    ears = {name: Ear(cluster[name].url, f"duplicates {name}") for name in "abc"}
    publishers = [Client(cluster[name].url, f"duplicates publisher {name}") for name in "abc"]
    topics = {home: cluster.topics_at_home(home, "duplicates", 1)[0] for home in "abc"}
    async with AsyncExitStack() as stack:
        for ear in ears.values():
            await stack.enter_async_context(ear)
        for publisher in publishers:
            await stack.enter_async_context(publisher)
        for ear in ears.values():
            await ear.client.subscribe(list(topics.values()))

        for number in range(TRIES):
            if await _once_until_they_pause(list(topics.values()), f"news {number}", publishers, list(ears.values())):
                break
        else:
            raise AssertionError(f"in {TRIES} tries this machine was never quick enough to show anything")


async def _once_until_they_pause(topics: list[str], news: str, publishers: list[Client], ears: list[Ear]) -> bool:
    """False: this machine left more than the time-to-live between two publishes that were due within it."""
    slow = False
    began_at = math.inf  # the previous round's

    async def round_of(publishes: Iterable[Awaitable[bool | None]], expected: dict[bool, int]) -> None:
        """Publish at once, and within the time-to-live from the previous round."""
        nonlocal began_at, slow
        before, began_at = began_at, time.monotonic()
        answers = Counter(await asyncio.gather(*publishes))
        slow = slow or time.monotonic() - min(before, began_at) >= DEDUP_TTL_S
        assert slow or answers == expected

    async def everywhere(expected: dict[bool, int]) -> None:
        await round_of((client.publish(topic, news, ack=True) for client in publishers for topic in topics), expected)

    async def heard(times: int) -> None:
        for ear in ears:
            await ear.all_read()
            its = {message: count for message, count in ear.heard.items() if message[1] == news}
            assert slow or its == {(topic, news): times for topic in topics}

    for first in range(0, 1000, 50):
        flood = (publishers[number % 3].publish(topics[0], news, ack=True) for number in range(first, first + 50))
        await round_of(flood, {True: 49, False: 1} if first == 0 else {True: 50})
    await everywhere({True: 3 + 2 * 2, False: 2})
    await heard(1)

    # Twice most of the time-to-live: longer than it in total, so only the drop in between can have extended it.
    for _ in range(2):
        await asyncio.sleep(0.7 * DEDUP_TTL_S)
        await everywhere({True: 9})
    await heard(1)

    await asyncio.sleep(DEDUP_TTL_S + 0.1)
    began_at = math.inf
    await everywhere({True: 6, False: 3})
    await heard(2)
    return not slow


TRIALS = 300


async def test_what_was_answered_with_success_holds_at_every_endpoint(cluster: Cluster) -> None:
    """Subscribe or listen at one endpoint, then publish at another: received, 300 times out of 300."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    publishers = {name: Client(cluster[name].url, f"holds publisher {name}") for name in "abc"}
    topics = [f"holds {number}" for number in range(40)]
    trials = iter(range(TRIALS))
    passed: Counter[str] = Counter()
    done = asyncio.Event()

    async def try_on(worker: int) -> None:
        chance = random.Random(f"{seed} {worker}")
        ear = Ear(cluster[chance.choice("abc")].url, f"holds {worker}")
        await ear.client.connect()
        for trial in trials:
            topic = chance.choice(topics)
            if chance.random() < 0.5:
                kind = "subscribe"
                await ear.client.unsubscribe(topic)
                await ear.client.subscribe(topic)
            else:
                kind = "listen"
                await ear.client.subscribe(topic)
                former, ear = ear, Ear(cluster[chance.choice("abc")].url, f"holds {worker}")
                await ear.client.connect()  # listens
                await former.client.close()
            await publishers[chance.choice("abc")].publish(topic, trial, ack=True)
            await ear.all_read()
            assert ear.heard[topic, trial] == 1, (kind, trial, topic)
            passed[kind] += 1
        await ear.client.close()

    async def churn(number: int) -> None:
        """Act as another client: change subscriptions to the same topics, move, unlisten."""
        chance = random.Random(f"{seed} churn {number}")
        while not done.is_set():
            async with Ear(cluster[chance.choice("abc")].url, f"holds churn {number}") as ear:
                for _ in range(5):
                    some = chance.sample(topics, 10)
                    await ear.client.subscribe(some[:7])
                    await ear.client.unsubscribe(some[3:])
                if chance.random() < 0.5:
                    await ear.client.unlisten()

    async with AsyncExitStack() as stack:
        for client in publishers.values():
            await stack.enter_async_context(client)
        async with asyncio.TaskGroup() as churning:
            for number in range(6):
                churning.create_task(churn(number))
            try:
                async with asyncio.TaskGroup() as working:
                    for worker in range(12):
                        working.create_task(try_on(worker))
            finally:
                done.set()
    assert passed.total() == TRIALS
    assert min(passed.values()) > TRIALS / 4


async def test_a_client_that_listens_elsewhere_is_heard_there_and_its_old_connection_ends(cluster: Cluster) -> None:
    async with (
        Ear(cluster["a"].url, "mover") as old,
        Client(cluster["c"].url, "mover's friend") as friend,
    ):
        await old.client.subscribe("moves")
        assert await friend.publish("moves", "before", ack=True) is False
        async with Ear(cluster["b"].url, "mover") as new:
            assert await friend.publish("moves", "after", ack=True) is False
            await new.all_read()
            assert new.heard == {("moves", "after"): 1}

            async def ask_on() -> None:
                while True:
                    await old.all_read()

            with pytest.raises(ClosedForGood) as ended:
                await asyncio.wait_for(ask_on(), PATIENCE_S)
            assert ended.value.code == 4001
            assert old.heard == {("moves", "before"): 1}


async def test_a_broadcast_reaches_every_listening_client_of_every_endpoint_once(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        ears = [
            await stack.enter_async_context(Ear(cluster[name].url, f"crowd {name} {number}"))
            for name in "abc"
            for number in range(5)
        ]
        deaf = await stack.enter_async_context(Ear(cluster["b"].url, "deaf", listen=False))
        left = await stack.enter_async_context(Ear(cluster["b"].url, "left"))
        await left.client.unlisten()
        publishers = [
            await stack.enter_async_context(Client(cluster[name].url, f"crier {name}", timeout_s=20)) for name in "abc"
        ]
        answers = await asyncio.gather(*(client.broadcast("hear ye", ack=True) for client in publishers))
        assert Counter(answers) == {True: 2, False: 1}
        assert await publishers[1].broadcast("and this", ack=True) is False
        for ear in (*ears, deaf, left):
            await ear.all_read()
        for ear in ears:
            assert ear.heard == {(None, "hear ye"): 1, (None, "and this"): 1}
        assert deaf.heard == left.heard == {}


async def test_a_gateway_carries_many_clients_on_one_connection(cluster: Cluster) -> None:
    clients = [f"behind the gateway {number}" for number in range(200)]
    async with (
        connect(cluster["a"].url, compression=None) as gateway,
        Client(cluster["b"].url, "gateway's friend", timeout_s=20) as friend,
    ):

        async def replies(count: int) -> list[object]:
            async with asyncio.timeout(20):
                return [json.loads(await gateway.recv()) for _ in range(count)]

        for number, client in enumerate(clients):
            await gateway.send(json.dumps({"command": "listen", "client_id": client, "id": number}))
        assert await replies(200) == [{"result": "success", "id": number} for number in range(200)]
        for client in clients:
            topic = [f"gateway {client}", "gateway all"]
            await gateway.send(json.dumps({"command": "subscribe", "client_id": client, "topic": topic}))
        assert await replies(200) == [{"result": "success"}] * 200

        answers = await each(200, lambda number: friend.publish(f"gateway {clients[number]}", number, ack=True))
        assert not any(answers)
        got = await replies(200)
        assert sorted(got, key=lambda message: message["broadcast"]) == [  # type: ignore[index]
            {"key": f"gateway {client}", "broadcast": number} for number, client in enumerate(clients)
        ]
        # One client moves: its connection stays, without the client.
        async with Ear(cluster["c"].url, clients[0]) as gone:
            await friend.publish("gateway all", "for everybody", ack=True)
            await gone.all_read()
            assert gone.heard == {("gateway all", "for everybody"): 1}
            await gateway.send(json.dumps({"command": "unlisten", "client_id": clients[1], "id": "fence"}))
            got = await replies(200)
            assert got == [{"key": "gateway all", "broadcast": "for everybody"}] * 199 + [
                {"result": "success", "id": "fence"}
            ]


CLIENTS, TOPICS, MESSAGES, SUBSCRIPTIONS_EACH = 60, 2_000, 20_000, 60

#: The most that an endpoint can grow by in that run: 2,000 routes, 60 locations and 20,000 duplicate keys are a tenth.
GROWTH_BYTES_MAX = 64 << 20


@pytest.mark.slow
async def test_a_busy_cluster_loses_nothing_and_doubles_nothing(cluster: Cluster) -> None:
    chance = random.Random(2)
    topics = [f"busy {number}" for number in range(TOPICS)]
    wanted = {f"busy {number}": chance.sample(topics, SUBSCRIPTIONS_EACH) for number in range(CLIENTS)}
    ears = [Ear(cluster["abc"[number % 3]].url, client) for number, client in enumerate(wanted)]
    async with AsyncExitStack() as stack:
        for ear in ears:
            await stack.enter_async_context(ear)
        await each(CLIENTS, lambda number: ears[number].client.subscribe(wanted[f"busy {number}"]))
        before = {name: await cluster[name].metrics() for name in "abc"}
        published = [(chance.choice(topics), number) for number in range(MESSAGES)]

        async def publish(ear: Ear, messages: list[tuple[str, int]]) -> None:
            for topic, number in messages:
                await ear.client.publish(topic, number)

        began = time.monotonic()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number, ear in enumerate(ears):
                group.create_task(publish(ear, published[number::CLIENTS]))
        expected = {
            client: {message for message in published if message[0] in set(its)} for client, its in wanted.items()
        }
        for ear in ears:
            await ear.hears(expected[str(ear.client.client_id)], within_s=60)
        took_s = time.monotonic() - began
        await cluster.idle()
        for ear in ears:
            await ear.all_read()
            assert ear.heard == dict.fromkeys(expected[str(ear.client.client_id)], 1)
            assert not ear.client.error_counts

    deliveries = sum(map(len, expected.values()))
    print(f"{MESSAGES} messages in, {deliveries} out, {took_s:.1f} s")
    for name in "abc":
        after = await cluster[name].metrics()
        assert after["drops_total"] == before[name]["drops_total"]
        assert after["process_resident_memory_bytes"] - before[name]["process_resident_memory_bytes"] < GROWTH_BYTES_MAX
