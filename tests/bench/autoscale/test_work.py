"""Runs of the comparison on a real Kafka, with four partitions and three seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.bench.autoscale import members, scale, warming, work
from ingeborg.bench.autoscale.cases import GroupRun, may_share
from ingeborg.bench.autoscale.load import Load
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results
from tests.loadgen.backends.conftest import session_kafka

pytestmark = pytest.mark.slow

ITERATIONS = 3


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """``HOST:PORT`` of the session's Kafka."""
    return session_kafka(request.config, tmp_path_factory)("kafka").url.partition("://")[2]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "PARTITIONS", 4)
    monkeypatch.setattr(scale, "COUNTS", (2,))
    monkeypatch.setattr(scale, "ITERATION_S", 1.0)
    # The load grows slowly enough for two members, which could not read the whole load, to be warm before.
    for name, value in (("RAMP_S", 8), ("LEAST_S", 2.0), ("MOST_S", 60.0)):
        monkeypatch.setattr(warming, name, value)
    for name, value in (("STABLE_S", 60.0), ("_DOWN_S", 6.0), ("_LOOK_S", 1.0)):
        monkeypatch.setattr(members, name, value)


def small_unit(system: str, number: int) -> GroupRun:
    return GroupRun(system, number, 1, ITERATIONS)


@pytest.mark.parametrize(
    "unit",
    [small_unit(*each) for each in (("cooperative-sticky", 2), ("kip-848", 4), ("keda", 50), ("mend", 0))],
    ids=lambda unit: unit.name,
)
async def test_a_group_warms_up_and_reads_each_record(unit: GroupRun, servers: str, tmp_path: Path) -> None:
    facts = await work.run(unit, servers, Results(tmp_path))
    times = read(tmp_path)
    before = [time_ms for time_ms in times if time_ms < facts["begun_ms"] - 20]
    measured = [time_ms for time_ms in times if facts["begun_ms"] <= time_ms <= facts["ended_ms"]]
    assert before
    assert abs(len(measured) - sent(unit)) <= scale.PARTITIONS
    assert facts["warming_s"] >= warming.LEAST_S
    assert facts["caught_up"] is (facts["behind_s"] <= warming.CAUGHT_UP_S)
    if may_share(unit):
        assert (facts["again"], facts["settled"], facts["caught_up"]) == (0, True, True)
        assert running(tmp_path) == {unit.number}
    assert max(running(tmp_path)) <= scale.PARTITIONS
    if unit.system == "mend":
        events = {row["event"] for row in Results(tmp_path).rows(work.JOURNALS)}
        assert {"decided", "joined", "given", "settled"} <= events
        assert list(members.pids(tmp_path / "work" / unit.name / "members")) == []


async def test_a_member_that_ends_by_itself_ends_the_run(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_CONSUMER", "ingeborg.bench.autoscale.absent")
    with pytest.raises(BenchError, match=r"a member has ended with code 1: .*absent"):
        await work.run(small_unit("range", 2), servers, Results(tmp_path))


def read(out: Path) -> list[int]:
    return [time_ms for row in Results(out).rows(work.ARRIVALS) for time_ms in row["times"]]


def running(out: Path) -> set[int]:
    return {row["running"] for row in Results(out).rows(work.RUNNING)}


def sent(unit: GroupRun) -> int:
    """Return the number of records, from the stream's own rates and the same generator."""
    load = Load(work.stream_of(unit.seed, unit.iterations), scale.ITERATION_S, scale.RECORD_BYTES, unit.seed)
    return len(load.due(load.length_s))
