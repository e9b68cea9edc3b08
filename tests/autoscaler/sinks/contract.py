"""The contract of ``sinks/base.py``: guarantees of every sink to a member.

Owns: the tests that each sink's own test module inherits. Must never: know an implementation.
"""

from __future__ import annotations

import asyncio

import pytest

from ingeborg.autoscaler.sinks.base import Record, RefusedError, SinkError

from .stages import PATIENCE_S, PLACE, TAKEN, Stage, batch, lines


class SinkContract:
    """The contract's tests. ``stage`` is a fixture of the inheriting module."""

    async def test_what_is_appended_is_kept_in_order(self, stage: Stage) -> None:
        sink = stage.sink()
        assert await sink.open(PLACE) is None
        await sink.append(PLACE, batch(0, 3))
        await sink.append(PLACE, batch(3, 4))
        await sink.append(PLACE, batch(10, 20, 3))
        assert stage.kept(PLACE) == lines(PLACE, [*batch(0, 4), *batch(10, 20, 3)])

    async def test_keys_and_values_are_any_bytes_or_none(self, stage: Stage) -> None:
        sink = stage.sink()
        values = [None, b"", b"\n", '{"ä": "\u2028"}'.encode(), b"\xff\x00", bytes(range(256)), b"x" * 200_000]
        records = [Record(offset, 0, value, value) for offset, value in enumerate(values)]
        await sink.open(PLACE)
        await sink.append(PLACE, records)
        assert stage.kept(PLACE) == lines(PLACE, records)

    async def test_names_are_any_text_that_kafka_and_a_folder_take(self, stage: Stage) -> None:
        sink = stage.sink()
        place = PLACE._replace(table="Käufe & more?x=1%2F", topic="a.b_c-1", member="pod ü/1")
        await sink.open(place)
        await sink.append(place, batch(0, 2))
        assert stage.kept(place) == lines(place, batch(0, 2))

    async def test_an_empty_batch_changes_nothing(self, stage: Stage) -> None:
        sink = stage.sink()
        await sink.open(PLACE)
        await sink.append(PLACE, batch(0, 2))
        await sink.append(PLACE, [])
        assert await stage.sink().open(TAKEN) == 2

    async def test_opening_says_where_to_go_on(self, stage: Stage) -> None:
        sink = stage.sink()
        await sink.open(PLACE)
        await sink.append(PLACE, batch(5, 9))
        other = stage.sink()
        assert await other.open(TAKEN) == 9
        await other.append(TAKEN, batch(9, 11))
        assert await stage.sink().open(TAKEN._replace(epoch=20, member="m-3")) == 11
        assert stage.kept(PLACE) == lines(PLACE, batch(5, 9)) + lines(TAKEN, batch(9, 11))

    async def test_opening_again_with_the_same_epoch_changes_nothing(self, stage: Stage) -> None:
        sink = stage.sink()
        assert await sink.open(PLACE) is None
        assert await sink.open(PLACE) is None
        await sink.append(PLACE, batch(0, 2))
        assert await sink.open(PLACE) == 2
        await sink.append(PLACE, batch(2, 3))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 3))

    async def test_a_newer_epoch_of_the_same_member_goes_on(self, stage: Stage) -> None:
        sink = stage.sink()
        again = PLACE._replace(epoch=9)
        await sink.open(PLACE)
        await sink.append(PLACE, batch(0, 2))
        assert await sink.open(again) == 2
        await sink.append(again, batch(2, 3))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 2)) + lines(again, batch(2, 3))

    async def test_partitions_topics_and_tables_are_apart(self, stage: Stage) -> None:
        sink = stage.sink()
        places = [PLACE, PLACE._replace(partition=4), PLACE._replace(topic="app"), PLACE._replace(table="other")]
        for number, place in enumerate(places):
            assert await sink.open(place) is None
            await sink.append(place, batch(0, number + 1))
        assert [len(stage.kept(place)) for place in places] == [1, 2, 3, 4]
        await stage.sink().open(TAKEN)
        for place in places[1:]:
            await sink.append(place, batch(10, 11))

    async def test_whoever_has_an_older_epoch_cannot_open(self, stage: Stage) -> None:
        await stage.sink().open(TAKEN)
        with pytest.raises(RefusedError) as refused:
            await stage.sink().open(PLACE)
        assert refused.value.epoch == TAKEN.epoch

    async def test_the_same_epoch_of_another_member_is_refused(self, stage: Stage) -> None:
        await stage.sink().open(PLACE)
        with pytest.raises(RefusedError) as refused:
            await stage.sink().open(PLACE._replace(member="m-2"))
        assert refused.value.epoch == PLACE.epoch

    async def test_the_old_owner_cannot_append_from_the_moment_that_the_new_one_has_opened(self, stage: Stage) -> None:
        old = stage.sink()
        await old.open(PLACE)
        await old.append(PLACE, batch(0, 2))
        new = stage.sink()
        assert await new.open(TAKEN) == 2
        for _ in range(2):  # every attempt is refused
            with pytest.raises(RefusedError) as refused:
                await old.append(PLACE, batch(2, 4))
            assert refused.value.epoch == TAKEN.epoch
        with pytest.raises(RefusedError):
            await old.open(PLACE)
        await new.append(TAKEN, batch(2, 5))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 2)) + lines(TAKEN, batch(2, 5))

    async def test_a_refused_member_may_own_the_partition_again(self, stage: Stage) -> None:
        one, other = stage.sink(), stage.sink()
        back = PLACE._replace(epoch=9)
        await one.open(PLACE)
        await other.open(TAKEN)
        with pytest.raises(RefusedError):
            await one.append(PLACE, batch(0, 2))
        assert await one.open(back) is None
        await one.append(back, batch(0, 2))
        with pytest.raises(RefusedError):
            await other.append(TAKEN, batch(0, 2))
        assert stage.kept(PLACE) == lines(back, batch(0, 2))

    async def test_an_owner_that_was_paused_in_the_middle_of_a_call_is_refused(self, stage: Stage) -> None:
        old, new = stage.sink(), stage.sink()
        await old.open(PLACE)
        await old.append(PLACE, batch(0, 2))
        hold = stage.hold(old)
        paused = asyncio.create_task(old.append(PLACE, batch(2, 4)))
        try:
            await hold.reached()
            assert await new.open(TAKEN) == 2
            await new.append(TAKEN, batch(2, 3))
        finally:
            hold.release()
        with pytest.raises(RefusedError) as refused:
            await asyncio.wait_for(paused, PATIENCE_S)
        assert refused.value.epoch == TAKEN.epoch
        await new.append(TAKEN, batch(3, 5))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 2)) + lines(TAKEN, batch(2, 5))

    async def test_a_batch_that_failed_is_not_kept_and_can_be_sent_again(self, stage: Stage) -> None:
        sink = stage.sink()
        await sink.open(PLACE)
        await sink.append(PLACE, batch(0, 2))
        stage.fail(sink)
        with pytest.raises(SinkError):
            await sink.append(PLACE, batch(2, 4))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 2))
        await sink.append(PLACE, batch(2, 4))
        await sink.append(PLACE, batch(4, 5))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 5))

    async def test_a_batch_whose_answer_was_lost_is_kept_once(self, stage: Stage) -> None:
        sink = stage.sink()
        await sink.open(PLACE)
        for first in (0, 2):
            stage.lose(sink)
            with pytest.raises(SinkError):
                await sink.append(PLACE, batch(first, first + 2))
            for _ in range(2):
                await sink.append(PLACE, batch(first, first + 2))
        await sink.append(PLACE, batch(4, 5))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 5))

    async def test_the_next_owner_goes_on_behind_a_batch_whose_answer_was_lost(self, stage: Stage) -> None:
        old, new = stage.sink(), stage.sink()
        await old.open(PLACE)
        stage.lose(old)
        with pytest.raises(SinkError):
            await old.append(PLACE, batch(0, 2))
        assert await new.open(TAKEN) == 2
        with pytest.raises(RefusedError):
            await old.append(PLACE, batch(0, 2))
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 2))

    async def test_a_batch_that_goes_back_is_not_kept_and_somebody_is_told(self, stage: Stage) -> None:
        sink = stage.sink()
        await sink.open(PLACE)
        await sink.append(PLACE, batch(0, 4))
        for records in (batch(0, 2), batch(3, 6)):
            with pytest.raises(SinkError, match="recreated"):
                await sink.append(PLACE, records)
        assert stage.kept(PLACE) == lines(PLACE, batch(0, 4))
