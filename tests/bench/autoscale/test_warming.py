"""What it means that a group has settled and caught up, and how a run begins if it has not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.autoscale import scale, warming, work
from ingeborg.bench.autoscale.arrivals import Arrivals, unix_ms
from ingeborg.bench.autoscale.cases import GroupRun
from ingeborg.bench.autoscale.work import Run
from ingeborg.bench.errors import BenchError

# Caught up


@pytest.mark.parametrize(
    ("due", "handed_on", "behind"),
    [
        ([[], []], [0, 0], 0.0),  # nothing to read
        ([[1_000, 2_000], []], [2, 0], 0.0),  # everything is read
        ([[1_000, 9_500], []], [1, 0], 0.5),  # the last record is new
        ([[1_000, 9_500], []], [0, 0], 9.0),  # the first one waits
        ([[1_000, 9_900], [2_000, 9_900]], [2, 1], 0.1),
        ([[1_000, 9_900], [2_000, 9_900]], [2, 0], 8.0),  # one partition is behind, and that counts
        ([[10_400], []], [0, 0], 0.0),  # written ahead of its time
    ],
)
def test_a_group_is_as_far_behind_as_its_oldest_unread_record_is_old(
    due: list[list[int]], handed_on: list[int], behind: float
) -> None:
    assert warming.behind_s(10_000, due, handed_on) == behind


@given(st.lists(st.lists(st.integers(0, 10_000), max_size=4).map(sorted), min_size=1, max_size=4), st.data())
def test_nothing_that_was_due_longer_than_the_limit_is_unread_when_a_group_has_caught_up(
    due: list[list[int]], data: st.DataObject
) -> None:
    handed_on = [data.draw(st.integers(0, len(times))) for times in due]
    unread = [time_ms for times, count in zip(due, handed_on, strict=True) for time_ms in times[count:]]
    limit_ms = 10_000 - 1e3 * warming.CAUGHT_UP_S
    caught_up = warming.has_caught_up(warming.behind_s(10_000, due, handed_on))
    assert caught_up is all(time_ms >= limit_ms for time_ms in unread)


@pytest.mark.parametrize(
    ("since_s", "settled", "behind", "over"),
    [(4.0, True, 0.0, False), (6.0, False, 0.0, False), (6.0, True, 1.5, False), (6.0, True, 0.5, True)],
)
def test_a_warm_up_is_over_when_its_group_has_settled_and_caught_up(
    since_s: float, settled: bool, behind: float, over: bool
) -> None:
    assert warming.is_over(since_s, settled, behind) is over


def test_the_load_of_a_warm_up_grows_to_the_first_measurement_and_stays_there() -> None:
    rows = warming.ramp([100.0, 40.0])
    assert len(rows) == warming.MOST_S
    assert rows[0] == [5.0, 2.0]
    assert rows[9] == [50.0, 20.0]
    assert rows[warming.RAMP_S - 1] == rows[-1] == [100.0, 40.0]
    assert warming.loaded_s(warming.RAMP_S - 1) == 0.0


# A run with a fake group, which reads some partitions at once and others never


class Fake:
    """A group that says when it has settled, and its producer, whose records arrive at once unless their partition is
    stuck."""

    def __init__(self, arrivals: Arrivals, settles_s: float, stuck_after: dict[int, int], joins_after: int) -> None:
        self._arrivals = arrivals
        self._settles_s = settles_s
        self._stuck_after = stuck_after
        self._joins_after = joins_after
        self.looks = self.looks_at_load = 0
        self.loads_s: list[float] = []

    def produce(self, topic: str, value: bytes, partition: int, timestamp: int) -> None:
        self.looks_at_load = self.looks_at_load or self.looks
        place = self._arrivals.next[partition]
        if place < self._stuck_after.get(partition, 1_000_000):
            self._arrivals.note("m", partition, [(place, timestamp)])

    def poll(self, timeout: float) -> int:
        return 0

    async def tick(self) -> None:
        pass

    def running(self) -> int:
        return 3

    def has_joined(self) -> bool:
        self.looks += 1
        return self.looks > self._joins_after

    def has_settled(self, loaded_s: float) -> bool:
        self.loads_s.append(loaded_s)
        return loaded_s >= self._settles_s


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "PARTITIONS", 3)
    monkeypatch.setattr(work, "_LOOK_S", 0.02)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RAMP_S", 1), ("LEAST_S", 0.2), ("MOST_S", 1), ("CAUGHT_UP_S", 0.1), ("JOIN_S_MAX", 0.3)):
        monkeypatch.setattr(warming, name, value)


async def warm(
    settles_s: float, stuck_after: dict[int, int] | None = None, joins_after: int = 0
) -> tuple[warming.Warmed, Fake]:
    arrivals = Arrivals(3)
    fake = Fake(arrivals, settles_s, stuck_after or {}, joins_after)
    run = Run(GroupRun("keda", 50, 1, 2), fake, arrivals, fake, "t")  # type: ignore[arg-type]
    return await run.warm_up(), fake


@pytest.mark.usefixtures("quick")
async def test_a_group_that_reads_and_has_settled_begins_at_once_and_says_that_it_is_warm() -> None:
    warmed, _ = await warm(settles_s=0.0)
    assert (warmed.settled, warmed.caught_up) == (True, True)
    assert 0.2 <= warmed.warming_s < 1.0


@pytest.mark.usefixtures("quick")
async def test_there_is_no_load_before_a_group_has_joined_and_none_at_all_if_it_does_not() -> None:
    _, fake = await warm(settles_s=0.0, joins_after=5)
    assert fake.looks_at_load > 5
    with pytest.raises(BenchError, match=r"keda-50-s1 has not joined in 0\.3 s"):
        await warm(settles_s=0.0, joins_after=1_000_000)


@pytest.mark.usefixtures("quick")
async def test_a_group_waits_for_its_whole_load_if_it_says_so() -> None:
    warmed, fake = await warm(settles_s=0.5)
    assert (warmed.settled, warmed.caught_up) == (True, True)
    assert 0.5 <= warmed.warming_s < 1.0
    assert fake.loads_s == sorted(fake.loads_s)


@pytest.mark.usefixtures("quick")
async def test_a_group_that_does_not_catch_up_begins_late_and_says_how_far_it_is_behind() -> None:
    warmed, _ = await warm(settles_s=0.0, stuck_after={1: 1})
    assert (warmed.settled, warmed.caught_up) == (True, False)
    assert warmed.warming_s >= 1.0
    assert warmed.behind_s > 0.1
    assert warmed.unread > 0


@pytest.mark.usefixtures("quick")
async def test_a_group_that_never_settles_says_so_although_it_has_caught_up() -> None:
    warmed, _ = await warm(settles_s=60.0)
    assert (warmed.settled, warmed.caught_up, warmed.unread) == (False, True, 0)


@pytest.mark.usefixtures("quick")
async def test_a_group_that_reads_nothing_of_a_partition_does_not_run() -> None:
    with pytest.raises(BenchError, match=r"keda-50-s1: no member has read from 1 partitions in 1 s"):
        await warm(settles_s=0.0, stuck_after={2: 0})


def test_the_clock_of_due_times_is_that_of_arrivals() -> None:
    assert warming.behind_s(unix_ms(), [[unix_ms() - 5_000]], [0]) == pytest.approx(5.0, abs=1.0)
