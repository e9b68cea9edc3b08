"""The home's part in subscriptions: its writes to the store, their order, and its answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ingeborg.broker.core.limits import SIZES
from ingeborg.broker.core.links.calls import NOT_HOME, TIMEOUT_S, WAIT
from ingeborg.broker.core.links.link import Link
from ingeborg.broker.core.links.requests import ChangeRequest
from ingeborg.broker.core.model import StoreUnavailable, Subscribe, Term
from ingeborg.broker.core.topics.write import Write, Writer
from ingeborg.broker.core.topics.writing import TELL_S, WRITES_WAITING_MAX
from ingeborg.protocol.errors import ProtocolError

from ..fake_desk import Stored
from ..surroundings import Surroundings

DOWN = StoreUnavailable("no quorum")


class Home(Surroundings):
    """A home, and the peer ``p`` whose clients subscribe."""

    def __init__(self, *, joined: bool = True) -> None:
        super().__init__("p", joined=joined)
        topics = self.make_topics()
        self.routes, self.filtering = topics.routes, topics.filtering
        self.writing, self.writes = topics.writing, self.cluster.writes
        self.ours = self.topics_at("m", 3)

    def ask(self, number: int, topics: list[str], *, added: bool = True, client: str = "anna", **options: Any) -> None:
        self.writing.change_requested("p", number, ChangeRequest(client, topics, added, **options))

    def cached(self, topic: str) -> object:
        route = self.routes.get(topic)
        return None if route is None else route.subscribers

    def said(self) -> list[tuple[int, str]]:
        """Return the answers to the peer since the last look: number of the request, and the code of a refusal, if
        any."""
        said = [(number, "") for _, number, _ in self.desk.answers]
        said += [(number, code) for _, number, code in self.desk.declined]
        self.desk.answers.clear()
        self.desk.declined.clear()
        return sorted(said)


@pytest.fixture
def home() -> Home:
    return Home()


class Own(Writer):
    """The writer at this endpoint for its own clients."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def written(self, write: Write, error: ProtocolError | None) -> None:
        self.told.append("written" if error is None else error.code)

    def not_home(self, write: Write) -> None:
        self.told.append(NOT_HOME)


def own_write(home: Home, topics: list[str], *, added: bool = True) -> tuple[Own, Write]:
    write = Write("anna", topics, added, home.desk.now, home.desk.now + TIMEOUT_S)
    write.writer = own = Own()
    return own, write


# Success


def test_success_is_said_after_the_store_has_it_and_the_cache_has_it(home: Home) -> None:
    topic = home.ours[0]
    home.routes.filled(topic, home.routes.add(topic), {"bert"})
    home.ask(7, [topic])
    (call,) = home.stored("subscribe")
    assert call.arguments == ([Subscribe("anna", [topic])],)
    assert home.said() == []
    assert home.cached(topic) == ("bert",)
    call.end()
    assert home.said() == [(7, "")]
    assert set(home.cached(topic)) == {"bert", "anna"}  # type: ignore[call-overload]
    assert home.desk.counts["subscriptions_changed"] == 1


def test_a_peer_may_ask_for_any_combination(home: Home) -> None:
    home.desk.real.tick(1_000.0)
    topic = home.ours[:1]
    home.ask(1, topic, filter="{}", until_disconnect=True, ttl_s=7, replace=True)
    home.ask(2, topic, client="bert", replace=True)
    home.ask(3, topic, client="carl", ttl_s=7)
    home.ask(4, topic, client="dora", added=False, filter="{}")
    *added, removed = home.stored("subscribe", "subscribe", "subscribe", "unsubscribe")
    assert [call.arguments[0] for call in added] == [
        [Subscribe("anna", topic, "{}", Term(True, 1_007.0), True)],
        [Subscribe("bert", topic, None, None, True)],
        [Subscribe("carl", topic, None, Term(False, 1_007.0))],
    ]
    assert removed.arguments == ([("dora", topic, "{}")],)


@pytest.mark.parametrize("error", [None, DOWN])
def test_what_takes_the_place_of_all_else_is_known_while_it_is_under_way(home: Home, error: Exception | None) -> None:
    topic = home.ours[:1]
    home.ask(1, topic, filter="{}", replace=True)
    home.ask(2, topic, client="bert")
    replace, _ = home.stored("subscribe", "subscribe")
    assert list(home.filtering.replacing.values()) == [("anna", topic, "{}")]
    replace.end(error=error)
    assert home.filtering.replacing == {}


def test_a_change_holds_for_a_set_that_is_being_read_meanwhile(home: Home) -> None:
    topic = home.ours[0]
    route = home.routes.add(topic)
    home.ask(7, [topic])
    home.stored("subscribe")[0].end()
    home.routes.filled(topic, route, set())  # as it was before the write
    assert home.cached(topic) == ("anna",)


def test_whoever_writes_here_is_told_and_nobody_else(home: Home) -> None:
    own, write = own_write(home, home.ours)
    home.writing.take(write)
    (call,) = home.stored("subscribe")
    home.desk.now += 0.75
    call.end()
    assert own.told == ["written"]
    assert write.took_s == 0.75
    assert home.said() == []


def test_a_failed_write_is_said_and_its_topics_are_read_again_before_they_are_used(home: Home) -> None:
    topic, other = home.ours[:2]
    for name in (topic, other):
        home.routes.filled(name, home.routes.add(name), {"bert"})
    home.ask(7, [topic])
    home.stored("subscribe")[0].end(error=DOWN)
    assert home.said() == [(7, "store_unavailable")]
    assert home.cached(topic) is None  # it can still take effect
    assert home.cached(other) == ("bert",)
    assert home.desk.counts["subscriptions_changed"] == 0


# Order


def test_changes_of_one_kind_overlap_and_one_of_the_other_waits_for_them(home: Home) -> None:
    a, b, c = home.ours
    home.ask(1, [a])
    home.ask(2, [b])
    first, second = home.stored("subscribe", "subscribe")
    home.ask(3, [a], added=False)
    home.ask(4, [c])  # it came after the one that waits
    first.end()
    home.desk.work()
    home.stored()
    second.end()
    home.desk.work()
    (third,) = home.stored("unsubscribe")
    third.end()
    home.desk.work()
    home.stored("subscribe")[0].end()
    assert home.said() == [(1, ""), (2, ""), (3, ""), (4, "")]


def test_clients_do_not_wait_for_each_other(home: Home) -> None:
    home.ask(1, home.ours)
    home.ask(2, home.ours, added=False, client="bert")
    home.stored("subscribe", "unsubscribe")


def test_what_waits_goes_on_behind_one_that_has_failed(home: Home) -> None:
    home.ask(1, home.ours)
    home.ask(2, home.ours, added=False)
    home.stored("subscribe")[0].end(error=DOWN)
    home.desk.work()
    home.stored("unsubscribe")[0].end()
    assert home.said() == [(1, "store_unavailable"), (2, "")]


def test_more_than_so_many_do_not_wait_and_are_refused(home: Home) -> None:
    home.ask(0, home.ours)
    for number in range(1, WRITES_WAITING_MAX + 1):
        home.ask(number, home.ours, added=False)
    assert home.said() == []
    home.ask(WRITES_WAITING_MAX + 1, home.ours, added=False)
    assert home.said() == [(WRITES_WAITING_MAX + 1, "store_unavailable")]
    home.ask(WRITES_WAITING_MAX + 2, home.ours, client="bert")  # other clients are not affected
    assert home.said() == []


def test_a_large_one_begins_and_ends_in_turns_of_its_own(home: Home) -> None:
    many = home.topics_at("m", SIZES.topics_at_once + 1)
    home.ask(1, many)
    home.stored()
    home.desk.work()
    (call,) = home.stored("subscribe")
    call.end()
    assert home.said() == []
    home.desk.work()
    assert home.said() == [(1, "")]
    assert home.desk.counts["subscriptions_changed"] == len(many)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with a term": {"ttl_s": 7},
    "with a filter": {"filter": "{}"},
    "in place of all": {"replace": True},
    "removal": {"added": False},
    "removal of a filter": {"added": False, "filter": "{}"},
}


def group(kind: str) -> str:
    """Return the group of a kind. Writes of one group can overlap, except those that replace all."""
    return kind if kind == "in place of all" else "removal" if "removal" in kind else "added"


class OneClient(RuleBasedStateMachine):
    """Any order of changes and ends: the store never has two writes at once that must not overlap, it gets the changes
    in the order of their arrival, and each change gets one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Home()
        self.came: list[str] = []  # each change's kind
        self.calls: list[Stored] = []  # the store's calls: a change's number is one more than its position here
        self.ended: list[int] = []

    @rule(kind=st.sampled_from(list(KINDS)))
    def ask(self, kind: str) -> None:
        self.came.append(kind)
        self.home.ask(len(self.came), [self.home.ours[0]], **KINDS[kind])
        self.see()

    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        if self.under_way:
            number = data.draw(st.sampled_from(self.under_way))
            self.ended.append(number)
            self.calls[number - 1].end(error=DOWN if fails else None)
            self.home.desk.work()
            assert self.home.said() == [(number, "store_unavailable" if fails else "")]
            self.see()

    def see(self) -> None:
        """Take the next calls of the store."""
        self.calls += self.home.desk.stored
        self.home.desk.stored.clear()

    @property
    def under_way(self) -> list[int]:
        return [number for number in range(1, len(self.calls) + 1) if number not in self.ended]

    @invariant()
    def only_what_may_overlaps(self) -> None:
        operations = ["unsubscribe" if group(kind) == "removal" else "subscribe" for kind in self.came]
        assert [call.operation for call in self.calls] == operations[: len(self.calls)]
        groups = [group(self.came[number - 1]) for number in self.under_way]
        assert len(groups) <= 1 or set(groups) in ({"added"}, {"removal"})
        if len(self.calls) < len(self.came):  # the next one waits
            behind = group(self.came[len(self.calls)])
            assert groups
            assert behind not in groups or behind == "in place of all"
        assert len(self.home.writes) == len(self.under_way)


TestOneClient = OneClient.TestCase


# Not the home, not yet the home, no longer the home


def test_topics_of_another_home_are_declined_and_the_store_not_asked(home: Home) -> None:
    home.ask(7, [home.ours[0], home.topics_at("p", 1)[0]])
    assert home.said() == [(7, NOT_HOME)]
    home.stored()


def test_slots_that_move_while_a_change_waits_take_it_with_them(home: Home) -> None:
    home.ask(1, home.ours)
    home.ask(2, home.ours, added=False)
    home.members.leave()  # the peer is the home of everything
    home.stored("subscribe")[0].end()
    home.desk.work()
    home.stored()
    assert home.said() == [(1, ""), (2, NOT_HOME)]


def test_a_write_during_which_the_lease_lapsed_is_no_success(home: Home) -> None:
    topic = home.ours[0]
    home.routes.filled(topic, home.routes.add(topic), {"bert"})
    home.ask(7, [topic])
    home.lose_lease()
    home.stored("subscribe")[0].end()
    assert home.said() == [(7, NOT_HOME)]
    assert home.cached(topic) is None
    assert home.desk.counts["subscriptions_changed"] == 0


def test_the_same_for_one_of_this_endpoints_own_clients(home: Home) -> None:
    own, write = own_write(home, home.ours)
    home.writing.take(write)
    home.lose_lease()
    home.stored("subscribe")[0].end()
    assert own.told == [NOT_HOME]


def test_before_it_has_joined_a_change_is_parked_and_goes_on_after() -> None:
    home = Home(joined=False)
    home.ask(7, home.ours)
    home.writing.tick()
    home.stored()
    assert home.said() == []
    home.join()
    home.writing.tick()
    home.stored("subscribe")[0].end()
    assert home.said() == [(7, "")]


def test_a_parked_one_is_given_up_in_time() -> None:
    home = Home(joined=False)
    home.ask(7, home.ours)
    own, write = own_write(home, home.ours)
    home.writing.take(write)
    home.desk.now += TIMEOUT_S - 0.01
    home.writing.tick()
    assert (home.said(), own.told) == ([(7, WAIT)], [])
    home.desk.now += 0.01
    home.writing.tick()
    assert (home.said(), own.told) == ([(7, "peer_unavailable")], ["peer_unavailable"])
    home.writing.tick()
    assert home.said() == []


def test_one_whose_sender_has_begun_anew_is_dropped_and_counted() -> None:
    """The sender repeats its request over the new link, and can have sent the opposite since."""
    home = Home(joined=False)
    home.ask(7, home.ours)
    home.base.calls.links["p"] = Link("m.2")
    home.join()
    home.writing.tick()
    home.stored()
    assert home.said() == []
    assert home.desk.drops == {"outdated_change": 1}


def test_when_the_lease_lapses_what_waits_is_not_begun_before_it_has_joined_again(home: Home) -> None:
    home.ask(1, home.ours)
    home.ask(2, home.ours, added=False)
    (first,) = home.stored("subscribe")
    home.lose_lease()
    home.writing.lapsed()
    first.end()
    home.desk.work()
    home.writing.tick()
    home.stored()
    assert home.said() == [(1, NOT_HOME)]
    home.join()
    home.writing.tick()
    home.stored("unsubscribe")[0].end()
    assert home.said() == [(2, "")]


def test_a_newcomer_can_wait_for_the_writes_that_are_under_way(home: Home) -> None:
    welcomed: list[str] = []
    home.ask(1, home.ours)
    home.ask(2, home.ours, client="bert")
    home.writes.after(lambda: welcomed.append("newcomer"))
    first, second = home.stored("subscribe", "subscribe")
    first.end()
    assert welcomed == []
    second.end(error=DOWN)
    assert welcomed == ["newcomer"]


def test_a_peer_is_told_that_its_change_takes_longer(home: Home) -> None:
    home.ask(1, home.ours)
    home.ask(2, home.ours, added=False)  # it waits for the one before
    (first,) = home.stored("subscribe")
    for _ in range(3):
        home.desk.now += TELL_S - 0.1
        home.writing.tick()
        assert home.said() == []
        home.desk.now += 0.1
        home.writing.tick()
        assert home.said() == [(1, WAIT), (2, WAIT)]
    first.end()
    home.desk.work()
    (second,) = home.stored("unsubscribe")
    second.end()
    home.desk.now += TELL_S
    home.writing.tick()
    assert home.said() == [(1, ""), (2, "")]
