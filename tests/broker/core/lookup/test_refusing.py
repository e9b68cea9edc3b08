"""Lookup routing refuses the commands that it cannot serve, and passes all others on."""

from __future__ import annotations

from typing import Any

import pytest

from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.lookup.refusing import Refusing
from ingeborg.broker.core.part import CommandSpec
from ingeborg.protocol.messages import Command

from ..surroundings import Surroundings, command


class Endpoint(Surroundings):
    """Notes the commands that are passed on, by their names and ids."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        spec = CommandSpec(self._take, after_close=True)
        self.commands = Refusing(self.replies, spec, spec).commands()

    def _take(self, connection: Connection, command: Command) -> None:
        self.taken.append(f"{command.name} {command.id}")

    def say(self, name: str, **fields: Any) -> list[Any]:
        """Send a command; return the replies."""
        connection = self.client(name)
        self.commands[name].handler(connection, command(name, topic="t", id=7, **fields))
        return self.heard(connection)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.mark.parametrize(
    ("name", "fields", "key"),
    [
        ("subscribe", {"until": "disconnect"}, "'until'"),
        ("subscribe", {"ttl_s": 7}, "'ttl_s'"),
        ("subscribe", {"filter": {"volume": [9]}}, "'filter'"),
        ("unsubscribe", {"filter": {"volume": [9]}}, "'filter'"),
    ],
)
def test_no_subscription_ends_or_has_a_filter(endpoint: Endpoint, name: str, fields: dict[str, Any], key: str) -> None:
    (reply,) = endpoint.say(name, **fields)
    assert (reply["error"], reply["id"], key in reply["info"]) == ("bad_state", 7, True)
    assert endpoint.taken == []


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe"])
def test_all_others_are_handed_on_by_the_rules_that_they_had(endpoint: Endpoint, name: str) -> None:
    assert endpoint.say(name) == []
    assert endpoint.taken == [f"{name} 7"]
    spec = endpoint.commands[name]
    assert (spec.overlaps, spec.publishes, spec.after_close) == (True, False, True)
