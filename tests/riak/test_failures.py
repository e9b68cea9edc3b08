"""The driver in a cluster with failures: it loses nobody, never hangs, and recovers when the failure ends.

The cluster is the double, whose answers with nodes down are those of a real one (``test_transcripts.py``).
"""

from __future__ import annotations

import asyncio
import time

import pytest

from ingeborg.broker.store.base import Location, StoreUnavailable, Subscribe
from ingeborg.broker.store.riak import RiakStore
from ingeborg.broker.store.riak.layout import Buckets, partition_of, set_root
from ingeborg.broker.store.riak.objects import Address
from ingeborg.broker.store.riak.store import ATTEMPT_TIMEOUT_S, TIMEOUT_S
from tests.cluster.stalls import Stalls
from tests.contract.asking import listen, subscribers

from .conftest import SHORT_ATTEMPTS, StoreOn, give_up_after
from .double import Key, RiakDouble

BUCKETS = Buckets("ingeborg")
TOPICS = [f"song {number}" for number in range(60)]


def key_of(topic: str) -> Key:
    return Key(b"ingeborg", *BUCKETS.partition(*partition_of(topic, 1)))


def primaries(riak: RiakDouble, address: Address) -> list[int]:
    return [place.node for place in riak.memory.preference_list(0, Key(b"ingeborg", *address))]


def topic_with_primaries(riak: RiakDouble, *, on_both: tuple[set[int], set[int]]) -> str:
    """Return a topic with a primary on each side of a network partition."""
    for topic in TOPICS:
        nodes = {place.node for place in riak.memory.preference_list(0, key_of(topic))}
        if nodes & on_both[0] and nodes & on_both[1]:
            return topic
    raise AssertionError("no such topic")


def clients_within_reach(riak: RiakDouble, side: set[int], name: str) -> list[str]:
    """Return five clients whose locations and lists have a primary on that side of a network partition."""
    found = []
    for number in range(100):
        client = f"{name} {number}"
        objects = [BUCKETS.location(client), set_root(BUCKETS.clients, client)]
        if all(side & {*primaries(riak, address)} for address in objects):
            found.append(client)
    return found[:5]


async def refused(store: RiakStore) -> float:
    """Return the seconds until the store says that it is unavailable."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.subscribe([Subscribe("ann", ["rock"])])
    return time.monotonic() - began


# --- one node --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_with_one_node_down_everything_goes_on_and_nobody_is_lost(
    riak: RiakDouble, store_on: StoreOn, number: int
) -> None:
    riak.memory.faults.fallbacks_answer_first = True
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", TOPICS)])
    await riak.nodes[number].kill()
    assert await subscribers(store, TOPICS) == [{"ann"}] * len(TOPICS)
    await store.subscribe([Subscribe("bob", TOPICS)])
    assert await subscribers(store, TOPICS) == [{"ann", "bob"}] * len(TOPICS)
    await riak.restart(number)
    assert await subscribers(store, TOPICS) == [{"ann", "bob"}] * len(TOPICS)


async def test_a_node_killed_in_the_middle_of_a_batch_costs_a_retry_and_nothing_else(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    riak.hold(20)
    batch = asyncio.create_task(store.subscribe([Subscribe("ann", TOPICS)]))
    await riak.busy(8)
    await riak.nodes[1].kill()
    riak.release()
    await batch
    assert await subscribers(store, TOPICS) == [{"ann"}] * len(TOPICS)
    assert store.counters["retries"] > 0
    assert store.counters["unavailable"] == 0


@pytest.mark.parametrize(
    ("behaviour", "counter"), [("hang", "timeouts"), ("close", "connection_failures"), ("overload", "overloads")]
)
async def test_a_node_that_misbehaves_is_worked_around(
    riak: RiakDouble, store_on: StoreOn, behaviour: str, counter: str
) -> None:
    store = await store_on(riak, **SHORT_ATTEMPTS)
    riak.nodes[2].behaviour = behaviour  # type: ignore[assignment]
    await store.subscribe([Subscribe("ann", TOPICS)])
    assert await subscribers(store, TOPICS) == [{"ann"}] * len(TOPICS)
    assert store.counters[counter] > 0
    assert store.counters["unavailable"] == 0


async def test_a_silent_node_is_set_aside_and_comes_back_into_use(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak, **SHORT_ATTEMPTS)
    riak.nodes[0].behaviour = "hang"
    await store.subscribe([Subscribe("ann", TOPICS)])
    assert store.counters["nodes_set_aside"] >= 1
    # One request at a time checks whether it is back; the others go elsewhere, without waiting for it. (There are more
    # checks the longer it takes: if the node were in use, a third of the requests would go to it.)
    asked = riak.nodes[0].requests
    for topic in TOPICS:
        await subscribers(store, [topic])
    assert riak.nodes[0].requests - asked <= len(TOPICS) // 6
    riak.nodes[0].behaviour = "serve"
    asked = riak.nodes[0].requests
    async with asyncio.timeout(60):
        while riak.nodes[0].requests < asked + 20:
            await subscribers(store, TOPICS)


# --- the whole store -------------------------------------------------------------------------------------------------


def test_the_default_limits_leave_time_for_an_answer_within_five_seconds() -> None:
    assert TIMEOUT_S < 5.0
    assert ATTEMPT_TIMEOUT_S * 2 < TIMEOUT_S  # two silent nodes leave time for a third


async def test_the_whole_store_killed_is_unavailable_in_time_and_back_without_a_restart(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", TOPICS)])
    give_up_after(store, 0.6, 0.2)
    for node in riak.nodes:
        await node.kill()
    with Stalls() as stalls:
        assert await refused(store) < 5.0 + stalls.seconds
        # Many concurrent requests fail as fast as one.
        began = time.monotonic()
        outcomes = await asyncio.gather(*(subscribers(store, [topic]) for topic in TOPICS * 3), return_exceptions=True)
        assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert time.monotonic() - began < 5.0 + stalls.seconds
    for number in range(3):
        await riak.restart(number)
    async with asyncio.timeout(60):
        while True:
            try:
                assert await subscribers(store, TOPICS) == [{"ann"}] * len(TOPICS)
                break
            except StoreUnavailable:
                pass
    give_up_after(store, 20.0, 5.0)
    await store.subscribe([Subscribe("bob", ["rock"])])


@pytest.mark.parametrize("behaviour", ["hang", "close", "overload"])
async def test_all_nodes_misbehaving_is_unavailable_in_time(
    riak: RiakDouble, store_on: StoreOn, behaviour: str
) -> None:
    store = await store_on(riak)
    give_up_after(store, 0.6, 0.2)
    for node in riak.nodes:
        node.behaviour = behaviour  # type: ignore[assignment]
    with Stalls() as stalls:
        assert await refused(store) < 5.0 + stalls.seconds
    for node in riak.nodes:
        node.behaviour = "serve"
    async with asyncio.timeout(60):
        while True:
            try:
                await store.subscribe([Subscribe("ann", ["rock"])])
                break
            except StoreUnavailable:
                pass
    give_up_after(store, 20.0, 5.0)
    assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_a_store_opens_with_some_nodes_down_and_not_with_all(riak: RiakDouble, store_on: StoreOn) -> None:
    await riak.nodes[0].kill()
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    await riak.nodes[1].kill()
    await riak.nodes[2].kill()
    with pytest.raises(StoreUnavailable, match=r"no Riak node answers: 127\.0\.0\.1:\d+"):
        await store_on(riak)


# --- false not-founds ----------------------------------------------------------------------------------------


async def test_a_not_found_by_a_primary_and_a_fallback_is_not_believed(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    # One primary is back with an empty disk, another is down, and a fallback that never saw the key stands in for it.
    first, second, third = (place.node for place in riak.memory.preference_list(0, key_of("rock")))
    riak.memory.faults.read_repair = False
    riak.memory.faults.fallbacks_answer_first = True
    riak.memory.wipe(first)
    await riak.nodes[third].kill()
    answer = riak.memory.read(second, key_of("rock"), {"r": 2, "pr": 1, "node_confirms": 0})
    assert not answer.siblings  # the cluster's answer if one primary is enough
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    # And a writer does not start from nothing.
    await store.subscribe([Subscribe("bob", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]


async def test_a_not_found_by_two_of_three_copies_is_not_believed(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    # Two primaries are back with empty disks: two not-founds outvote the only copy left. The test prevents repairs.
    first, second, _ = (place.node for place in riak.memory.preference_list(0, key_of("rock")))
    riak.memory.faults.read_repair = False
    riak.memory.wipe(first)
    riak.memory.wipe(second)
    answer = riak.memory.read(0, key_of("rock"), {"r": 2, "pr": 2, "node_confirms": 0})
    assert not answer.siblings  # the cluster's answer to a single read
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    assert store.counters["notfounds_false"] == 1
    # And a writer does not start from nothing.
    await store.subscribe([Subscribe("bob", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"ann", "bob"}]


async def test_a_not_found_is_asked_again_once_and_then_believed(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    before = store.counters["gets"]
    assert await subscribers(store, ["nobody"]) == [set()]
    assert store.counters["gets"] - before == 2
    assert store.counters["notfounds_confirmed"] >= 1


async def test_without_a_primary_a_read_is_unavailable_instead_of_empty(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        store = await store_on(riak)
        await store.subscribe([Subscribe("ann", ["rock"])])
        primaries = [place.node for place in riak.memory.preference_list(0, key_of("rock"))]
        for number in primaries:
            await riak.nodes[number].kill()
        with pytest.raises(StoreUnavailable, match="pr_val_unsatisfied"):
            await subscribers(store, ["rock"])


# --- cuts ------------------------------------------------------------------------------------------------------------


async def test_two_halves_add_subscribers_and_after_healing_there_is_the_union_in_one_object(
    store_on: StoreOn,
) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        left, right = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2, 3, 4])
        topic = topic_with_primaries(riak, on_both=({0, 1}, {2, 3, 4}))
        on_left, on_right = (clients_within_reach(riak, *side) for side in (({0, 1}, "left"), ({2, 3, 4}, "right")))
        everybody = {*on_left, *on_right}
        assert len(everybody) == 10
        await left.subscribe([Subscribe("before", [topic])])
        riak.memory.cut([0, 1], [2, 3, 4])
        await left.subscribe([Subscribe(client, [topic]) for client in on_left])
        await right.subscribe([Subscribe(client, [topic]) for client in on_right])
        await right.unsubscribe([("before", [topic], None)])
        riak.memory.heal()
        assert len(riak.memory.object(key_of(topic)).siblings) == 2
        (found,) = await subscribers(left, [topic])
        assert everybody <= found <= everybody | {"before"}  # a client may have to repeat an unsubscription
        await left.repaired()
        assert len(riak.memory.object(key_of(topic)).siblings) == 1
        assert left.counters["siblings_found"] >= 1
        assert left.counters["siblings_resolved"] == 1
        await right.unsubscribe([("before", [topic], None)])
        assert await subscribers(right, [topic]) == [everybody]
        assert right.counters["siblings_written"] == 0


async def test_a_node_that_is_cut_off_does_not_answer_with_what_was_before(riak: RiakDouble, store_on: StoreOn) -> None:
    """It has a primary of everything, and stands in for the two others itself: two answers of three, both old."""
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    before = (await listen(store, ["ann"], "i1"))[0]
    riak.memory.cut([0], [1, 2])
    await store.subscribe([Subscribe("bob", ["rock"]), Subscribe("bob", ["jazz"])])
    after = (await listen(store, ["ann"], "i2"))[0]
    assert after.rank > before.rank
    for _ in range(6):  # the nodes take turns
        assert await subscribers(store, ["rock", "jazz"]) == [{"ann", "bob"}, {"bob"}]
        assert await store.locations(["ann"]) == [after]
    assert store.counters["reads_of_few"] == 0


async def test_nor_does_one_that_has_two_of_the_three_primaries(riak: RiakDouble, store_on: StoreOn) -> None:
    """If the nodes share the ring unevenly, some keys have two copies on one node. Then no other node reaches two."""
    store = await store_on(riak)
    clients = [f"client {number}" for number in range(100)]
    here = [client for client in clients if primaries(riak, BUCKETS.location(client)).count(0) == 2]
    assert here
    await listen(store, here, "i1")
    riak.memory.cut([0], [1, 2])
    after = await listen(store, here, "i2")
    for _ in range(6):  # the nodes take turns
        assert await store.locations(here) == after
    assert store.counters["reads_of_few"] > 0


async def test_nor_is_it_missed_by_many_reads_at_once(riak: RiakDouble, store_on: StoreOn) -> None:
    """With that node dead, the others refuse reads of keys with two primaries on it; then one primary is enough."""
    topics = [f"topic {number}" for number in range(400)]
    writer = await store_on(riak)
    await writer.subscribe([Subscribe("ann", topics)])
    await riak.nodes[0].kill()
    store = await store_on(riak, nodes=[1, 2], timeout_s=30.0, attempt_timeout_s=10.0)
    assert await subscribers(store, topics) == [{"ann"}] * 400
    few = store.counters["reads_of_few"]
    assert few > 0
    assert store.counters["refusals"] == 2 * few
    assert store.counters["unavailable"] == 0


async def test_where_no_node_reaches_two_primaries_one_will_do(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak, timeout_s=30.0, attempt_timeout_s=10.0)
    await store.subscribe([Subscribe("ann", ["rock"])])
    for number in (0, 2):
        await riak.nodes[number].kill()
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    assert store.counters["reads_of_few"] == 1


async def test_a_writer_cut_off_with_one_machine_is_told_so_and_confirms_nothing(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    # Without node_confirms, two copies on the one remaining machine would satisfy w=2. The driver asks for it in every
    # write, even if the type has it.
    riak.memory.create_type("ingeborg")
    lonely = await store_on(riak, nodes=[2])
    riak.memory.cut([0, 1], [2])
    with pytest.raises(StoreUnavailable, match="node_confirms_val_unsatisfied,2,1"):
        await lonely.subscribe([Subscribe("ann", ["rock"])])
    await (await store_on(riak, nodes=[0, 1])).subscribe([Subscribe("bob", ["rock"])])
    riak.memory.heal()
    assert {"bob"} <= (await subscribers(lonely, ["rock"]))[0]


async def test_what_may_be_on_one_machine_only_is_written_again_before_it_is_confirmed(
    riak: RiakDouble, store_on: StoreOn
) -> None:
    store = await store_on(riak, nodes=[0])
    give_up_after(store, 1.5, 1.5)
    riak.memory.faults.read_repair = False
    await riak.nodes[1].kill()
    await riak.nodes[2].kill()
    riak.nodes[0].behaviour = "mute"
    await refused(store)  # no node confirmed the write, and yet it is on node 0
    give_up_after(store, 20.0, 5.0)
    assert len(riak.memory.object(key_of("rock")).siblings) == 1
    riak.nodes[0].behaviour = "serve"
    await riak.nodes[1].start()
    await riak.nodes[2].start()
    await store.subscribe([Subscribe("ann", ["rock"])])  # found there, but not safe until it is on two machines
    riak.memory.wipe(0)
    assert await subscribers(store, ["rock"]) == [{"ann"}]


async def test_a_late_unlisten_cannot_undo_a_newer_listen(store_on: StoreOn) -> None:
    async with RiakDouble(nodes=5) as riak:
        riak.create_broker_types()
        left, right = await store_on(riak, nodes=[0, 1]), await store_on(riak, nodes=[2, 3, 4])
        for number in range(60):
            client = f"ann {number}"
            key = Key(b"ingeborg", *BUCKETS.location(client))
            nodes = {place.node for place in riak.memory.preference_list(0, key)}
            if nodes & {0, 1} and nodes & {2, 3, 4}:
                break
        (old,) = await listen(left, [client], "left")
        riak.memory.cut([0, 1], [2, 3, 4])
        (new,) = await listen(right, [client], "right")
        await left.unlisten([(client, old)])  # later by the clock, without knowing of the new one
        riak.memory.heal()
        assert new == Location(new.number, "right", True)
        assert new.number > old.number
        assert await left.locations([client]) == [new]
        await left.repaired()
        assert len(riak.memory.object(key).siblings) == 1
        assert await right.locations([client]) == [new]


# --- concurrency -----------------------------------------------------------------------------------------------------


async def test_a_subscribe_of_ten_thousand_topics_keeps_the_pool_busy(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak, connections_per_node=8)
    riak.hold(24)  # answers only once 24 requests are under way: one by one this would never end
    await store.subscribe([Subscribe("ann", [f"song {number}" for number in range(10_000)])])
    assert riak.in_flight_max == 24
    # 10,000 topics, 4,096 partitions: each object is written once for any number of the batch's topics.
    assert store.counters["puts"] < 4096 + 50


async def test_changes_to_one_object_share_writes_and_make_no_siblings(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    before = store.counters["puts"]
    await asyncio.gather(*(store.subscribe([Subscribe(f"client {number}", ["rock"])]) for number in range(200)))
    assert store.counters["puts"] - before - 200 <= 5  # 200 objects of clients; the topic's take a few
    assert store.counters["changes_grouped"] >= 195
    assert store.counters["siblings_found"] == store.counters["siblings_written"] == 0
    assert len((await subscribers(store, ["rock"]))[0]) == 200


# --- other processes --------------------------------------------------------------------------------------------------


async def test_an_object_somebody_else_deleted_is_an_empty_set(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    stored = riak.memory.object(key_of("rock"))
    tombstone = {"value": b"", "vtag": b"t" * 22, "deleted": True}
    riak.memory.write(0, key_of("rock"), stored.vector, tombstone, {})
    assert await subscribers(store, ["rock"]) == [set()]
    await store.subscribe([Subscribe("bob", ["rock"])])
    assert await subscribers(store, ["rock"]) == [{"bob"}]
    assert len(riak.memory.object(key_of("rock")).siblings) == 1


async def test_a_tombstone_beside_a_set_counts_as_the_empty_set(riak: RiakDouble, store_on: StoreOn) -> None:
    store = await store_on(riak)
    await store.subscribe([Subscribe("ann", ["rock"])])
    riak.memory.write(0, key_of("rock"), {}, {"value": b"", "vtag": b"t" * 22, "deleted": True}, {})
    assert len(riak.memory.object(key_of("rock")).siblings) == 2
    assert await subscribers(store, ["rock"]) == [{"ann"}]
    await store.repaired()
    (sibling,) = riak.memory.object(key_of("rock")).siblings
    assert not sibling.deleted
