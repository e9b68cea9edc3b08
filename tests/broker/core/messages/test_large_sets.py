"""Topics with many subscribers: they leave room for others, and their lists cross a link once per version."""

from __future__ import annotations

from itertools import pairwise

from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.messages import location_resolver

from ..talk import Cluster, Talker, parse


def test_a_message_for_many_leaves_room_for_others_and_keeps_its_topic_s_order() -> None:
    cluster = Cluster("a")
    crowd = cluster.client("0", "a")
    for command in ({"command": "listen"}, {"command": "subscribe", "topic": "hot"}):
        for number in range(3 * SIZES.delivery_slice):
            crowd.send(**command, client_id=str(number))
    anna = cluster.listener("anna", "a", "t")
    cluster.world.run(2.0)
    bob = cluster.client("bob", "a")
    bob.say("publish hot 'warm' #0", "publish t 'warm' #1")
    crowd.heard.clear()
    anna.heard.clear()
    for payload in ("first", "second"):
        bob.send(**parse(f"publish hot '{payload}' #1"))
    bob.send(**parse("publish t 'between' #2"))
    router = cluster.nodes["a"].router
    sent = router.counters.counts["messages_delivered"]
    cluster.world.run(0.0105)
    assert router._jobs
    assert router.counters.counts["messages_delivered"] - sent <= SIZES.delivery_slice + 1
    assert bob.hear() == ["ok 1", "ok 1", "ok 2"]
    assert anna.heard == ["t: 'between'"]
    assert crowd.heard == ["hot: 'first'"] * 3 * SIZES.delivery_slice + ["hot: 'second'"] * 3 * SIZES.delivery_slice


def test_messages_for_many_wait_until_fewer_names_are_under_way() -> None:
    cluster = Cluster("a", sizes=Sizes(recipients_max=SIZES.delivery_slice))
    topics = ["w", "x", "y", "z"]
    crowd = cluster.client("0", "a")
    for command in ({"command": "listen"}, {"command": "subscribe", "topic": topics[:3]}):
        for number in range(SIZES.delivery_slice + 1):
            crowd.send(**command, client_id=str(number))
    anna = cluster.listener("anna", "a", topics[3])
    cluster.world.run(5.0)
    bert, carl = cluster.client("bert", "a"), cluster.client("carl", "a")
    bert.say(*(f"publish {topic} 'warm'" for topic in topics))
    crowd.notes.clear()
    part = cluster.nodes["a"].router._home
    for number, topic in enumerate(topics[:3]):
        bert.send(**parse(f"publish {topic} 'news' #{number}"))
    carl.send(**parse(f"publish {topics[3]} 'news' #3"))
    most, anna_at_s = 0, None
    while len(bert.replies) < 7:
        cluster.world.run(0.001)
        most = max(most, part._resolver.recipients)
        if anna_at_s is None and len(anna.notes) == 2:
            anna_at_s = cluster.world.now
    assert most == SIZES.delivery_slice + 1  # one message at a time
    assert part._resolver.recipients == 0
    assert bert.heard[4:] == ["ok 0", "ok 1", "ok 2"]
    assert anna_at_s is not None
    assert anna_at_s < bert.replies[4][0]  # a topic with few subscribers does not wait
    assert [note[1:] for note in crowd.notes].count((topics[2], "news")) == SIZES.delivery_slice + 1
    assert len(crowd.notes) == 3 * (SIZES.delivery_slice + 1)


def test_messages_that_wait_for_one_answer_of_the_store_go_on_in_several_turns() -> None:
    subscribers, messages = 5 * location_resolver.FEW, 200
    cluster = Cluster("a", sizes=Sizes(places_per_turn=1_000))
    crowd = cluster.client("0", "a")
    for command in ({"command": "listen"}, {"command": "subscribe", "topic": "hot"}):
        for number in range(subscribers):
            crowd.send(**command, client_id=str(number))
    cluster.world.run(5.0)
    crowd.notes.clear()
    node = cluster.nodes["a"]
    delivered = [node.router.counters.counts["messages_delivered"]]
    node.on_turn = lambda: delivered.append(node.router.counters.counts["messages_delivered"])
    bert = cluster.client("bert", "a")
    for number in range(messages):
        bert.send(**parse(f"publish hot '{number}' #{number}"))
    assert bert.hear() == [f"ok {number}" for number in range(messages)]
    turns = [after - before for before, after in pairwise(delivered)]
    assert sum(turns) == len(crowd.notes) == subscribers * messages
    assert max(turns) <= 1_000 + subscribers
    payloads = [note[-1] for note in crowd.notes]
    assert payloads == [str(number) for number in range(messages) for _ in range(subscribers)]


def forwarding(subscribers: int, sizes: Sizes = SIZES) -> tuple[Cluster, Talker, Talker, str]:
    """Return a topic's home and its many subscribers at another endpoint, which has had two messages."""
    cluster = Cluster("a", "b", sizes=sizes)
    topic = cluster.topic_at("b")
    crowd = cluster.client("0", "a")
    for command in ({"command": "listen"}, {"command": "subscribe", "topic": topic}):
        for number in range(subscribers):
            crowd.send(**command, client_id=str(number))
    cluster.world.run(20.0)
    assert crowd.heard == ["ok"] * 2 * subscribers
    bert = cluster.client("bert", "b")
    assert bert.say(f"publish {topic} 'first'", f"publish {topic} 'second'") == ["ok", "ok"]
    return cluster, crowd, bert, topic


def test_a_large_set_is_sent_once_for_each_version() -> None:
    cluster, crowd, bert, topic = forwarding(SIZES.delivery_slice + 2)
    home = cluster.nodes["b"].router
    assert (home.counters.counts["messages_forwarded"], home.counters.counts["lists_sent"]) == (2, 1)
    crowd.send(command="unsubscribe", topic=topic, client_id="7")
    crowd.hear()
    crowd.notes.clear()
    assert bert.say(*(f"publish {topic} '{number}'" for number in range(3))) == ["ok"] * 3
    assert (home.counters.counts["messages_forwarded"], home.counters.counts["lists_sent"]) == (5, 2)
    assert len(crowd.notes) == 3 * (SIZES.delivery_slice + 1)
    cluster.client("0", "b").send(command="listen", client_id="8")  # that client has moved
    crowd.hear()
    crowd.notes.clear()
    assert bert.say(f"publish {topic} '3'", f"publish {topic} '4'") == ["ok"] * 2
    assert len(crowd.notes) == 2 * SIZES.delivery_slice
    assert home.counters.counts["lists_sent"] == 2  # a slice travels as it is


def test_a_set_that_was_not_kept_for_want_of_room_is_sent_again() -> None:
    cluster, crowd, _, _ = forwarding(SIZES.delivery_slice + 1, Sizes(list_ids_max=SIZES.delivery_slice))
    assert cluster.nodes["b"].router.counters.counts["lists_sent"] == 2
    assert len(crowd.notes) == 2 * (SIZES.delivery_slice + 1)


def test_a_set_kept_before_the_link_began_afresh_is_sent_again() -> None:
    cluster, crowd, bert, topic = forwarding(SIZES.delivery_slice + 1)
    cluster.world.cut("a", "b", 10.0)
    cluster.world.cut("b", "a", 10.0)
    cluster.world.run(7.0)
    crowd.notes.clear()
    bert.send(**parse(f"publish {topic} 'meanwhile'"))  # over the old link, and over the new one again
    cluster.world.run(6.0)
    assert bert.heard[2:] == ["ok"]
    assert bert.say(f"publish {topic} 'afterwards'") == ["ok"]
    assert [note[2] for note in crowd.notes].count("meanwhile") == SIZES.delivery_slice + 1
    assert [note[2] for note in crowd.notes].count("afterwards") == SIZES.delivery_slice + 1
    assert cluster.nodes["b"].router.counters.counts["lists_sent"] == 2
