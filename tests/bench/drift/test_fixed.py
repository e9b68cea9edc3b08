"""The clock of a counted process."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from ingeborg.bench.drift import fixed


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed, "clock", fixed.Clock())


def test_a_clock_that_changes_its_speed_goes_on_from_where_it_was() -> None:
    clock = fixed.Clock()
    clock.turn(1e12)
    stopped = clock.read()
    time.sleep(0.01)
    assert clock.read() == pytest.approx(stopped, abs=1e-6)
    clock.turn(1.0)
    assert clock.read() == pytest.approx(stopped, abs=0.005)


def test_timers_go_by_the_clock_and_follow_it_when_its_speed_changes() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        heard: list[str] = []
        fixed.clock.turn(1_000.0)
        loop.call_later(0.001, heard.append, "late")
        loop.call_later(0.0, heard.append, "now")
        loop.call_later(0.0, heard.append, "never").cancel()
        await asyncio.sleep(0.0)
        done = loop.create_future()
        loop.call_at(loop.time() + 0.002, done.set_result, None)
        heard.append("turned")
        fixed.clock.turn(1.0)
        async with asyncio.timeout(10):
            await done
        return heard

    with asyncio.Runner(loop_factory=fixed.Loop) as runner:
        assert isinstance(runner.get_loop(), uvloop.Loop)
        found = runner.run(main())
    assert set(found) == {"late", "now", "turned"}
    assert found[-1] == "late"
    assert not fixed.clock.timers
