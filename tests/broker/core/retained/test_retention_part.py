"""Expired messages go on their own, and the messages from the journal go into the replicas of their slot."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.cluster.replicas import ReplicaOwner
from ingeborg.broker.core.retained.journal import Unread
from ingeborg.protocol.hashes import slot_of

from .here import IN_STORE, Keeper

SLOT = slot_of("t")


@pytest.fixture
def here() -> Keeper:
    return Keeper("a", settings=IN_STORE)


def test_what_has_been_read_is_a_change_in_each_replica_of_its_slot(here: Keeper) -> None:
    replica = here.cluster.replicas.begin(ReplicaOwner(), "a", frozenset([SLOT]))
    here.state.arrived([SLOT, SLOT + 1], False)
    (stamp,) = {unread.stamp for _, unread in here.journal.has_read}
    here.retained.retention_part.flush()
    assert here.journal.has_read == []
    assert replica.changes == {here.state: {Unread(SLOT, stamp): SLOT}}


def test_where_nothing_is_copied_it_is_nobodys(here: Keeper) -> None:
    here.state.arrived([SLOT], False)
    here.retained.retention_part.flush()
    assert here.journal.has_read == []
    replica = here.cluster.replicas.begin(ReplicaOwner(), "a", frozenset([SLOT]))
    here.retained.retention_part.flush()
    assert replica.changes == {}


def test_what_is_over_is_forgotten_with_a_tick(here: Keeper) -> None:
    entry = here.keep("t", 5, expires_s=1.0)
    here.retained.retention_part.tick()
    assert not entry.gone
    here.desk.now += 1.0
    here.retained.retention_part.tick()
    assert entry.gone
