"""Membership and broadcast together: after any faults of a few nodes, the survivors have all owed messages, in
order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingeborg.broker.core.overlay.grove import Grove
from ingeborg.broker.core.overlay.node import Desk
from ingeborg.broker.core.overlay.trees import Bounds
from ingeborg.broker.core.overlay.views import Options
from ingeborg.broker.core.overlay.wanted import GAP_WAIT_S

from .histories import CRASHES, CUTS, LATE, PUT_OUT, SEVERED, History, grove, nothing_waits

SEEDS = st.integers(0, 1 << 20)

#: Seconds after which survivors have everything, and extra seconds for the small world itself: a node notices a broken
#: link within 0.4, and a dial that fails takes up to 0.5.
WITHIN_S = 5.0
SLACK_S = 1.0

#: Seconds after which any overlay of a few nodes is whole again, if necessary by the registry.
WHOLE_S = 25.0

#: Bounds under which a few kilobytes are much for a node.
TIGHT = Bounds(held_bytes_max=3, queue_max=20)


def tight(desk: Desk, me: int) -> Grove:
    """Return a node whose links restart all the time."""
    return Grove(desk, me, TIGHT)


def gaps(history: History) -> int:
    """Count the gaps of living nodes."""
    return sum(node.gaps for node in history.groves())


def complete(history: History) -> None:
    """Check that every node has all messages sent since it came."""
    history.small.naive.complete(history.small.living(), history.since)
    assert all(nothing_waits(node) for node in history.groves())


@pytest.mark.parametrize("make", [grove, tight])
@pytest.mark.parametrize(
    "befall",
    [(SEVERED,), (PUT_OUT,), (CRASHES,), (LATE,), (CUTS,), (SEVERED, PUT_OUT, LATE), (SEVERED, CUTS)],
    ids="+".join,
)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, nodes=st.integers(5, 12))
def test_survivors_have_everything(make: object, befall: tuple[str, ...], seed: int, nodes: int) -> None:
    history = History(seed, nodes, grove if make is grove else tight)
    history.steps(50, befall)
    history.small.run(WHOLE_S)
    assert history.reached() == len(history.small.living())
    assert gaps(history) == 0
    complete(history)


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, nodes=st.integers(4, 12), few=st.booleans())
def test_whatever_befalls_nodes_nothing_comes_twice_or_out_of_order(seed: int, nodes: int, few: bool) -> None:
    """The naive oracle checks each delivery. With fewer neighbours, islands form in between. A new node can join two
    islands without the earlier messages of either, which counts as a gap."""
    history = History(seed, nodes, options=Options(3, 4) if few else None)
    history.steps(60, (SEVERED, CRASHES, CUTS, LATE, PUT_OUT))
    history.small.run(WHOLE_S)
    assert history.reached() == len(history.small.living())
    if not gaps(history):
        complete(history)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_survivors_of_a_crash_have_everything_within_five_seconds(share: float, seed: int) -> None:
    history = History(seed, 12)
    small = history.small
    history.steps(40, ())
    for node in small.random.sample(range(12), round(12 * share)):
        small.crash(node)
    history.steps(20, ())
    small.run(WITHIN_S + SLACK_S)
    assert all(history.views().values())
    assert gaps(history) == 0
    complete(history)


@pytest.mark.parametrize("seed", range(6))
def test_halves_have_everything_of_each_other_within_five_seconds(seed: int) -> None:
    history = History(seed, 12)
    small = history.small
    history.steps(20, ())
    small.cut(lambda node: node < 6)
    for _ in range(30):
        small.run(0.1)
        small.broadcast(small.random.randrange(12))
    small.heal()
    history.steps(10, ())
    small.run(WITHIN_S + SLACK_S)
    assert gaps(history) == 0
    complete(history)


def test_what_is_older_than_histories_is_given_up_and_counted() -> None:
    """Halves that were apart for longer go on together, each without the other's earlier messages."""
    history = History(3, 12)
    small = history.small
    history.steps(20, ())
    small.cut(lambda node: node < 6)
    for _ in range(20):
        small.run(1.0)
        small.broadcast(small.random.randrange(12))
    small.heal()
    small.run(WITHIN_S + GAP_WAIT_S)
    assert gaps(history) > 0
    now = small.now
    history.steps(20, ())
    small.run(WITHIN_S)
    small.naive.complete(small.living(), dict.fromkeys(small.living(), now))
    assert all(nothing_waits(node) for node in history.groves())
