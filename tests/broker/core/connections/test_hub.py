"""The clients that listen on this endpoint, and their connections, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.connections.hub import Connection, Hub
from ingeborg.broker.core.connections.outbox import Outbox
from ingeborg.broker.core.model import Location

HERE = Location(1, "here", True)


def connections(count: int) -> list[Connection]:
    return [Connection(number, Outbox(100)) for number in range(count)]


def test_the_newest_listen_wins_and_names_the_former() -> None:
    hub = Hub()
    first, second = connections(2)
    assert hub.bind("c", first) is None
    hub.bindings["c"].location = HERE
    former = hub.bind("c", second)
    assert former is not None
    assert (former.connection, former.location) == (first, HERE)
    assert (first.clients, second.clients) == (set(), {"c"})
    assert hub.bindings["c"].location is None  # its own location is still being written


def test_listening_again_on_the_same_connection_keeps_the_location() -> None:
    hub = Hub()
    (connection,) = connections(1)
    hub.bind("c", connection)
    hub.bindings["c"].location = HERE
    assert hub.bind("c", connection) is None
    assert hub.bindings["c"].location == HERE


def test_only_the_connection_that_has_the_client_can_give_it_up() -> None:
    hub = Hub()
    first, second = connections(2)
    hub.bind("c", first)
    hub.bind("c", second)
    assert hub.unbind("c", first) is None
    assert hub.unbind("nobody", first) is None
    binding = hub.unbind("c", second)
    assert binding is not None
    assert binding.connection is second
    assert (hub.bindings, second.clients) == ({}, set())


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 2)), max_size=40))
def test_it_agrees_with_a_dictionary(steps: list[tuple[bool, str, int]]) -> None:
    hub = Hub()
    all_connections = connections(3)
    model: dict[str, int] = {}
    for bind, client, index in steps:
        connection = all_connections[index]
        if bind:
            former = hub.bind(client, connection)
            was = model.get(client)
            assert (former is None) is (was is None or was == index)
            model[client] = index
        else:
            assert (hub.unbind(client, connection) is not None) is (model.get(client) == index)
            if model.get(client) == index:
                del model[client]
        assert {client: binding.connection.number for client, binding in hub.bindings.items()} == model
        for connection in all_connections:
            assert connection.clients == {client for client, at in model.items() if at == connection.number}
