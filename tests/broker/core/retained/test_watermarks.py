"""The progress of all homes, and the positions that follow from it. SPEC section 8.10."""

from __future__ import annotations

import pytest

from ingeborg.broker.core.links.calls import Call
from ingeborg.broker.core.links.requests import WatermarkRequest
from ingeborg.broker.core.model import EPOCHS_MAX, NO_INTRODUCTION, NO_SETTINGS
from ingeborg.broker.core.retained.watermarks import MISSED_MAX, NOT_YET, PERIOD_S, Watermarks

from ..surroundings import peer
from .here import EPOCH, IN_MEMORY, Keeper, at


def heard(watermarks: Watermarks) -> list[object]:
    """End the turn. Returns what others find in the trays of these watermarks, in the order in which they look: first
    the clients that have missed something, then the cluster's watermark, if it has grown."""
    found: list[object] = []
    if watermarks.missing:
        assert not watermarks.advances
        found += watermarks.missing
        watermarks.missing = []
        watermarks.advance()
    if watermarks.advances:
        watermarks.advances = False
        found.append(watermarks.cluster_watermark)
    return found


@pytest.fixture
def here() -> Keeper:
    return Keeper("a", "b")


def told_to(here: Keeper, to: str) -> Call:
    """Return the request to this peer in the next period."""
    here.desk.now += PERIOD_S
    here.watermarks.tick()
    (call,) = [call for call in here.take_asked(WatermarkRequest) if call.target == to]
    return call


def test_no_position_passes_a_message_that_has_not_ended_at_one_of_the_homes(here: Keeper) -> None:
    watermarks = here.watermarks
    first = here.clock.stamp()
    here.clock.stamp()
    here.told("a", 5)
    here.told("b", 7)
    assert (watermarks.cluster_watermark, heard(here.watermarks)) == (0, [])
    here.clock.close(first)
    watermarks.tick()
    assert (watermarks.cluster_watermark, heard(here.watermarks)) == (1, [1])
    here.clock.close(2)
    here.told("a", 6)
    assert (watermarks.cluster_watermark, heard(here.watermarks)) == (6, [6])
    here.told("b", 3)  # an older announcement, which came late
    here.told("a", 9)
    assert (watermarks.cluster_watermark, watermarks.position) == (7, at(7))


def test_a_watermark_is_told_once_a_second(here: Keeper) -> None:
    here.desk.now += PERIOD_S
    here.watermarks.tick()
    assert [call.target for call in here.take_asked(WatermarkRequest)] == ["a", "b"]
    here.desk.now += PERIOD_S / 2
    here.watermarks.tick()
    assert here.take_asked() == []
    here.clock.stamp()
    here.clock.see(9)
    assert told_to(here, "a").request == WatermarkRequest(0, 9, [EPOCH], [], 3)


def test_watermarks_are_told_where_at_least_one_endpoint_keeps_messages() -> None:
    here = Keeper("a", settings=NO_SETTINGS)

    def told() -> list[str]:
        here.desk.now += PERIOD_S
        here.watermarks.tick()
        here.watermarks.greet("a")
        return [call.target for call in here.take_asked(WatermarkRequest)]

    assert told() == []
    here.members.connected(peer("b"), here.desk.now, NO_INTRODUCTION._replace(settings=IN_MEMORY))
    here.members.joined_by("b", 1, 1)
    assert told() == ["a", "b", "a"]
    here.members.left("b")
    assert told() == []


def test_clients_that_missed_something_are_named_until_their_endpoint_has_heard_of_it(here: Keeper) -> None:
    here.watermarks.delivery_failed("a", ["anna"])
    call = told_to(here, "a")
    assert call.request.missed == ["anna"]
    here.watermarks.delivery_failed("a", ["bert"])
    call = told_to(here, "a")  # the first one has no answer
    assert call.request.missed == ["anna", "bert"]
    here.watermarks.answered(call, None)
    assert told_to(here, "a").request.missed == []
    assert told_to(here, "b").request.missed == []


@pytest.mark.parametrize("count", [1, MISSED_MAX + 1])
def test_what_failed_after_the_peer_was_told_is_told_again(here: Keeper, count: int) -> None:
    """The client may have recovered by then, without the second message."""
    clients = [f"c{number}" for number in range(count)]
    here.watermarks.delivery_failed("a", clients)
    call = told_to(here, "a")
    assert call.request.missed == (clients if count == 1 else None)
    here.watermarks.delivery_failed("a", ["c0"])
    here.watermarks.answered(call, None)
    call = told_to(here, "a")
    assert call.request.missed == (["c0"] if count == 1 else None)
    here.watermarks.answered(call, None)
    assert told_to(here, "a").request.missed == []


def test_of_too_many_it_is_told_that_any_may_have_missed_something(here: Keeper) -> None:
    here.watermarks.delivery_failed("a", [f"c{number}" for number in range(MISSED_MAX)])
    few = told_to(here, "a")
    assert len(few.request.missed) == MISSED_MAX
    here.watermarks.delivery_failed("a", ["one more"])
    many = told_to(here, "a")
    assert many.request.missed is None
    here.watermarks.answered(few, None)  # the answer does not cover the last failure
    assert told_to(here, "a").request.missed is None
    here.watermarks.answered(many, None)
    assert told_to(here, "a").request.missed == []


def test_clients_are_told_of_what_they_missed_before_a_position_passes_it(here: Keeper) -> None:
    here.told("b", 4)
    here.clock.see(9)
    here.told("a", 3, 9, ["anna"])
    assert here.watermarks.cluster_watermark == 0
    assert heard(here.watermarks) == [["anna"], 3]
    here.told("a", 4, 9, None)
    assert heard(here.watermarks) == [None, 4]
    here.told("a", 5, 9, [])
    assert heard(here.watermarks) == []


def test_after_a_lapse_no_position_is_told_before_all_have_told_their_watermarks_anew(here: Keeper) -> None:
    here.clock.see(9)
    here.told("a", 4)
    here.told("b", 4)
    assert heard(here.watermarks) == [4]
    here.watermarks.lapsed()
    assert not here.watermarks.known
    here.told("a", 4)
    assert (here.watermarks.known, here.watermarks.cluster_watermark, heard(here.watermarks)) == (False, 4, [])
    here.told("b", 4)
    # It has not grown, but the work that waits for its confirmation goes on.
    assert (here.watermarks.known, here.watermarks.cluster_watermark, heard(here.watermarks)) == (True, 4, [4])


def test_no_position_is_told_before_all_that_act_have_heard_of_each_others_beginning(here: Keeper) -> None:
    here.watermarks.lapsed()
    here.told("a", 5, 8)  # the peer has set floors up to 8, and knows nobody's watermark
    here.told("b", NOT_YET, 9)
    assert not here.watermarks.known
    here.told("b", 9)
    assert not here.watermarks.known  # b would report a gap to a client that came back with 5
    here.told("a", 9)
    assert (here.watermarks.known, here.watermarks.cluster_watermark) == (True, 9)


def test_no_position_is_told_before_this_endpoint_sees_all_that_a_peer_sees(here: Keeper) -> None:
    here.clock.see(9)
    here.watermarks.lapsed()
    here.told("a", 9, count=4)
    here.told("b", 9)
    assert not here.watermarks.known  # a newcomer may have set floors above
    here.members.connected(peer("c"), here.desk.now, here.members.introduction)
    here.members.joined_by("c", 1, 1)
    here.watermarks.view_changed()
    here.told("c", 9)
    assert (here.watermarks.known, here.watermarks.cluster_watermark) == (True, 9)
    here.told("a", 9, count=5)  # with everything known, a newcomer learns it before it comes
    assert here.watermarks.known
    here.watermarks.lapsed()
    for incarnation in "abc":
        here.told(incarnation, 9)
    assert here.watermarks.known


def test_who_is_gone_has_no_say_and_is_told_nothing_of_before_when_it_comes_back(here: Keeper) -> None:
    here.clock.see(9)
    here.told("a", 8)
    here.told("b", 2)
    here.watermarks.delivery_failed("b", ["anna"])
    here.members.left("b")
    here.watermarks.view_changed()
    here.watermarks.delivery_failed("b", ["anna"])  # b recovers all its clients when it comes back
    here.watermarks.tick()
    assert here.watermarks.cluster_watermark == 8
    here.members.connected(peer("c"), here.desk.now, here.members.introduction)
    here.members.joined_by("c", 1, 1)
    here.watermarks.view_changed()
    here.told("a", 9)
    assert here.watermarks.cluster_watermark == 8  # the newcomer has not announced its own
    here.told("c", 9)
    assert here.watermarks.cluster_watermark == 9


def test_who_begins_alone_begins_a_line_and_who_comes_takes_over_the_others(here: Keeper) -> None:
    assert list(here.watermarks.epochs) == [EPOCH]
    first = Watermarks(here.desk.real, here.members, here.clock)
    first.watermark_told("a", 1, WatermarkRequest(0, 0, ["z"], [], 1))
    first.joined()
    assert (list(first.epochs), first.unproven) == (["z"], 0)
    # Two epochs began at one moment: positions of either are good, and all give the same.
    first.watermark_told("b", 1, WatermarkRequest(0, 7, ["k"], [], 1))
    assert (first.position_at(7), first.stamp_of("z.7"), first.stamp_of("k.7")) == ("k.7", 7, 7)
    for number in range(EPOCHS_MAX + 5):
        first.watermark_told("b", 1, WatermarkRequest(0, 7, [f"epoch {number}"], [], 1))
    assert len(first.epochs) == EPOCHS_MAX
    # A past epoch is known up to its last stamp. The journal's row for the present epoch does not limit it.
    first.reached({"old": 5, "z": 3}, 9)
    assert [first.stamp_of(text) for text in ("old.5", "old.6", "z.7", "older.1")] == [5, None, 7, None]


@pytest.mark.parametrize(
    "forged",
    [
        "",
        ".",
        "5",
        EPOCH,
        f"{EPOCH}.",
        ".5",
        "other.5",
        f"{EPOCH}.x",
        f"{EPOCH}.-1",
        f"{EPOCH}.+5",
        f"{EPOCH}. 5",
        f"{EPOCH}.0_5",
        f"{EPOCH}.{'0' * 17}",
        f"{EPOCH}.a",
        "\0",
    ],
)
def test_a_position_that_nobody_here_gave_is_none(here: Keeper, forged: str) -> None:
    here.clock.see(9)
    assert here.watermarks.stamp_of(at(9)) == 9
    assert here.watermarks.stamp_of(forged) is None


@pytest.mark.parametrize("stamp", [0, 1, 9, 1 << 40])
def test_a_position_is_read_as_it_was_given(here: Keeper, stamp: int) -> None:
    here.clock.see(stamp)
    assert here.watermarks.stamp_of(here.watermarks.position_at(stamp)) == stamp
