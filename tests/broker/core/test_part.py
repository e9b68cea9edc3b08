"""The commands, requests and hooks of all parts of an endpoint together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingeborg.broker.core.base import Base
from ingeborg.broker.core.layers import Layers, Options, by_homes
from ingeborg.broker.core.lookup.assembly import by_lookup
from ingeborg.broker.core.part import bind

from .fake_desk import FakeDesk

#: Commands with special rules: one overlaps no other of its kind, puts a message under way, or begins although its
#: connection is over.
ONE_BY_ONE = {"subscriptions"}
PUBLISHES = {"publish", "broadcast"}
AFTER_CLOSE = {"publish", "broadcast", "subscribe", "unsubscribe", "revoke"}


@pytest.mark.parametrize("layers", [by_homes, by_lookup])
@pytest.mark.parametrize("presence", [(), ("room/",)])
def test_each_command_has_its_rules_whichever_part_takes_it_first(
    layers: Callable[[Base, Options], Layers], presence: tuple[str, ...]
) -> None:
    commands = bind(layers(FakeDesk().base, Options(presence=presence)).parts).commands
    assert {name for name, spec in commands.items() if not spec.overlaps} == ONE_BY_ONE
    assert {name for name, spec in commands.items() if spec.publishes} == PUBLISHES
    assert {name for name, spec in commands.items() if spec.after_close} == AFTER_CLOSE
