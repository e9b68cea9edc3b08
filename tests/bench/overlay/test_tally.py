"""The tally counts the traffic over the links by the names of its kinds."""

from __future__ import annotations

from ingeborg.bench.overlay.protocols import wires as printed
from ingeborg.bench.overlay.tally import Tally
from ingeborg.broker.core.overlay import wires as grove
from ingeborg.broker.core.overlay.words import JOIN, SHUFFLE


def test_kinds_have_their_protocols_names_and_the_memberships_are_one() -> None:
    tally = Tally("plumtree")
    for kind in (printed.GOSSIP, printed.IHAVE, printed.GOSSIP, JOIN, SHUFFLE):
        tally.count((kind,), 10)
    assert tally.by_name() == {"gossip": [2, 20, 0], "ihave": [1, 10, 0], "membership": [2, 20, 0]}
    assert tally.entry_bytes() is None


def test_the_entries_of_grove_are_counted_where_they_go_without_a_payload() -> None:
    tally = Tally("grove")
    key = (1, 1)
    tally.count((grove.ENTRIES, (key, key)), 14)
    tally.count((grove.ENTRIES, (key,)), 8)
    tally.count((grove.PAYLOAD, key, 1, 0.0, (key,)), 20)
    assert tally.by_name() == {"payload": [1, 20, 0], "entries": [2, 22, 3]}
    assert tally.entry_bytes() == 7.333
    assert Tally("grove").entry_bytes() is None


def test_no_kind_of_the_membership_is_one_of_a_protocol() -> None:
    names = [*vars(printed).items(), *vars(grove).items()]
    kinds = [value for name, value in names if name.isupper() and isinstance(value, int) and "BYTES" not in name]
    assert max(kinds) < JOIN
