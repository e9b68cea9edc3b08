"""One process of the generator, without a system."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ingeborg.loadgen.log.rundir import EventFiles
from ingeborg.loadgen.process.driver import Driver
from ingeborg.loadgen.workloads.plan import Send


class Recording:
    """A connection that takes whatever is published, and its backend."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []

    async def connect(self, number: int, on_message: Any, on_error: Any) -> Any:
        return self

    async def publish(self, messages: Sequence[tuple[str, str]]) -> None:
        self.taken += messages

    async def close(self) -> None:
        pass


class Laborious:
    """A plan that does all its work before its first send."""

    topics = ("t",)
    connections = 1
    notes = ()

    def __init__(self) -> None:
        self.worked = False

    def receives(self, connection: int) -> frozenset[int]:
        return frozenset()

    def expected(self, topic: int) -> int:
        return 0

    def sends(self, rate_per_s: Any, duration_s: float, process: int = 0, processes: int = 1) -> Iterator[Send]:
        self.worked = True
        for seq in range(3):
            yield Send(seq * 1_000_000, 0, 0, seq, seq * 1_000_000, True, 0)


async def test_the_work_before_the_first_send_is_done_before_the_time_runs(tmp_path: Path) -> None:
    plan, recording = Laborious(), Recording()
    driver = Driver(plan, recording, EventFiles(tmp_path, 0), process=0, processes=1, tag="tag")  # type: ignore[arg-type]
    await driver.connect()
    driver.begin("run")
    driver.prepare(None, 0.01)
    assert plan.worked
    assert driver.sent == 0
    await driver.run(time.monotonic_ns(), 0.01)
    await driver.close()
    assert len(recording.taken) == driver.sent == 3
