"""The verdict of the bounds' benchmark, and one short load on a real endpoint."""

from __future__ import annotations

from pathlib import Path

from ingeborg.bench.budgets import bounds
from ingeborg.bench.budgets.bounds import Floor, interval_checks
from ingeborg.bench.compare.matrix import System
from ingeborg.bench.compare.servers import running


def test_the_saving_is_compared_round_by_round() -> None:
    found = {"plain": [10.0, 20.0, 10.0], "all": [6.0, 12.0, 9.0], "latest": [6.0, 12.0, 1.0]}
    of_all, of_latest = interval_checks(found)
    assert (of_all.met, of_latest.met) == (True, False)
    assert of_all.measured == "40% (10% to 40%) of 10.00 (10.00 to 20.00) us per delivery due"


async def test_a_load_gets_everything_or_notice_of_it(tmp_path: Path) -> None:
    with running(System("ingeborg", "ingeborg"), tmp_path, layer=False) as server:
        async with Floor(server.urls[0]) as floor:
            await floor.bind_all(bounds.KINDS["latest"])
            load = await floor.load(200, 1.0, 30.0)
    assert load.is_whole
    assert load.received < 200 * bounds.FANOUT
