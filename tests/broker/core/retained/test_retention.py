"""The retention time of a message: as its publisher asks, or as the operator sets for the beginning of its topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingeborg.broker.core.model import NO_SETTINGS
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.hashes import slot_of

from .here import LIMITS, Keeper


@pytest.fixture
def here() -> Keeper:
    return Keeper(limits=replace(LIMITS, history_topics=(("news/", 60), ("news/old/", 5), ("", 1))))


def test_what_its_publisher_asks_for_goes_before_the_first_beginning_that_is_the_topics(here: Keeper) -> None:
    retention = here.retention
    assert retention.seconds("news/1", 7, 10) == 7
    assert retention.seconds("news/1", 0, 10) == 60
    assert retention.seconds("news/old/1", 0, 10) == 60
    assert retention.seconds("weather", 0, 10) == 1


def test_a_payload_that_has_no_room_is_refused_where_its_publisher_asks_for_it() -> None:
    retention = Keeper(limits=replace(LIMITS, history_bytes=10_000, history_topics=(("", 60),))).retention
    assert retention.seconds("t", 7, 9_199) == 7
    with pytest.raises(ProtocolError, match=r"a payload of 9200 bytes exceeds the 10000 bytes .*wi"):
        retention.seconds("t", 7, 9_200)
    assert retention.seconds("t", 0, 9_200) == 60  # its home drops it at once, and reports the clients that missed it


def test_where_nothing_is_kept_only_a_publisher_that_asks_for_it_is_refused() -> None:
    here = Keeper(limits=replace(LIMITS, history_topics=(("news/", 60),)), settings=NO_SETTINGS)
    retention = here.retention
    with pytest.raises(ProtocolError, match="its setting 'history' is off"):
        retention.seconds("news/1", 7, 10)
    assert retention.seconds("news/1", 0, 10) == 0


def test_a_crashed_homes_message_holds_positions_back_until_it_has_come_to_its_end_wherever_that_is(
    here: Keeper,
) -> None:
    retention, clock = here.retention, here.clock
    entry = here.keep("t", 5)
    retention.inherit(slot_of("t"), "t", entry.origin, entry.number)
    assert clock.watermark < entry.stamp
    retention.concluded(entry.origin, entry.number)  # another home's by then, or given up
    assert clock.watermark >= entry.stamp
