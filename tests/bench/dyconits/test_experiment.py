"""`bench dyconits` as an evaluation: its plan, its options, and short runs with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ingeborg.bench import cli
from ingeborg.bench.dyconits import cases, fan_out, killed, rows, running, workload
from ingeborg.bench.dyconits.cases import E4, E5, E6, LATEST, PLAIN, READINGS, SYSTEMS, Cell, FanOut, Virtual
from ingeborg.bench.dyconits.experiment import VIRTUAL, Dyconits
from ingeborg.bench.dyconits.layer.messages import MessageError
from ingeborg.bench.dyconits.layer.settings import TOPICS
from ingeborg.bench.dyconits.reader import now_ms
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments.experiment import Results, Selection, Unit
from ingeborg.bench.starting import Child, awaited, claim
from tests import wants

LOAD = workload.load(workload.DEFAULT)
SHORT = replace(LOAD, lead_s=1.0, short_s=1.5, consumer=replace(LOAD.consumer, report_ms=300.0))
DEFAULTS = [part.name for part in cases.PARTS if part.is_default]


def cells(found: Sequence[Unit]) -> list[Cell]:
    return [unit.work for unit in found if isinstance(unit.work, Cell)]


def test_the_quick_plan_takes_25_minutes_and_the_whole_one_9_hours() -> None:
    quick = cases.units(Selection(DEFAULTS, 1), LOAD)
    assert len(cells(quick)) == 3 * len(SYSTEMS)
    assert sum(unit.cost if unit.is_live else unit.cost / 2 for unit in quick) < 25 * 60, "on two cores"
    whole = cases.units(Selection([part.name for part in cases.PARTS], 1), LOAD)
    ten = [cell for cell in cells(whole) if cell.length_s == LOAD.length_s]
    assert len(ten) == 10 * 3 * len(SYSTEMS)
    assert sum(unit.cost for unit in whole) < 9 * 3_600
    assert len({unit.name for unit in whole}) == len(whole)


def test_rows_of_virtual_runs_come_in_the_order_of_the_plan() -> None:
    names = [unit.name for unit in cases.units(Selection([READINGS], 1), LOAD)]
    assert names == sorted(names)


def test_runs_of_a_seed_alternate_the_order_of_systems() -> None:
    found = cells(cases.units(Selection(["e1"], 2), LOAD))
    assert [cell.system for cell in found] == [*SYSTEMS, *SYSTEMS[::-1]]


def test_only_virtual_units_may_share_the_machine() -> None:
    found = cases.units(Selection([READINGS, "e1", E4, E5, E6], 1), LOAD)
    assert all(unit.is_live is not isinstance(unit.work, Virtual) for unit in found)


def test_rows_of_two_workloads_do_not_mix(tmp_path: Path) -> None:
    one = Dyconits()
    other = Dyconits(path=tmp_path / "other.toml")
    other.path.write_text(workload.DEFAULT.read_text("utf-8").replace("count = 2", "count = 3"), encoding="utf-8")
    assert one.identity()["workload"] != other.identity()["workload"]
    assert one.identity()["sources"] == other.identity()["sources"]


def test_a_wrong_workload_ends_the_command_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["dyconits", "--out", str(out), "--workload", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err
    assert not out.exists()


def test_a_virtual_unit_keeps_a_row_for_each_reader(tmp_path: Path) -> None:
    results = Results(tmp_path)
    unit = Unit("one", READINGS, Virtual("e3", "plain", None, 1, 5.0))
    Dyconits().run(unit, results)
    found = list(results.rows(VIRTUAL))
    assert [row["reader"] for row in found] == ["c1", "c2"]
    assert all(set(row) > set(TOPICS) for row in found)


def test_a_failed_fan_out_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(work: FanOut, log: Path) -> list[dict[str, Any]]:
        if work.experiment == E4:
            raise BenchError("no endpoint")
        return [{"experiment": work.experiment}]

    monkeypatch.setattr(fan_out, "run", run)
    ended: dict[str, str] = {}
    due = [Unit(name, name, FanOut(name, 1), is_live=True) for name in (E4, E5)]
    Dyconits().live(due, Results(tmp_path), lambda unit, error: ended.update({unit.name: error}))
    assert ended == {E4: "no endpoint", E5: ""}


def test_cells_of_this_broker_with_real_processes(tmp_path: Path) -> None:
    results = Results(tmp_path)
    ended: dict[str, str] = {}
    due = [unit for unit in cases.units(Selection(["e3"], 1), SHORT) if unit.work.system in (PLAIN, LATEST)]
    running.run(due, results, SHORT, lambda unit, error: ended.update({unit.name: error}))
    assert ended == {unit.name: "" for unit in due}
    last = {(row["reader"], row["topic"]): row for row in results.rows(rows.SAMPLES)}
    assert len(last) == 2 * len(TOPICS), "the rows of the last cell replace those of the others"
    assert all(row["taken"] + row["skipped"] == row["last"] <= row["received"] for row in last.values())
    assert all(row["at_ms"][0] >= 0 for row in results.rows(rows.PRODUCED))
    assert [fact["updates"] for fact in results.rows(rows.FACTS)] == [0, 0]
    assert not list((tmp_path / "work").iterdir())


def test_a_cell_whose_server_is_gone_fails_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def gone(kind: str, out: Path) -> Iterator[running.Server]:
        with claim() as port:  # nobody listens there
            yield running.Server(f"ws://127.0.0.1:{port.first}", "gone", look)

    monkeypatch.setattr(running, "_server", gone)
    ended: list[tuple[str, str]] = []
    due = [unit for unit in cases.units(Selection(["e3"], 1), SHORT) if unit.work.system in (PLAIN, LATEST)]
    running.run(due, Results(tmp_path), SHORT, lambda unit, error: ended.append((unit.work.system, error)))
    assert [system for system, _ in ended] == [PLAIN, LATEST]
    assert all("Connect" in error for _, error in ended)


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(1), MessageError("'c1' has to have a number"), TimeoutError()])
def test_a_cell_that_fails_in_any_known_way_does_not_end_the_others(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(self: object) -> None:
        raise error

    monkeypatch.setattr(running, "_server", lambda kind, out: contextlib.nullcontext(running.Server("", "", look)))
    monkeypatch.setattr(running._Run, "run", run)
    ended: list[str] = []
    due = cases.units(Selection(["e3"], 1), SHORT)
    running.run(due, Results(tmp_path), SHORT, lambda unit, error: ended.append(error))
    assert len(ended) == len(due)
    assert all(ended)


def test_a_reader_that_fails_is_named_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both when it fails at once, and while messages flow."""
    program = "import sys, time; print('ready', flush=True); time.sleep({}); sys.exit('no more memory')"
    for pause_s in (0, 1):
        command = [sys.executable, "-c", program.format(pause_s)]
        monkeypatch.setattr(running, "python", lambda *_, command=command: command)
        ended: list[str] = []
        due = [unit for unit in cases.units(Selection(["e3"], 1), SHORT) if unit.work.system == PLAIN]
        running.run(due, Results(tmp_path), SHORT, lambda unit, error, ended=ended: ended.append(error))  # type: ignore[misc]
        [error] = ended
        # Both readers fail, and either can be the first.
        assert error in [f"reader {number} has failed:\n  | ready\n  | no more memory" for number in (1, 2)]
        shutil.rmtree(tmp_path / "work")


async def look() -> tuple[float, float]:
    return 0.0, 0.0


async def test_a_producer_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    async def send(topic: str, payload: str) -> None:
        raise BenchError(f"{topic} is lost")

    unit = Unit("one", "e3", Cell("e3", PLAIN, 1, 60.0))
    one = running._Run(unit, Results(tmp_path), SHORT, running.Server("", "", look))
    with pytest.raises(BenchError, match=r"^high is lost$"):
        await one._produce(send, 0.0, [])


async def test_a_reader_or_a_manager_that_fails_ends_the_run_at_once(tmp_path: Path) -> None:
    async def send(topic: str, payload: str) -> None: ...

    async def broken() -> None:
        raise BenchError("the manager is lost")

    one = running._Run(
        Unit("one", "e3", Cell("e3", PLAIN, 1, 60.0)), Results(tmp_path), SHORT, running.Server("", "", look)
    )
    reader = Child("reader 1", [sys.executable, "-c", "raise SystemExit('no units')"], tmp_path / "log")
    await awaited(reader.ended(30))
    with pytest.raises(BenchError, match=r"^reader 1 has failed:\n  \| no units"):
        await one._produce(send, now_ms(), [reader])
    one._managing = [asyncio.create_task(broken())]
    await asyncio.wait(one._managing)
    with pytest.raises(BenchError, match=r"^the manager is lost$"):
        await one._produce(send, now_ms(), [])


def test_a_cell_of_the_layer_on_a_real_kafka(tmp_path: Path) -> None:
    wants.server("kafka")
    results = Results(tmp_path)
    ended: dict[str, str] = {}
    due = [unit for unit in cases.units(Selection(["e3"], 1), SHORT) if unit.work.system == "layer-programs"]
    running.run(due, results, SHORT, lambda unit, error: ended.update({unit.name: error}))
    assert ended == {"e3-layer-programs-1": ""}
    (fact,) = results.rows(rows.FACTS)
    assert fact["reports"] > 4
    assert fact["updates"] > 4
    delays = {row["delay_ms"] for row in results.rows(rows.CONTROLS)}
    assert len(delays) > 1, "the readers have heard from the manager"


async def test_subscribers_learn_of_every_message_when_an_endpoint_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed, "RATE", 100.0)
    monkeypatch.setattr(killed, "LOAD_S", 2.0)
    monkeypatch.setattr(killed, "KILL_AT_S", 0.5)
    facts = await killed.run("latest", 1)
    assert (facts["published"], facts["lost"], facts["surplus"], facts["last_missing"]) == (200, 0, 0, 0)
    assert facts["moved_connections"] == 12
