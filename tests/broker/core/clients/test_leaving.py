"""An orderly end: the order of its steps, the time at which each client must go, and the limits of each wait."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.clients.leaving import LEAVE_S, STEP_S, Leaving
from ingeborg.broker.core.clients.sessions import AFTER_CLOSE_S, Sessions
from ingeborg.broker.core.cluster.joining import Joining
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import Act, Left, PauseOrResume, SlotsTransferred
from ingeborg.broker.core.limits import PATIENCE, SIZES
from ingeborg.protocol.errors import GOING_AWAY, SLOW_CONSUMER

from ..surroundings import Surroundings


class Endpoint(Surroundings):
    def __init__(self, clients: int = 0) -> None:
        super().__init__("p")
        base, cluster, desk, sending = self.base, self.cluster, self.desk.real, self.sending
        self.transfers = cluster.transfers
        self.busy = False
        self.joining = Joining(
            *(desk, self.members, cluster.mesh, cluster.replicas, cluster.writes, cluster.transfers, cluster.observers),
            lambda: not self.busy,
            alone_at_url=True,
        )
        self.sessions = Sessions(desk, base.limits, sending, self.replies, self.memory, base.inflight)
        self.leaving = Leaving(desk, self.joining, cluster.slot_transfer, self.sessions, sending, base.inflight)
        self._copy_all()
        self.connections = [self.sessions.connected(number, None, False, 1 << 20) for number in range(clients)]

    def _copy_all(self) -> None:
        """Give the peer the state of the endpoint's slots; it is empty."""
        slot_transfer = self.cluster.slot_transfer
        assert not slot_transfer.prepared_to_leave()
        self.desk.work()
        self.cluster.replicas.flush()
        for call in self.desk.asked:
            call.asker.answered(call, True)
        assert slot_transfer.prepared_to_leave()

    def later(self, seconds: float = STEP_S) -> None:
        """End a turn this many seconds later."""
        self.desk.now += seconds
        self.joining.tick()
        if self.leaving.under_way:
            self.leaving.go_on()

    def ends(self) -> list[Act]:
        """Return what the endpoint has announced about its end since the last call."""
        acts: list[Act] = [act for act in self.desk.acts if isinstance(act, SlotsTransferred | Left)]
        self.desk.acts[:] = [act for act in self.desk.acts if not isinstance(act, SlotsTransferred | Left)]
        return acts

    def told(self) -> list[int]:
        """Return the numbers of the connections that had to go since the last call."""
        closes = self.closes()
        assert {code for _, code in closes} <= {GOING_AWAY.code}
        return [number for number, _ in closes]

    def reading_changed(self) -> list[int]:
        """Return the numbers of the connections whose reading has stopped or resumed since the last call."""
        numbers = [act.connection.number for act in self.desk.acts if isinstance(act, PauseOrResume)]
        self.desk.acts[:] = [act for act in self.desk.acts if not isinstance(act, PauseOrResume)]
        return list(dict.fromkeys(numbers))

    def out(self) -> bool:
        """Let the registry remove this endpoint, if the endpoint has asked for it."""
        calls = [call for call in self.desk.stored if call.operation == "deregister"]
        for call in calls:
            call.end()
        self.desk.stored.clear()
        return bool(calls)


def waits_for_a_reply(endpoint: Endpoint, connection: Connection) -> None:
    connection.tally = endpoint.replies.tally("subscribe")
    endpoint.replies.expect(connection)


def test_until_it_begins_nothing_ends() -> None:
    endpoint = Endpoint(3)
    for _ in range(100):
        endpoint.later()
    assert endpoint.ends() == []
    assert endpoint.told() == []


def test_clients_are_told_when_this_endpoint_is_home_of_nothing() -> None:
    endpoint = Endpoint(2)
    endpoint.transfers.begin("keys")
    endpoint.leaving.begin(0.0)
    endpoint.later(0.0)
    assert endpoint.members.table.count("m") == 0
    endpoint.later()
    assert (endpoint.ends(), endpoint.told()) == ([], [])
    endpoint.transfers.end("keys")
    endpoint.later()
    assert (endpoint.ends(), endpoint.told()) == ([SlotsTransferred(True)], [0, 1])


def test_they_are_told_in_any_case_when_that_takes_too_long() -> None:
    endpoint = Endpoint(2)
    endpoint.transfers.begin("keys")
    endpoint.leaving.begin(0.0)
    endpoint.later(0.0)
    endpoint.later(PATIENCE.transfer_s - 0.01)
    assert (endpoint.ends(), endpoint.told()) == ([], [])
    endpoint.later(0.01)
    assert (endpoint.ends(), endpoint.told()) == ([SlotsTransferred(False)], [0, 1])


def test_many_are_told_a_few_at_a_time_over_the_seconds_that_were_given() -> None:
    endpoint = Endpoint(1_000)
    endpoint.leaving.begin(2.0)
    batches = []
    for _ in range(21):
        endpoint.later()
        batches.append(len(endpoint.told()))
    assert batches == [50] * 20 + [0]  # 20 steps of a tenth of a second


def test_turns_between_two_batches_tell_nobody_more() -> None:
    endpoint = Endpoint(3 * SIZES.told_at_once)
    endpoint.leaving.begin(60.0)
    endpoint.later()
    assert len(endpoint.told()) == SIZES.told_at_once
    for _ in range(3):
        endpoint.later(STEP_S / 4)
        assert endpoint.told() == []
    endpoint.later(STEP_S / 4 + 0.001)
    assert len(endpoint.told()) == SIZES.told_at_once


def test_where_no_time_was_given_all_are_told_at_once() -> None:
    endpoint = Endpoint(SIZES.told_at_once + 1)
    endpoint.leaving.begin(0.0)
    endpoint.later()
    assert len(endpoint.told()) == SIZES.told_at_once + 1


def test_few_take_no_longer_than_they_need() -> None:
    endpoint = Endpoint(SIZES.told_at_once + 1)
    endpoint.leaving.begin(60.0)
    endpoint.later()
    assert endpoint.told() == list(range(SIZES.told_at_once))
    endpoint.later()
    assert endpoint.told() == [SIZES.told_at_once]


@pytest.mark.parametrize("waits_for", ["reply", "backlog", "rest of a frame"])
def test_who_is_owed_something_is_read_no_more_and_told_when_it_has_it(waits_for: str) -> None:
    endpoint = Endpoint(2)
    first, second = endpoint.connections
    if waits_for == "reply":
        waits_for_a_reply(endpoint, first)
    elif waits_for == "backlog":
        first.backlog.append(b"{}")
    else:
        first.unread = 10
    endpoint.leaving.begin(0.0)
    endpoint.later()
    assert endpoint.told() == [second.number]
    assert first.paused
    assert PauseOrResume(first) in endpoint.desk.acts
    first.replies.clear()
    first.backlog.clear()
    first.unread = 0
    endpoint.later()
    assert endpoint.told() == [first.number]
    assert not first.paused  # the endpoint reads its close


def test_who_waits_for_too_long_is_told_in_any_case() -> None:
    endpoint = Endpoint(1)
    waits_for_a_reply(endpoint, endpoint.connections[0])
    endpoint.leaving.begin(0.0)
    endpoint.later()
    endpoint.later(PATIENCE.replies_s - 0.01)
    assert endpoint.told() == []
    endpoint.later(0.01)
    assert endpoint.told() == [0]


def test_who_has_gone_or_was_told_otherwise_is_not_told() -> None:
    endpoint = Endpoint(5)
    gone, closed, gone_soon, closed_soon, there = endpoint.connections
    endpoint.sessions.disconnected(gone)
    endpoint.sending.close(closed, SLOW_CONSUMER)
    waits_for_a_reply(endpoint, gone_soon)
    waits_for_a_reply(endpoint, closed_soon)
    endpoint.closes()
    endpoint.leaving.begin(0.0)
    endpoint.later()
    assert endpoint.told() == [there.number]
    assert endpoint.reading_changed() == [gone_soon.number, closed_soon.number, there.number]
    endpoint.sessions.disconnected(gone_soon)
    endpoint.sending.close(closed_soon, SLOW_CONSUMER)
    endpoint.closes()
    endpoint.later(PATIENCE.replies_s)
    assert endpoint.told() == []
    assert endpoint.reading_changed() == [closed_soon.number]  # the endpoint reads it for its close


def test_the_process_may_end_when_everything_under_way_is_finished() -> None:
    endpoint = Endpoint(1)
    endpoint.busy = True
    waits_for_a_reply(endpoint, endpoint.connections[0])
    endpoint.leaving.begin(0.0)
    endpoint.later()
    endpoint.later()
    assert not endpoint.out()  # it still has a client
    endpoint.later(PATIENCE.replies_s)
    endpoint.later()
    assert endpoint.told() == [0]
    assert not endpoint.out()  # it may have sent something before it reads the close
    endpoint.sessions.disconnected(endpoint.connections[0])
    endpoint.later()
    endpoint.later()
    assert endpoint.out()
    assert endpoint.ends() == [SlotsTransferred(True)]
    endpoint.later()
    assert endpoint.ends() == []
    endpoint.busy = False
    endpoint.later()
    assert endpoint.ends() == [Left(True)]
    endpoint.later()
    assert endpoint.ends() == []


def test_a_client_that_does_not_answer_the_close_is_waited_for_as_long_as_after_a_close_of_its_own() -> None:
    endpoint = Endpoint(1)
    endpoint.leaving.begin(0.0)
    endpoint.later()
    assert endpoint.told() == [0]
    endpoint.later(AFTER_CLOSE_S - 0.01)
    endpoint.later(0.0)
    assert not endpoint.out()
    endpoint.later(0.01)
    endpoint.later(0.0)
    assert endpoint.out()


def test_and_ends_in_any_case() -> None:
    endpoint = Endpoint()
    endpoint.busy = True
    endpoint.leaving.begin(0.0)
    endpoint.later()
    assert endpoint.ends() == [SlotsTransferred(True)]
    endpoint.later(LEAVE_S - 0.01)
    endpoint.out()
    assert endpoint.ends() == []
    endpoint.later(0.01)
    assert endpoint.ends() == [Left(False)]
