"""The limit of topics for a client. SPEC section 1.4. First among endpoints, then the count alone."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Connection, Reply
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.limits import SIZES, Limits, Sizes
from ingeborg.broker.core.model import StoreUnavailable
from ingeborg.broker.core.topics import quota
from ingeborg.broker.core.topics.change import Change
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import PAGE_LIMIT_MAX

from ..fake_desk import FakeDesk, Stored
from ..surroundings import packed
from ..talk import Cluster, Talker


def talkers(limit: int, sizes: Sizes = SIZES) -> tuple[Cluster, Talker, Talker]:
    cluster = Cluster("a", "b", limits=Limits(subscriptions=limit), sizes=sizes)
    return cluster, cluster.client("anna", "a"), cluster.client("bert", "b")


def topics(first: int, end: int) -> list[str]:
    return [f"t{number}" for number in range(first, end)]


def test_a_client_may_have_as_many_as_that_and_no_more() -> None:
    cluster, anna, bert = talkers(4)
    assert anna.say(f"subscribe {','.join(topics(0, 4))}") == ["ok"]
    assert anna.say("subscribe t4") == ["error too_many_topics"]
    assert anna.say("subscribe t3,t4") == ["error too_many_topics"]
    assert bert.say("subscribe t4") == ["ok"]
    assert sorted(cluster.world.store.topics("anna", None, 9)[0]) == topics(0, 4)


def test_subscribing_again_adds_nothing() -> None:
    _, anna, _ = talkers(4)
    anna.say(f"subscribe {','.join(topics(0, 4))}")
    assert anna.say("subscribe t1", f"subscribe {','.join(topics(0, 4))}", "subscribe t1,t1") == ["ok", "ok", "ok"]


def test_who_has_taken_some_back_may_have_others() -> None:
    _, anna, _ = talkers(2)
    assert anna.say("subscribe t0,t1", "unsubscribe t0", "subscribe t2", "subscribe t3") == [
        *("ok", "ok", "ok"),
        "error too_many_topics",
    ]


def test_commands_sent_at_once_are_counted_one_after_the_other() -> None:
    cluster, anna, _ = talkers(3)
    assert anna.say(*(f"subscribe t{number} #{number}" for number in range(5))) == [
        *("ok 0", "ok 1", "ok 2"),
        *("error too_many_topics 3", "error too_many_topics 4"),
    ]
    assert sorted(cluster.world.store.topics("anna", None, 9)[0]) == topics(0, 3)


def test_all_pages_are_counted() -> None:
    _, anna, _ = talkers(7, Sizes(page_max=2))
    assert anna.say(f"subscribe {','.join(topics(0, 6))}") == ["ok"]
    assert anna.say("subscribe t6,t7") == ["error too_many_topics"]
    assert anna.say("subscribe t6") == ["ok"]
    assert anna.say("subscribe t7") == ["error too_many_topics"]


def test_without_the_store_nobody_is_counted() -> None:
    cluster, anna, _ = talkers(4)
    cluster.world.store.down = True
    anna.say("subscribe t0")
    assert anna.hear(6.0) == ["error store_unavailable"]
    cluster.world.store.down = False
    assert anna.say("subscribe t0") == ["ok"]


def test_of_a_client_on_many_connections_no_more_than_some_wait() -> None:
    cluster, anna, _ = talkers(100, Sizes(counting_max=5))
    again = cluster.client("anna", "a")
    for number in range(4):
        anna.send(command="subscribe", topic=f"t{number}")
        again.send(command="subscribe", topic=f"u{number}")
    heard = [*anna.hear(), *again.heard]
    assert heard.count("ok") == 5
    assert heard.count("error store_unavailable") == 3
    assert anna.say("subscribe t9") == ["ok"]


class Alone:
    """A count of 3 topics at most, and its decisions: the names of changes that began or were refused."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.desk = FakeDesk()
        self.decided: list[str] = []
        self.quota = quota.Quota(self.desk.real, 3, self._begin, self._refuse, sizes)
        self.connection = Connection(1, Outbox(1))

    def ask(self, name: str, topics: Any, client: str = "anna") -> Change:
        change = Change(client, True, self.connection, Reply(), name)
        self.quota.ask(change, topics)
        return change

    def _begin(self, change: Change, topics: Any) -> None:
        self.decided.append(f"{change.id} begins with {','.join(topics)}")

    def _refuse(self, change: Change, error: ProtocolError) -> None:
        self.decided.append(f"{change.id} is refused: {error.code}")

    def count(self) -> Stored:
        """Return the call for the one page that the count is reading."""
        (page,) = self.desk.stored
        self.desk.stored.clear()
        assert page.operation == "topics"
        return page


@pytest.fixture
def alone() -> Alone:
    return Alone()


def test_a_change_begins_when_the_store_has_said_what_its_client_has(alone: Alone) -> None:
    alone.ask("first", ["a", "b"])
    page = alone.count()
    assert page.arguments == ("anna", None, PAGE_LIMIT_MAX)
    assert alone.decided == []
    page.end((["x"], None))
    assert alone.decided == ["first begins with a,b"]


def test_the_next_of_a_client_is_counted_when_the_one_before_has_ended(alone: Alone) -> None:
    first = alone.ask("first", ["a"])
    second = alone.ask("second", ["b"])
    alone.count().end(([], None))
    assert alone.desk.stored == []
    alone.quota.ended(first)
    alone.count().end((["a", "x", "y"], None))
    alone.quota.ended(second)
    assert alone.decided == ["first begins with a", "second is refused: too_many_topics"]
    assert alone.desk.stored == []


def test_other_clients_wait_for_nobody_else(alone: Alone) -> None:
    alone.ask("annas", ["a"])
    alone.ask("berts", ["a"], "bert")
    assert [page.arguments[0] for page in alone.desk.stored] == ["anna", "bert"]


def test_pages_are_read_until_the_answer_is_known(alone: Alone) -> None:
    alone.ask("first", ["a", "b"])
    alone.count().end((["x"], "after x"))
    page = alone.count()
    assert page.arguments[1] == "after x"
    page.end((["a"], "after a"))
    alone.count().end(([], None))
    assert alone.decided == ["first begins with a,b"]  # the client then has a, b and x


@pytest.mark.parametrize("page", [(["a", "b"], "after b"), (["a", "b", "x", "y"], None)])
def test_a_client_that_has_all_of_them_already_may_say_so_again(alone: Alone, page: Any) -> None:
    """Even if it now exceeds its limit. The count reads no further page."""
    alone.ask("again", ["a", "b"])
    alone.count().end(page)
    assert alone.decided == ["again begins with a,b"]
    assert alone.desk.stored == []


def test_no_further_page_is_read_when_there_are_too_many(alone: Alone) -> None:
    """A client above a new limit keeps its topics, and gets no more."""
    alone.ask("more", ["a"])
    alone.count().end((["w", "x", "y", "z"], "after z"))
    assert alone.decided == ["more is refused: too_many_topics"]
    assert alone.desk.stored == []


def test_who_cannot_be_counted_is_refused(alone: Alone) -> None:
    alone.ask("first", ["a"])
    alone.count().end(error=StoreUnavailable("no quorum"))
    assert alone.decided == ["first is refused: store_unavailable"]


def test_a_long_list_is_gone_through_in_slices_and_read_only_if_it_may_be_enough(alone: Alone) -> None:
    alone.ask("three times the same", packed(["a"] * 3_000))
    assert alone.desk.stored == []
    (job,) = alone.desk.jobs
    assert [next(job), next(job), next(job)] == [False] * 3
    assert next(job, None) is None
    alone.desk.jobs.clear()
    alone.count().end(([], None))
    assert [decision[:26] for decision in alone.decided] == ["three times the same begin"]
    alone.ask("too long", packed([f"t{number}" for number in range(3_000)]), "bert")
    alone.desk.work()
    assert alone.decided[1:] == ["too long is refused: too_many_topics"]
    assert alone.desk.stored == []


def test_one_that_finds_no_place_in_the_row_is_refused_and_no_turn_is_kept_for_it() -> None:
    alone = Alone(Sizes(counting_max=2))
    changes = [alone.ask(name, ["a"]) for name in ("first", "second", "third")]
    assert alone.decided == ["third is refused: store_unavailable"]
    assert [change.counted for change in changes] == [True, True, False]
    for change in changes[:2]:
        alone.count().end(([], None))
        alone.quota.ended(change)
    assert alone.desk.stored == []
