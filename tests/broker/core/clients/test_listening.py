"""Where clients listen: the store and the peers learn of a listen before its client gets the reply, and peers announce
theirs."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.clients.lapsed_lease import LapsedLease
from ingeborg.broker.core.clients.listening import LISTENS_PER_BATCH, Listening
from ingeborg.broker.core.clients.stale_locations import CLEAR_AGAIN_S, LATE_S
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.limits import SIZES
from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.links.requests import ListenRequest
from ingeborg.broker.core.model import Ended, Introduction, Location, StoreUnavailable
from ingeborg.broker.core.topics.expiry import KEPT_S
from ingeborg.broker.core.topics.locations import Locations
from ingeborg.broker.core.topics.moved import MovedAway
from ingeborg.protocol.errors import REPLACED, SUBSCRIPTIONS_ENDED

from ..fake_desk import Stored
from ..surroundings import GRACE_S, Surroundings, command, peer

DOWN = StoreUnavailable("no quorum")


def here(number: int) -> Location:
    return Location(number, "m", True)


def written(*locations: Location) -> list[tuple[Location, Ended | None]]:
    """Return the store's answer to a `listen` of clients without ended subscriptions."""
    return [(location, None) for location in locations]


def at(peer: str, number: int, *, online: bool = True) -> Location:
    return Location(number, peer, online)


class Endpoint(Surroundings):
    def __init__(self, *peers: str, joined: bool = True) -> None:
        super().__init__(*peers, joined=joined)
        self.locations, self.moved_away = Locations(1_000), MovedAway()
        self.part = Listening(
            *(self.desk.real, self.members, self.members, self.hub, self.locations, self.moved_away),
            *(self.replies, self.sending, self.memory),
        )

    def say(self, name: str, client: str = "anna", connection: Connection | None = None) -> Connection:
        """Send a command, over a new connection if none is given."""
        connection = connection or self.client(name)
        said = command(name, client, id=1)
        if name == "listen":
            self.part.listen(connection, said)
        else:
            self.part.unlisten(connection, said)
        return connection

    def turn(self, *operations: str) -> list[Stored]:
        """End the turn; the store gets these calls."""
        self.part.flush()
        return self.stored(*operations)

    def listening(self, client: str = "anna", number: int = 1) -> Connection:
        """Return a client that listens and has had its reply."""
        connection = self.say("listen", client)
        self.turn("listen")[0].end(written(here(number)))
        for call in self.desk.asked:
            self.part.answered(call, None)
        self.desk.asked.clear()
        assert self.results(connection) == ["ok 1"]
        return connection

    def announced(self, client: str, location: Location) -> None:
        """Announce, as the peer ``p``, where a client listens."""
        before = len(self.desk.answers)
        self.part.listen_announced("p", 9, ListenRequest([(client, *location)]))
        assert self.desk.answers[before:] == [("p", 9, None)]

    def told(self) -> list[tuple[str, list[Any]]]:
        """Return the announcements to peers since the last call."""
        asked = self.desk.asked[:]
        self.desk.asked.clear()
        assert {type(call.request) for call in asked} <= {ListenRequest}
        return [(call.target, call.request.news) for call in asked]

    def bound(self, client: str = "anna") -> Connection | None:
        binding = self.hub.bindings.get(client)
        return binding.connection if binding is not None else None


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint("p", "q")


# A listen


def test_success_is_said_when_it_is_stored_and_every_peer_has_corrected_its_cache(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    assert endpoint.bound() is anna  # messages may come before the reply
    (call,) = endpoint.turn("listen")
    assert call.arguments == (["anna"], "m")
    assert endpoint.desk.asked == []
    call.end(written(here(4)))
    p, q = endpoint.desk.asked
    assert endpoint.told() == [("p", [("anna", 4, "m", True)]), ("q", [("anna", 4, "m", True)])]
    assert endpoint.locations.get("anna") == here(4)
    endpoint.part.answered(p, None)
    assert endpoint.results(anna) == []
    endpoint.part.answered(q, None)
    assert endpoint.results(anna) == ["ok 1"]


def test_a_peer_that_is_alive_and_did_not_answer_makes_it_no_success(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    endpoint.turn("listen")[0].end(written(here(1)))
    p, q = endpoint.desk.asked
    endpoint.part.failed(p, "peer_unavailable", "no answer in time")
    assert endpoint.results(anna) == []
    endpoint.part.answered(q, None)
    assert endpoint.results(anna) == ["peer_unavailable 1"]


def test_a_peer_that_is_gone_is_not_asked_elsewhere_and_has_no_cache_to_be_wrong(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    endpoint.turn("listen")[0].end(written(here(1)))
    p, q = endpoint.desk.asked
    assert endpoint.part.lost(p) is None
    endpoint.part.answered(q, None)
    assert endpoint.results(anna) == ["ok 1"]


def test_the_listens_of_a_turn_are_one_call_and_one_announcement(endpoint: Endpoint) -> None:
    for client in ("anna", "bert"):
        endpoint.say("listen", client)
    second = endpoint.say("listen", "anna")
    (call,) = endpoint.turn("listen")
    assert call.arguments == (["anna", "bert"], "m")  # for the store, anna's two are one
    call.end(written(here(1), here(7)))
    assert [peer for peer, _ in endpoint.told()] == ["p", "q"]
    assert endpoint.bound() is second


def test_many_are_cut_into_batches() -> None:
    endpoint = Endpoint()
    connection = endpoint.client("listen")
    for number in range(LISTENS_PER_BATCH + 1):
        endpoint.say("listen", f"c{number}", connection)
    first, second = endpoint.turn("listen", "listen")
    assert (len(first.arguments[0]), len(second.arguments[0])) == (LISTENS_PER_BATCH, 1)


def test_before_this_endpoint_has_joined_nobody_is_told_and_success_waits() -> None:
    endpoint = Endpoint("p", joined=False)
    anna = endpoint.say("listen")
    endpoint.turn("listen")[0].end(written(here(1)))
    assert endpoint.told() == []
    endpoint.join()
    endpoint.part.joined()
    (call,) = endpoint.desk.asked
    assert endpoint.results(anna) == []
    endpoint.part.answered(call, None)
    assert endpoint.results(anna) == ["ok 1"]


def test_whose_connection_ends_meanwhile_is_announced_as_one_that_is_gone() -> None:
    # If its number exceeded the client's present one, the present endpoint would close that connection.
    endpoint = Endpoint("p", joined=False)
    anna, bert = endpoint.say("listen"), endpoint.say("listen", "bert")
    endpoint.turn("listen")[0].end(written(here(1), here(2)))
    endpoint.part.closed(anna)
    endpoint.join()
    endpoint.part.joined()
    (call,) = endpoint.desk.asked
    assert call.request == ListenRequest([("anna", 1, "m", False), ("bert", 2, "m", True)])
    endpoint.part.answered(call, None)
    assert endpoint.results(bert) == ["ok 1"]


def test_and_is_given_up_in_time() -> None:
    endpoint = Endpoint("p", joined=False)
    anna = endpoint.say("listen")
    endpoint.turn("listen")[0].end(written(here(1)))
    endpoint.desk.now += TIMEOUT_S - 0.01
    endpoint.part.tick()
    assert endpoint.results(anna) == []
    endpoint.desk.now += 0.01
    endpoint.part.tick()
    assert endpoint.results(anna) == ["peer_unavailable 1"]
    endpoint.join()
    endpoint.part.joined()
    assert endpoint.told() == []


# A listen that cannot be stored


def test_one_that_cannot_be_stored_leaves_everything_as_it_was(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    endpoint.turn("listen")[0].end(error=DOWN)
    assert endpoint.results(anna) == ["store_unavailable 1"]
    assert endpoint.bound() is None
    assert endpoint.memory.of(anna) == 0
    assert endpoint.told() == []


def test_the_connection_where_the_client_was_has_it_again(endpoint: Endpoint) -> None:
    before = endpoint.listening()
    now = endpoint.say("listen")
    assert endpoint.bound() is now
    endpoint.turn("listen")[0].end(error=DOWN)
    assert endpoint.bound() is before
    assert endpoint.memory.of(before) > 0
    assert endpoint.closes() == []


def test_unless_that_connection_is_over(endpoint: Endpoint) -> None:
    before = endpoint.listening()
    endpoint.say("listen")
    before.closed = True
    endpoint.turn("listen")[0].end(error=DOWN)
    assert endpoint.bound() is None


def test_who_listened_there_already_listens_on(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    endpoint.say("listen", connection=anna)
    endpoint.turn("listen")[0].end(error=DOWN)
    assert endpoint.results(anna) == ["store_unavailable 1"]
    assert endpoint.bound() is anna


# Replaced clients


def test_the_former_connection_is_closed_when_the_new_place_is_stored_and_not_before(endpoint: Endpoint) -> None:
    before = endpoint.listening()
    endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    assert endpoint.closes() == []
    assert endpoint.memory.of(before) == 0
    call.end(written(here(2)))
    assert endpoint.closes() == [(before.number, REPLACED.code)]


def test_a_connection_whose_clients_all_go_at_once_is_closed_once(endpoint: Endpoint) -> None:
    before = endpoint.listening()
    endpoint.say("listen", "bert", before)
    endpoint.turn("listen")[0].end(written(here(1)))
    after = endpoint.client("listen")
    for client in ("anna", "bert"):
        endpoint.say("listen", client, after)
    endpoint.turn("listen")[0].end(written(here(2), here(2)))
    assert endpoint.closes() == [(before.number, REPLACED.code)]


def test_a_connection_that_has_other_clients_stays(endpoint: Endpoint) -> None:
    before = endpoint.listening()
    endpoint.say("listen", "bert", before)
    endpoint.turn("listen")[0].end(written(here(1)))
    endpoint.say("listen")
    endpoint.turn("listen")[0].end(written(here(2)))
    assert endpoint.closes() == []


def test_a_later_listen_elsewhere_ends_the_one_here(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.announced("anna", at("p", 4))
    assert endpoint.bound() is None
    assert endpoint.locations.get("anna") == at("p", 4)
    assert "anna" in endpoint.moved_away
    assert endpoint.closes() == [(anna.number, REPLACED.code)]
    assert endpoint.desk.counts["clients_replaced"] == 1


def test_an_earlier_one_elsewhere_changes_nothing(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.announced("anna", at("p", 2))
    assert endpoint.bound() is anna
    assert endpoint.locations.get("anna") == here(3)
    assert endpoint.closes() == []


@pytest.mark.parametrize("online", [True, False])
def test_nor_does_it_where_the_place_here_was_forgotten(endpoint: Endpoint, online: bool) -> None:
    # The announcement came late, from a peer that could not send it before it had joined.
    endpoint.listening(number=3)
    endpoint.locations.clear()
    endpoint.announced("anna", at("p", 2, online=online))
    assert endpoint.locations.get("anna") == here(3)
    assert endpoint.turn() == []


def test_nobody_is_absent_of_whom_only_the_end_of_some_listen_is_known(endpoint: Endpoint) -> None:
    # The endpoint may have forgotten a later location, so it asks the store.
    endpoint.announced("anna", at("p", 4, online=False))
    assert endpoint.locations.get("anna") is None


@pytest.mark.parametrize(("number", "stays"), [(5, False), (6, True)])
def test_while_a_listen_is_written_one_elsewhere_is_judged_by_the_number_that_this_one_gets(
    endpoint: Endpoint, number: int, stays: bool
) -> None:
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.announced("anna", at("q", 3))
    endpoint.announced("anna", at("p", 5))
    endpoint.announced("anna", at("q", 4))  # late
    assert endpoint.bound() is anna
    call.end(written(here(number)))
    assert (endpoint.bound() is anna) == stays
    assert endpoint.locations.get("anna") == (here(number) if stays else at("p", 5))
    assert endpoint.closes() == ([] if stays else [(anna.number, REPLACED.code)])


def test_a_place_concurrent_with_a_listen_that_failed_is_forgotten(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.say("unlisten", connection=anna)
    endpoint.stored("unlisten")
    endpoint.say("listen", connection=anna)
    endpoint.announced("anna", at("p", 9))
    endpoint.turn("listen")[0].end(error=DOWN)
    endpoint.say("listen", connection=anna)
    endpoint.turn("listen")[0].end(written(here(8)))  # nothing is left for a comparison
    assert endpoint.bound() is anna


# The end of a listen


def test_unlisten_is_stored_before_success_is_said(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.say("unlisten", connection=anna)
    assert endpoint.bound() is None
    assert endpoint.locations.get("anna") == at("m", 3, online=False)
    (call,) = endpoint.stored("unlisten")
    assert call.arguments == ([("anna", here(3))],)
    assert endpoint.results(anna) == []
    call.end()
    assert endpoint.results(anna) == ["ok 1"]
    assert endpoint.memory.of(anna) == 0


def test_an_unlisten_that_cannot_be_stored_is_refused(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    endpoint.say("unlisten", connection=anna)
    endpoint.stored("unlisten")[0].end(error=DOWN)
    assert endpoint.results(anna) == ["store_unavailable 1"]


def test_an_unlisten_that_overtakes_its_listen_leaves_the_clearing_to_it(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.say("unlisten", connection=anna)
    endpoint.stored()  # the client has no number yet
    call.end(written(here(4)))
    assert endpoint.turn("unlisten")[0].arguments == ([("anna", here(4))],)
    assert endpoint.told()[0] == ("p", [("anna", 4, "m", False)])


def test_who_does_not_listen_here_has_nothing_to_take_back(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    other = endpoint.say("unlisten")
    endpoint.stored()
    assert endpoint.results(other) == ["ok 1"]
    assert endpoint.bound() is anna


def test_the_clients_of_a_connection_that_is_over_are_cleared_in_one_call(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.say("listen", "bert", anna)
    endpoint.turn("listen")[0].end(written(here(5)))
    endpoint.part.closed(anna)
    assert endpoint.hub.bindings == {}
    (call,) = endpoint.turn("unlisten")
    assert sorted(call.arguments[0]) == [("anna", here(3)), ("bert", here(5))]
    assert endpoint.locations.get("bert") == at("m", 5, online=False)
    call.end(error=DOWN)
    assert endpoint.desk.counts["stale_mappings_left"] == 2
    assert endpoint.turn() == []


def test_many_are_unbound_in_slices_but_for_those_who_have_gone_elsewhere_meanwhile() -> None:
    endpoint = Endpoint()
    connection = endpoint.client("listen")
    clients = [f"c{number}" for number in range(2 * SIZES.closed_per_slice)]
    for client in clients:
        endpoint.say("listen", client, connection)
    for call in endpoint.turn(*["listen"] * 2):
        call.end(written(here(1)) * len(call.arguments[0]))
    endpoint.part.closed(connection)
    assert len(connection.clients) == len(clients)
    (job,) = endpoint.desk.jobs
    next(job)
    assert len(connection.clients) == SIZES.closed_per_slice
    early = next(iter(connection.clients))
    again = endpoint.say("listen", early)
    list(job)
    assert connection.clients == set()
    assert list(endpoint.hub.bindings) == [early]
    assert endpoint.bound(early) is again
    assert endpoint.memory.of(connection) == 0


def test_a_client_that_has_gone_while_its_listen_was_written_is_told_of_as_gone(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.part.closed(anna)
    assert endpoint.turn() == []  # without a number, nothing can be cleared yet
    call.end(written(here(4)))
    assert endpoint.told()[0] == ("p", [("anna", 4, "m", False)])
    assert endpoint.locations.get("anna") is None  # the store knows whether it listens elsewhere
    assert endpoint.turn("unlisten")[0].arguments == ([("anna", here(4))],)


def test_where_it_was_before_is_still_believed_then(endpoint: Endpoint) -> None:
    """It may still be there, and then its endpoint will announce it again."""
    endpoint.announced("anna", at("p", 3))
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.part.closed(anna)
    call.end(written(here(4)))
    assert endpoint.locations.get("anna") == at("p", 3)


def test_a_client_that_is_here_while_a_peer_says_it_went_from_there_is_said_to_be_here_anew(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.announced("anna", at("p", 4, online=False))
    assert endpoint.bound() is anna
    (call,) = endpoint.turn("listen")
    call.end(written(here(5)))
    assert endpoint.locations.get("anna") == here(5)
    for announcement in endpoint.desk.asked:
        endpoint.part.answered(announcement, None)
    assert endpoint.told()[0] == ("p", [("anna", 5, "m", True)])
    assert endpoint.heard(anna) == []  # it has not asked for one


def test_a_listen_that_is_written_meanwhile_is_written_again_before_success_is_said(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.announced("anna", at("p", 7, online=False))  # from a connection that ended while p stood still
    endpoint.announced("anna", at("q", 6, online=False))
    call.end(written(here(5)))
    assert endpoint.told() == []
    assert endpoint.closes() == []
    endpoint.turn("listen")[0].end(written(here(8)))
    for announcement in endpoint.desk.asked:
        endpoint.part.answered(announcement, None)
    assert endpoint.told()[0] == ("p", [("anna", 8, "m", True)])
    assert endpoint.results(anna) == ["ok 1"]
    assert (endpoint.bound(), endpoint.locations.get("anna")) == (anna, here(8))


def test_it_is_not_where_its_number_is_the_higher_one_or_the_client_has_gone(endpoint: Endpoint) -> None:
    anna, bert = endpoint.say("listen"), endpoint.say("listen", "bert")
    (call,) = endpoint.turn("listen")
    endpoint.announced("anna", at("p", 4, online=False))
    endpoint.announced("bert", at("p", 7, online=False))
    endpoint.part.closed(bert)
    call.end(written(here(5), here(5)))
    assert endpoint.told()[0] == ("p", [("anna", 5, "m", True), ("bert", 5, "m", False)])
    assert endpoint.bound() is anna
    endpoint.turn("unlisten")


def test_a_later_place_elsewhere_counts_then_too(endpoint: Endpoint) -> None:
    anna = endpoint.say("listen")
    (call,) = endpoint.turn("listen")
    endpoint.announced("anna", at("p", 7, online=False))
    endpoint.announced("anna", at("q", 9))
    call.end(written(here(5)))
    endpoint.turn("listen")[0].end(written(here(8)))
    assert endpoint.bound() is None
    assert endpoint.closes() == [(anna.number, REPLACED.code)]


def test_where_that_cannot_be_stored_it_is_counted(endpoint: Endpoint) -> None:
    anna = endpoint.listening(number=3)
    endpoint.announced("anna", at("p", 4, online=False))
    endpoint.turn("listen")[0].end(error=DOWN)
    assert endpoint.desk.counts["stale_mappings_left"] == 1
    assert endpoint.bound() is anna
    assert endpoint.heard(anna) == []


# Stale locations


def test_whom_a_home_looks_for_here_is_looked_up_once(endpoint: Endpoint) -> None:
    endpoint.hub.missed += ["anna", "anna", "bert"]
    (call,) = endpoint.turn("locations")
    assert call.arguments == (["anna", "bert"],)
    endpoint.hub.missed += ["anna"]
    assert endpoint.turn() == []
    call.end([None, None])
    endpoint.hub.missed += ["anna"]
    endpoint.turn("locations")


def test_and_where_the_store_says_so_too_it_is_cleared_and_all_are_told(endpoint: Endpoint) -> None:
    clients = ["anna", "bert", "carl", "dora"]
    dora = endpoint.listening("dora", 2)
    endpoint.hub.missed += clients
    (call,) = endpoint.turn("locations")
    call.end([here(4), at("p", 2), at("m", 3, online=False), here(2)])
    assert endpoint.told() == [("p", [("anna", 4, "m", False)]), ("q", [("anna", 4, "m", False)])]
    assert endpoint.turn("unlisten")[0].arguments == ([("anna", here(4))],)
    assert endpoint.bound("dora") is dora


def test_when_the_store_cannot_say_it_is_asked_again_at_the_next_message(endpoint: Endpoint) -> None:
    endpoint.hub.missed += ["anna"]
    endpoint.turn("locations")[0].end(error=DOWN)
    assert endpoint.told() == []
    endpoint.hub.missed += ["anna"]
    endpoint.turn("locations")


def test_an_endpoint_that_has_joined_again_asks_where_its_clients_went_meanwhile(endpoint: Endpoint) -> None:
    anna, bert = endpoint.listening("anna", 3), endpoint.listening("bert", 3)
    endpoint.part.joined()
    (call,) = endpoint.stored("locations")
    assert call.arguments == (["anna", "bert"],)
    call.end([at("p", 4), here(3)])
    assert endpoint.bound("anna") is None
    assert endpoint.bound("bert") is bert
    assert endpoint.closes() == [(anna.number, REPLACED.code)]


def test_where_the_store_cannot_say_its_clients_stay_and_that_is_counted(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    endpoint.part.joined()
    endpoint.stored("locations")[0].end(error=DOWN)
    assert endpoint.bound() is anna
    assert endpoint.desk.counts["stale_mappings_left"] == 1


# Expiring subscriptions


def test_a_listen_says_what_has_ended_as_the_store_knows_it_when_the_place_is_written(endpoint: Endpoint) -> None:
    anna, bert = endpoint.say("listen"), endpoint.say("listen", "bert")
    ended = Ended([("t", None), ("u", '{"a":[1]}')], 3)
    endpoint.turn("listen")[0].end([(here(1), ended), (here(2), None)])
    assert endpoint.heard(anna) == []
    for call in endpoint.desk.asked:
        endpoint.part.answered(call, None)
    told = [{"topic": "t"}, {"topic": "u", "filter": {"a": [1]}}]
    assert endpoint.heard(anna) == [{"result": "success", "id": 1, "ended": told, "ended_count": 3}]
    assert endpoint.heard(bert) == [{"result": "success", "id": 1}]


def test_a_place_that_could_not_be_cleared_is_cleared_later_since_subscriptions_wait_for_it(
    endpoint: Endpoint,
) -> None:
    connection = endpoint.client()
    endpoint.hub.bind("anna", connection)
    endpoint.hub.bindings["anna"].location = here(1)
    endpoint.part.closed(connection)
    endpoint.turn("unlisten")[0].end(error=DOWN)
    endpoint.part.tick()
    endpoint.turn()
    endpoint.desk.now += CLEAR_AGAIN_S
    endpoint.part.tick()
    assert endpoint.turn("unlisten")[0].arguments == ([("anna", here(1))],)


@pytest.mark.parametrize("seconds", [GRACE_S - 1.0, GRACE_S])
def test_who_has_stayed_here_while_the_others_took_us_for_dead_is_told_to_listen_anew_if_something_ended(
    endpoint: Endpoint, seconds: float
) -> None:
    anna, bert = endpoint.listening(), endpoint.listening("bert", 2)
    part = LapsedLease(endpoint.desk.real, *2 * (endpoint.members,), endpoint.hub, endpoint.sending)
    part.tick()
    endpoint.members.joined = False
    endpoint.desk.now += seconds / 2
    part.tick()
    endpoint.desk.now += seconds / 2
    endpoint.members.joined = True
    part.joined()
    if seconds < GRACE_S:
        assert endpoint.desk.stored == []
        return
    (ended,) = endpoint.stored("ended")
    ended.end([Ended([("t", None)], 1), None])
    assert endpoint.closes() == [(anna.number, SUBSCRIPTIONS_ENDED.code)]
    assert bert.ends_at is None
    part.tick()
    part.joined()
    assert endpoint.desk.stored == []


def test_what_others_go_by_is_remembered_while_they_are_out_of_sight(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    incarnation = endpoint.members.view()[0]
    endpoint.members.connected(peer(incarnation), endpoint.desk.now, Introduction(GRACE_S / 4))
    part = LapsedLease(endpoint.desk.real, *2 * (endpoint.members,), endpoint.hub, endpoint.sending)
    part.tick()
    endpoint.members.left(incarnation)
    endpoint.members.joined = False
    endpoint.desk.now += GRACE_S / 4
    part.tick()
    part.joined()
    (ended,) = endpoint.stored("ended")
    ended.end([Ended([("t", None)], 1)])
    assert endpoint.closes() == [(anna.number, SUBSCRIPTIONS_ENDED.code)]


def test_after_so_long_that_it_is_forgotten_what_has_ended_everybody_is_told(endpoint: Endpoint) -> None:
    anna = endpoint.listening()
    part = LapsedLease(endpoint.desk.real, *2 * (endpoint.members,), endpoint.hub, endpoint.sending)
    part.tick()
    endpoint.desk.now += GRACE_S + KEPT_S
    part.joined()
    assert endpoint.desk.stored == []
    assert endpoint.closes() == [(anna.number, SUBSCRIPTIONS_ENDED.code)]


def test_a_place_that_is_left_before_it_is_known_whether_it_was_the_last_is_not_learnt(endpoint: Endpoint) -> None:
    anna, bert = endpoint.listening(), endpoint.listening("bert", 2)
    endpoint.locations.clear()  # as when this endpoint has been let in again: the clients may have listened elsewhere
    endpoint.part.closed(anna)
    endpoint.part.unlisten(bert, command("unlisten", "bert", id=2))
    assert [endpoint.locations.get(client) for client in ("anna", "bert")] == [None, None]


def test_a_listen_that_failed_is_looked_for_since_it_may_have_been_written_late(endpoint: Endpoint) -> None:
    endpoint.say("listen")
    endpoint.turn("listen")[0].end(error=DOWN)
    endpoint.desk.now += LATE_S - 0.1
    endpoint.part.tick()
    endpoint.turn()
    endpoint.desk.now += 0.2
    endpoint.part.tick()
    endpoint.turn("locations")[0].end(error=DOWN)
    endpoint.desk.now += LATE_S
    endpoint.part.tick()
    endpoint.turn("locations")[0].end([here(3)])
    assert endpoint.turn("unlisten")[0].arguments == ([("anna", here(3))],)


def test_so_is_one_whose_connection_went_before_it_was_known_what_came_of_it(endpoint: Endpoint) -> None:
    endpoint.part.closed(endpoint.say("listen"))
    endpoint.turn("listen")[0].end(error=DOWN)
    endpoint.desk.now += LATE_S
    endpoint.part.tick()
    (call,) = endpoint.turn("locations")
    assert call.arguments == (["anna"],)
