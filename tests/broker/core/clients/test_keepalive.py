"""The life span of a connection: clients must answer pings, and tokens expire."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.clients.keepalive import PING_SLOT_S, PINGS_UNANSWERED_MAX, Keepalive
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.effects import Ping
from ingeborg.protocol.errors import GOING_AWAY, PING_TIMEOUT, TOKEN_EXPIRED

from ..surroundings import Surroundings

PING_S = 25.0
UNIX_S = 1_700_000_000.0


class Endpoint(Surroundings):
    def __init__(self) -> None:
        super().__init__(unix_s=UNIX_S)
        self.keepalive = Keepalive(self.desk.real, self.sending, PING_S)

    def connect(self, expires_at: float | None = None) -> Connection:
        connection = self.client()
        if expires_at is not None:
            connection.grant = Grant("anna", (), (), False, expires_at)
        self.keepalive.connected(connection)
        return connection

    def pinged(self, seconds: float) -> list[int]:
        """Return the numbers of the connections that are pinged within this many seconds of ticks."""
        numbers: list[int] = []
        end = self.desk.now + seconds
        while self.desk.now < end - PING_SLOT_S / 2:
            self.desk.now += PING_SLOT_S
            self.keepalive.tick()
            numbers += [act.connection.number for act in self.desk.acts if isinstance(act, Ping)]
            self.desk.acts[:] = [act for act in self.desk.acts if not isinstance(act, Ping)]
        return numbers

    def expired(self, unix_s: float) -> list[tuple[int, int]]:
        """Return the numbers of the connections whose tokens have expired at this time, with their close codes."""
        self.desk.real.tick(unix_s)
        self.keepalive.tick()
        return self.closes()


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


# Pings


def test_each_connection_is_pinged_once_in_a_period(endpoint: Endpoint) -> None:
    numbers = [endpoint.connect().number for _ in range(3)]
    for _ in range(2):
        assert sorted(endpoint.pinged(PING_S)) == numbers


def test_connections_that_come_together_are_not_pinged_together(endpoint: Endpoint) -> None:
    slots = round(PING_S / PING_SLOT_S)
    for _ in range(2 * slots):
        endpoint.connect()
    pinged = [len(endpoint.pinged(PING_SLOT_S)) for _ in range(slots + 1)]  # the last ends one tick late, by rounding
    assert sum(pinged) == 2 * slots
    assert max(pinged) <= 4  # two; ticks that meet the ends of two slots can add more, by rounding


def test_who_leaves_two_unanswered_is_closed_at_the_time_of_the_next(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    assert PINGS_UNANSWERED_MAX == 2  # as SPEC section 1.2 says
    assert endpoint.pinged(2 * PING_S) == [connection.number] * 2
    assert endpoint.closes() == []
    assert endpoint.pinged(PING_S) == []
    assert endpoint.closes() == [(connection.number, PING_TIMEOUT.code)]
    assert endpoint.desk.counts == {"pings_unanswered": 1}


def test_who_answers_now_and_then_lives_on(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    for _ in range(5):
        endpoint.pinged(2 * PING_S)
        endpoint.keepalive.ponged(connection)
    assert endpoint.closes() == []
    assert endpoint.desk.counts == {}


def test_who_is_closed_or_told_to_go_is_left_alone(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    endpoint.pinged(2 * PING_S)
    endpoint.sending.close(connection, GOING_AWAY)
    assert endpoint.closes() == [(connection.number, GOING_AWAY.code)]
    assert endpoint.pinged(4 * PING_S) == []
    assert endpoint.closes() == []


def test_while_a_client_is_not_read_its_answers_are_not_missed(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    connection.backpressure = True
    assert endpoint.pinged(5 * PING_S) == []
    assert endpoint.closes() == []
    connection.backpressure = False
    assert endpoint.pinged(PING_S) == [connection.number]


def test_a_connection_that_is_gone_is_pinged_no_more(endpoint: Endpoint) -> None:
    gone, there = endpoint.connect(), endpoint.connect()
    endpoint.pinged(PING_S)  # so its second ping is due in another slot than its first
    endpoint.keepalive.disconnected(gone)
    assert endpoint.pinged(PING_S) == [there.number]


# Tokens


def test_a_connection_is_closed_in_the_second_in_which_its_token_ends_and_not_before(endpoint: Endpoint) -> None:
    connection = endpoint.connect(UNIX_S + 10.25)
    assert endpoint.expired(UNIX_S + 10.25) == []
    assert endpoint.expired(UNIX_S + 10.99) == []
    assert endpoint.expired(UNIX_S + 11.0) == [(connection.number, TOKEN_EXPIRED.code)]
    assert endpoint.expired(UNIX_S + 12.0) == []
    assert endpoint.desk.counts == {"tokens_expired": 1}


def test_a_token_that_is_over_already_is_found_with_the_next_second(endpoint: Endpoint) -> None:
    connection = endpoint.connect(UNIX_S - 5.0)
    assert endpoint.expired(UNIX_S + 1.0) == [(connection.number, TOKEN_EXPIRED.code)]


def test_tokens_go_by_unix_time_alone(endpoint: Endpoint) -> None:
    """Unix time can be set back, while monotonic time goes on."""
    connection = endpoint.connect(UNIX_S + 10)
    for _ in range(100):
        endpoint.desk.now += 1.0
        endpoint.keepalive.ponged(connection)
        assert endpoint.expired(UNIX_S) == []
    assert endpoint.expired(UNIX_S - 3_600.0) == []
    assert endpoint.expired(UNIX_S + 9.0) == []
    assert endpoint.expired(UNIX_S + 10.0) == [(connection.number, TOKEN_EXPIRED.code)]


def test_without_a_token_and_after_the_end_nothing_expires(endpoint: Endpoint) -> None:
    endpoint.connect()
    gone = endpoint.connect(UNIX_S + 10)
    endpoint.keepalive.disconnected(gone)
    assert endpoint.expired(UNIX_S + 100_000.0) == []
    assert endpoint.desk.counts == {}


def test_a_token_that_ends_ends_also_what_a_client_that_is_told_to_go_may_still_send(endpoint: Endpoint) -> None:
    connection = endpoint.connect(UNIX_S + 10)
    endpoint.sending.close(connection, GOING_AWAY)
    endpoint.closes()
    assert endpoint.expired(UNIX_S + 10) == [(connection.number, TOKEN_EXPIRED.code)]
