"""The simulator: order on links, the ends of links, the cost of an interface, and the same bytes from the same seed."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from ingeborg.bench.errors import BenchError
from ingeborg.bench.overlay.drawn import overlay
from ingeborg.bench.overlay.sites import BETWEEN_SITES_NS, JITTER_NS, WITHIN_SITE_NS
from ingeborg.bench.overlay.wheel import SLOT_S
from ingeborg.bench.overlay.world import DETECT_S, UNREACHABLE_S, World

from .nodes import CONTROL, Diary, Flooding, outputs

#: Numbers of a world of four: two nodes at each site.
NANCY, NANCY_TOO, RENNES, RENNES_TOO = range(4)

JITTER_S = JITTER_NS / 1e9
MS = 1e-3


def diaries(nodes: int = 4, seed: int = 1) -> World:
    return World(nodes, Diary, seed)


def diary(world: World, number: int) -> Diary:
    node = world.places[number].node
    assert isinstance(node, Diary)
    return node


def dial(world: World, one: int, other: int) -> None:
    world.places[one].dial(other)
    world.run(world.now_s + 0.1)


def test_messages_of_a_link_keep_their_order_whatever_the_jitter() -> None:
    world = diaries()
    world.connect([[RENNES], [], [NANCY], []])
    for number in range(50):
        world.at(0.001 * number, world.places[NANCY].send, RENNES, (0, number), CONTROL)
    world.run(1.0)
    got = [entry for entry in diary(world, RENNES).told if entry[1] == "received"]
    assert [entry[3][1] for entry in got] == list(range(50))
    assert BETWEEN_SITES_NS / 1e9 - SLOT_S <= got[0][0] <= BETWEEN_SITES_NS / 1e9 + JITTER_S + SLOT_S
    assert (world.messages, world.payload_bytes, world.control_bytes) == (50, 0, 50 * CONTROL)


def test_within_a_site_a_message_takes_the_sites_latency() -> None:
    world = diaries()
    world.connect([[NANCY_TOO], [NANCY], [], []])
    world.places[NANCY].send(NANCY_TOO, (0,), CONTROL)
    world.run(1.0)
    ((at, *_),) = (entry for entry in diary(world, NANCY_TOO).told if entry[1] == "received")
    assert WITHIN_SITE_NS / 1e9 - SLOT_S <= at <= WITHIN_SITE_NS / 1e9 + JITTER_S + SLOT_S


def test_an_interface_passes_one_message_after_the_other() -> None:
    """Nancy sends 10 MB at 50 Gbps, Rennes receives it at 20: the second message comes 4 ms after the first."""
    world = diaries()
    world.connect([[RENNES, RENNES_TOO], [], [NANCY], [NANCY]])
    for _ in range(20):
        world.places[NANCY].send(RENNES, (0,), 0, 10_000_000)
        world.places[NANCY].send(RENNES_TOO, (0,), 0, 10_000_000)
    assert world.under_way == 40
    world.run(2.0)
    assert world.under_way == 0
    times = sorted(
        entry[0] for number in (RENNES, RENNES_TOO) for entry in diary(world, number).told if entry[1] == "received"
    )
    assert len(times) == 40
    # The sender's interface needs 64 ms for all, the receiver's 160.
    assert times[-1] - times[0] == pytest.approx(39 * 4 * MS, abs=2 * MS)
    for number in (RENNES, RENNES_TOO):
        told = [entry for entry in diary(world, number).told if entry[1] == "received"]
        assert all(one[0] <= other[0] for one, other in itertools.pairwise(told))


def test_within_a_host_nothing_passes_an_interface() -> None:
    world = diaries()
    world.connect([[NANCY_TOO], [NANCY], [], []])
    world.places[NANCY].send(NANCY_TOO, (0,), 0, 10_000_000_000)
    world.run(0.1)
    assert diary(world, NANCY_TOO).what()[-1] == ("received", NANCY, (0,), 10_000_000_000)


def test_a_dial_is_answered_before_anything_comes_over_the_link() -> None:
    world = diaries()

    class Greeting(Diary):
        def up(self, peer: Any, dialled: bool) -> None:
            super().up(peer, dialled)
            self.desk.send(peer, (0, "welcome"), CONTROL)

    world = World(4, Greeting, 1)
    dial(world, NANCY, RENNES)
    assert diary(world, RENNES).what() == [("up", NANCY, False), ("received", NANCY, (0, "welcome"), 0)]
    assert diary(world, NANCY).what() == [("up", RENNES, True), ("received", RENNES, (0, "welcome"), 0)]


def test_two_that_dial_each_other_get_one_link() -> None:
    for seed in range(20):
        world = diaries(seed=seed)
        world.places[NANCY].dial(RENNES)
        world.at(seed * MS, world.places[RENNES].dial, NANCY)
        world.run(1.0)
        assert [entry[0] for entry in diary(world, NANCY).what()] == ["up"]
        assert [entry[0] for entry in diary(world, RENNES).what()] == ["up"]
        assert world.places[NANCY].ends[RENNES].back is world.places[RENNES].ends[NANCY]
        assert not world.places[NANCY].dialling
        assert not world.places[RENNES].dialling


def test_who_hangs_up_is_told_nothing_and_the_other_end_gets_what_was_sent_before() -> None:
    world = diaries()
    world.connect([[RENNES], [], [NANCY], []])
    world.places[NANCY].send(RENNES, (0, "last"), CONTROL)
    world.places[RENNES].send(NANCY, (0, "lost"), CONTROL)
    world.places[NANCY].hang_up(RENNES)
    world.places[NANCY].send(RENNES, (0, "too late"), CONTROL)
    world.run(1.0)
    assert diary(world, NANCY).what() == [("up", RENNES, True)]
    assert diary(world, RENNES).what() == [
        ("up", NANCY, False),
        ("received", NANCY, (0, "last"), 0),
        ("down", NANCY),
    ]
    assert world.lost == 1
    assert not world.places[RENNES].ends


def test_the_end_of_a_link_does_not_overtake_what_waits_for_an_interface() -> None:
    world = World(100, Diary, 1)
    # Two nodes of the faster site send to one host of the other at once.
    links = {0: 50, 1: 51}
    neighbours = [[links[node]] if node in links else [node - 50] if node - 50 in links else [] for node in range(100)]
    world.connect(neighbours)
    for number in range(20):
        for one, other in links.items():
            world.places[one].send(other, (0, number), CONTROL, 1_000_000)
    world.places[0].hang_up(50)
    world.run(1.0)
    assert [what[0] for what in diary(world, 50).what()] == ["up", *["received"] * 20, "down"]
    assert world.lost == 0


def test_a_new_link_is_not_mixed_up_with_the_old_one() -> None:
    """A node dials again at once after the end of the old one, and its request can overtake that end."""
    for seed in range(30):
        world = diaries(seed=seed)
        world.connect([[RENNES], [], [NANCY], []])
        for _ in range(20):  # make the end arrive late
            world.places[NANCY].send(RENNES, (0, "old"), CONTROL)
        world.places[NANCY].hang_up(RENNES)
        world.places[NANCY].dial(RENNES)
        world.run(1.0)
        kinds = [entry[0] for entry in diary(world, RENNES).what() if entry[0] != "received"]
        assert kinds == ["up", "down", "up"]
        assert [entry[0] for entry in diary(world, NANCY).what()] == ["up", "up"]
        world.places[RENNES].send(NANCY, (0, "new"), CONTROL)
        world.run(2.0)
        assert diary(world, NANCY).what()[-1] == ("received", RENNES, (0, "new"), 0)


def test_a_crash_is_noticed_after_a_while_and_what_was_sent_before_comes() -> None:
    world = diaries()
    world.connect([[RENNES], [], [NANCY], []])
    world.places[NANCY].send(RENNES, (0, "last"), CONTROL)
    world.places[NANCY].after(0.5, "never")
    world.crash(NANCY)
    world.places[RENNES].send(NANCY, (0, "to nobody"), CONTROL)
    world.broadcast(NANCY, 1)
    world.run(2.0)
    assert diary(world, NANCY).what() == [("up", RENNES, True)]
    assert diary(world, RENNES).what()[1:] == [("received", NANCY, (0, "last"), 0), ("down", NANCY)]
    assert diary(world, RENNES).told[-1][0] == pytest.approx(DETECT_S, abs=2 * SLOT_S)
    dial(world, RENNES, NANCY)
    assert diary(world, RENNES).what()[-1] == ("unreachable", NANCY)


def test_a_node_that_crashes_before_its_dial_is_answered_is_found_down() -> None:
    world = diaries()
    world.places[NANCY].dial(RENNES)
    world.at(0.016, world.crash, NANCY)
    world.run(3.0)
    assert diary(world, RENNES).what() == [("up", NANCY, False), ("down", NANCY)]
    assert not world.places[NANCY].ends


def test_a_cut_loses_what_is_under_way_and_lasts_until_it_is_healed() -> None:
    world = diaries()
    world.connect([[NANCY_TOO, RENNES], [NANCY], [NANCY], []])
    world.places[NANCY].send(RENNES, (0, "lost"), CONTROL)
    world.cut(lambda node: node < RENNES)
    world.places[RENNES].send(NANCY, (0, "lost"), CONTROL)
    world.run(DETECT_S + 0.1)
    assert diary(world, NANCY).what()[2:] == [("down", RENNES)]
    assert diary(world, RENNES).what()[1:] == [("down", NANCY)]
    assert diary(world, NANCY_TOO).what() == [("up", NANCY, False)]
    world.places[NANCY].dial(RENNES)
    world.run(world.now_s + UNREACHABLE_S + 0.1)
    assert diary(world, NANCY).what()[-1] == ("unreachable", RENNES)
    world.heal()
    dial(world, NANCY, RENNES)
    assert diary(world, NANCY).what()[-1] == ("up", RENNES, True)


def test_a_cut_between_question_and_answer_of_a_dial_leaves_no_half_link() -> None:
    world = diaries()
    world.places[NANCY].dial(RENNES)
    world.at(0.016, world.cut, lambda node: node < RENNES)
    world.run(3.0)
    assert diary(world, RENNES).what() == [("up", NANCY, False), ("down", NANCY)]
    assert diary(world, NANCY).what() == [("up", RENNES, True), ("down", RENNES)]
    assert not world.places[NANCY].ends
    assert not world.places[RENNES].ends


def test_a_severed_link_is_down_at_both_ends() -> None:
    world = diaries()
    world.connect([[RENNES], [], [NANCY], []])
    world.sever(NANCY, RENNES)
    world.sever(NANCY, NANCY_TOO)  # there is none
    world.run(2.0)
    assert diary(world, NANCY).what()[-1] == ("down", RENNES)
    assert diary(world, RENNES).what()[-1] == ("down", NANCY)


def test_timers_come_in_time_and_never_within_the_same_event() -> None:
    world = diaries()
    world.places[0].after(0.25, "later")
    world.places[0].after(0.0, "soon")
    world.places[0].after(20.0, "much later")
    world.run(21.0)
    assert diary(world, 0).told == [(SLOT_S, "due", "soon"), (0.25, "due", "later"), (20.0, "due", "much later")]


def test_the_registry_names_living_others_and_is_counted() -> None:
    world = diaries(6)
    world.crash(1)
    named = [peer for _ in range(50) for peer in world.places[0].contacts()]
    assert set(named) == {2, 3, 4, 5}
    assert world.registry_reads == 50


def test_a_late_node_runs_where_another_does_and_joins_by_dialling() -> None:
    world = diaries()
    late = world.add()
    assert late == 4
    assert world.places[late].linked_at is None
    dial(world, late, RENNES)
    assert diary(world, late).what() == [("up", RENNES, True)]
    assert world.places[late].linked_at is not None


def test_a_protocol_without_an_end_is_stopped() -> None:
    class Echo(Diary):
        def received(self, peer: Any, wire: Any, payload_bytes: int) -> None:
            self.desk.send(peer, wire, CONTROL)

    world = World(4, Echo, 1, events_max=100)
    world.connect([[NANCY_TOO], [NANCY], [], []])
    world.places[NANCY].send(NANCY_TOO, (0,), CONTROL)
    with pytest.raises(BenchError, match="does not end"):
        world.run(100.0)


def test_a_flood_reaches_all_and_sends_every_link_but_one_of_each_node() -> None:
    world = World(200, Flooding, 1)
    neighbours = overlay(200, 5, Random(1))
    world.connect(neighbours)
    world.broadcast(7, 1_000)
    world.run(2.0)
    assert len(world.record.nodes) == 200
    links = sum(map(len, neighbours))
    # Each node sends over all links except one, its root over all; a copy can cross another one on its way.
    assert world.payload_bytes == 1_000 * (links - 199)
    assert world.events == world.messages == links - 199


PROGRAM = """
from random import Random
from ingeborg.bench.overlay.drawn import overlay
from ingeborg.bench.overlay.world import World
from tests.bench.overlay.nodes import Flooding

world = World(60, Flooding, 3)
world.connect(overlay(60, 4, Random("3")))
for number in range(20):
    world.at(0.01 * number, world.broadcast, number, 1000)
world.at(0.1, world.crash, 30)
world.at(0.12, world.cut, lambda node: node % 2)
world.run(3.0)
record = world.record
print(record.slots.tobytes().hex()[-400:], record.nodes.tobytes().hex()[-400:], world.events, world.lost)
"""


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    assert len(outputs(PROGRAM, "0", "1", "2")) == 1
