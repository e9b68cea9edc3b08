"""Subscriptions with filters, from the view of clients of two real endpoints. SPEC section 2.6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingeborg.broker.access.tokens import make_token, new_keys
from ingeborg.broker.core.model import FILTERS_MAX
from ingeborg.protocol.client import Client
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.listings import Subscriber, Subscription
from tests.broker.running import ingeborg, plain, serving

from .processes import PATIENCE_S, Cluster, cluster_of

pytestmark = pytest.mark.cluster

PIZZA = {"food": ["pizza"], "discount": [{"numeric": [">=", 30]}]}
PASTA = {"food": ["pasta"]}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster_of("ab", tmp_path) as cluster:
        yield cluster


async def heard(client: Client, topic: str, publisher: Client, *payloads: Any) -> list[Any]:
    """Publish these, and return those that the client got."""
    for payload in payloads:
        await publisher.publish(topic, payload, ack=True, dedup="retry")
    await publisher.publish(topic, {"end": 1}, ack=True, dedup="retry")
    found = []
    async with asyncio.timeout(PATIENCE_S):
        while (payload := (await anext(client)).broadcast) != {"end": 1}:
            found.append(payload)
    return found


@pytest.mark.parametrize("home", ["a", "b"])
async def test_a_client_has_several_filters_one_instead_of_all_and_takes_one_back(cluster: Cluster, home: str) -> None:
    (topic,) = cluster.topics_at_home(home, "offers", 1)
    urls = [cluster[name].url for name in "ab"]
    offers = [{"food": "pizza", "discount": 30}, {"food": "pizza", "discount": 29}, {"food": "pasta"}, "text"]
    async with Client(urls[0], "ann", listen=True) as ann, Client(urls[1], "radio") as radio:
        await ann.subscribe(topic, filter={"end": [1]})
        assert await heard(ann, topic, radio, *offers) == []
        await ann.subscribe(topic, filter=PIZZA)
        # it has that already
        await ann.subscribe([topic], filter={**PIZZA, "discount": [{"numeric": [">=", 30.0]}] * 2})
        assert await heard(ann, topic, radio, *offers) == offers[:1]
        await ann.subscribe(topic, filter=PASTA)
        found = [each async for each in ann.subscriptions()]
        assert found == [Subscription(topic, filter) for filter in (PIZZA, {"end": [1]}, PASTA)]
        assert await heard(ann, topic, radio, *offers) == [offers[0], offers[2]]
        await ann.unsubscribe(topic, filter=PIZZA)
        assert await heard(ann, topic, radio, *offers) == [offers[2]]
        await ann.subscribe(topic)  # all, regardless of the filters
        assert await heard(ann, topic, radio, *offers) == offers
        await ann.subscribe(topic, filter={"$or": [PIZZA, {"end": [1]}]}, replace=True)
        assert await heard(ann, topic, radio, *offers) == offers[:1]
        await ann.subscribe(topic, replace=True)  # all, replacing the filter
        assert await heard(ann, topic, radio, *offers) == offers
        assert [each async for each in ann.subscriptions()] == [Subscription(topic)]
        await ann.unsubscribe(topic)
        assert [each async for each in ann.subscriptions()] == []
        await ann.subscribe(topic, filter={"end": [1]})
        assert await heard(ann, topic, radio, *offers) == []


async def test_a_filter_outlives_its_connection_and_the_endpoints(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url), Client(url, "ann") as ann:
        await ann.subscribe("offers", filter=PASTA)
    async with serving(tmp_path) as (_, url), Client(url, "ann", listen=True) as ann, Client(url, "radio") as radio:
        await ann.subscribe("offers", filter={"end": [1]})
        assert await heard(ann, "offers", radio, {"food": "pizza"}, {"food": "pasta"}) == [{"food": "pasta"}]
    store = f"lmdb:{tmp_path / 'store'}"
    async with ingeborg(tmp_path, "export", "--store", store, str(tmp_path / "all.jsonl")) as run:
        assert await run.ended() == 0
    line = orjson.loads((tmp_path / "all.jsonl").read_text(encoding="utf-8"))
    assert (line["topic"], line.get("client_ids")) == ("offers", None)
    for filter in ({"end": [1]}, PASTA):
        line["subscriptions"].remove({"client_id": "ann", "filter": filter})
    assert line["subscriptions"] == []


async def test_what_ends_takes_nothing_along_that_the_client_has_beside_it(tmp_path: Path) -> None:
    async with serving(tmp_path, "--grace", "1") as (_, url), Client(url, "ann", listen=True) as ann:
        await ann.subscribe("offers", until="disconnect")
        await ann.subscribe("offers", filter=PIZZA, until="disconnect")
        await ann.subscribe("offers", filter=PASTA)
        async with plain(url) as other:
            rows = (await other.ask({"command": "subscribers", "client_id": "ops", "topic": "offers"}))["subscribers"]
            until = {"until": "disconnect"}
            assert rows[0]["subscriptions"] == [until, {"filter": PIZZA, **until}, {"filter": PASTA}]
            assert "filtered" not in rows[0]
        await ann.unlisten()
        async with asyncio.timeout(PATIENCE_S):
            while (row := await anext(ann.subscribers("offers"))) != Subscriber("ann", False, True):
                assert row == Subscriber("ann", False)
                await asyncio.sleep(0.05)
        assert [each async for each in ann.subscriptions()] == [Subscription("offers", PASTA)]


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url), Client(url, "ann") as ann, plain(url) as raw:
        for number in range(FILTERS_MAX):
            await ann.subscribe("offers", filter={"number": [number]})
        with pytest.raises(ProtocolError, match="64") as refused:
            await ann.subscribe("offers", filter={"number": ["one too many"]})
        assert refused.value.code == "too_many_topics"
        await ann.subscribe("offers", filter={"number": [0]})  # it arrived
        command = {"command": "subscribe", "client_id": "ann", "topic": "t", "id": 1}
        for fields, code, words in (
            ({"filter": {"price": [{"like": 1}]}}, "bad_filter", "price[0].like: is no operator"),
            ({"filter": {"price": [1]}, "ttl_s": 0}, "bad_state", "'ttl_s'"),
            ({"filter": {"price": [1]}, "replace": 1}, "bad_state", "'replace'"),
        ):
            reply = await raw.ask({**command, **fields})
            assert (reply["error"], words in reply["info"]) == (code, True), reply
        assert len([each async for each in ann.subscriptions()]) == FILTERS_MAX


async def test_a_filter_wants_the_permission_to_subscribe_and_counts_its_topic_once(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    new_keys(keys)
    token = make_token(keys, "ann", subscribe=["offers", "more"], presence=["offers"])
    (tmp_path / "two.toml").write_text("max-subscriptions = 2\n", encoding="utf-8")
    options = ("--auth-keys", str(keys), "--config", str(tmp_path / "two.toml"))
    async with serving(tmp_path, *options) as (_, url), Client(url, "ann", token=token) as ann:
        for command in (ann.subscribe, ann.unsubscribe):
            await command("offers", filter=PIZZA)
        for replace in (False, True):
            with pytest.raises(ProtocolError, match="forbidden"):
                await ann.subscribe(["offers", "secret"], filter=PIZZA, replace=replace)
        await ann.subscribe("offers", filter=PIZZA)
        await ann.subscribe("offers", filter=PASTA)
        await ann.subscribe("more", filter=PASTA)
        with pytest.raises(ProtocolError, match="too_many_topics"):
            await ann.subscribe("more of them", filter=PASTA)
        assert {each.topic async for each in ann.subscriptions()} == {"more", "offers"}
        # Without `inspect` it learns that there are only filters, but not which.
        assert [each async for each in ann.subscribers("offers")] == [Subscriber("ann", False, True)]
        async with plain(f"{url}?access_token={token}") as raw:
            row = (await raw.ask({"command": "subscribers", "client_id": "ann", "topic": "offers"}))["subscribers"][0]
        assert row == {"client_id": "ann", "online": False, "filtered": True}


async def test_with_lookup_routing_there_are_none(tmp_path: Path) -> None:
    async with serving(tmp_path, "--routing", "lookup") as (_, url), Client(url, "ann") as ann:
        with pytest.raises(ProtocolError, match=r"bad_state: .*lookup"):
            await ann.subscribe("offers", filter=PIZZA)
