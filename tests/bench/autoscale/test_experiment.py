"""`bench autoscale` as an evaluation: its units on one Kafka, the units that share the machine, and its options."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from ingeborg.bench import cli, rivals
from ingeborg.bench.autoscale import job, response, scale, throughput, work
from ingeborg.bench.autoscale.cases import GROUPS, RESPONSE, THROUGHPUT, may_share, units
from ingeborg.bench.autoscale.experiment import Autoscale
from ingeborg.bench.errors import BenchError
from ingeborg.bench.experiments import digesting
from ingeborg.bench.experiments.experiment import MEASURED, Results, Unit
from ingeborg.bench.rivals import kafka_jars

MACHINE = {"kafka": ["4.3.1"], "machine": {"cores": "2", "memory": "24 GiB", "python": "3.11"}}


class Bench:
    """Ends every experiment at once. ``runs``: their names, in order. ``fails``: the errors of some experiments.
    ``most``: the greatest number of experiments at the same time."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.servers = self.now = self.most = 0

    async def run(self, task: Any, servers: str, results: Results) -> dict[str, Any]:
        assert servers == "127.0.0.1:9"
        self.runs.append(task.name)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        if task.name in self.fails:
            raise self.fails[task.name]
        return {"unit": task.name}

    @contextlib.contextmanager
    def running(self, system: str, *, state: Path) -> Iterator[Any]:
        self.servers += 1
        yield SimpleNamespace(url="kafka://127.0.0.1:9", version="4.3.1")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench()
    monkeypatch.setattr(rivals, "running", found.running)
    monkeypatch.setattr(kafka_jars, "java_home", lambda: Path("/java"))
    for module, name in ((throughput, "run"), (response, "changes"), (response, "steps"), (work, "run")):
        monkeypatch.setattr(module, name, found.run)
    monkeypatch.setattr(digesting, "local_session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(job, "figures", lambda spark, out: MACHINE)
    return found


def due(*parts: str, seeds: int = 1) -> list[Unit]:
    return units(parts, seeds, scale.ITERATIONS, scale.DELTA)


def live(out: Path, some: list[Unit], at_once: int = 1) -> dict[str, str]:
    """Run the units, and return their errors."""
    ended: dict[str, str] = {}
    Autoscale(at_once=at_once).live(some, Results(out), lambda unit, error: ended.update({unit.name: error}))
    return ended


def test_all_units_run_in_order_on_one_kafka_and_keep_their_facts(bench: Bench, tmp_path: Path) -> None:
    some = due(THROUGHPUT, RESPONSE, GROUPS)
    assert live(tmp_path, some) == {unit.name: "" for unit in some}
    assert bench.runs == [unit.name for unit in some]
    assert (bench.servers, bench.most) == (1, 1)
    facts = list(Results(tmp_path).rows(work.FACTS))
    assert {row["kafka"] for row in facts} == {"4.3.1"}
    assert {row["unit"]: row["part"] for row in facts} == {unit.name: unit.part for unit in some}


def test_a_unit_that_fails_does_not_end_the_others_and_has_no_facts(bench: Bench, tmp_path: Path) -> None:
    bench.fails = {"steps": BenchError("it does not settle"), "mend-s1": KafkaException("no topic")}
    some = due(RESPONSE, GROUPS)
    ended = live(tmp_path, some)
    assert len(ended) == len(some)
    assert {name: error for name, error in ended.items() if error} == {
        "steps": "it does not settle",
        "mend-s1": "no topic",
    }
    assert not {row["unit"] for row in Results(tmp_path).rows(work.FACTS)} & set(bench.fails)
    with pytest.raises(BenchError, match="it does not settle"):
        Autoscale().run(next(unit for unit in some if unit.name == "steps"), Results(tmp_path))


def test_only_groups_with_a_fixed_number_of_members_run_at_the_same_time(bench: Bench, tmp_path: Path) -> None:
    packed = [unit for unit in due(THROUGHPUT, GROUPS) if not may_share(unit.work)]
    live(tmp_path, packed, at_once=3)
    assert bench.most == 1
    live(tmp_path, due(GROUPS), at_once=3)
    assert bench.most == 3


def test_a_run_continues_with_the_units_that_failed(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["autoscale", "--out", str(tmp_path / "out"), "--only", RESPONSE, "--iterations", "20"]
    bench.fails = {"changes-25": BenchError("too slow")}
    assert cli.main(command) == 1
    assert "changes-25: too slow" in capsys.readouterr().out
    bench.fails, bench.runs = {}, []
    assert cli.main([*command, "--resume"]) == 0
    assert bench.runs == ["changes-25"]
    assert "bench autoscale --out DIR --iterations 20" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_there_is_no_report_without_measurements(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["autoscale", "--out", str(tmp_path), "--only", RESPONSE]
    assert cli.main(command) == 0
    (tmp_path / MEASURED).unlink()
    assert cli.main(["autoscale", "--out", str(tmp_path), "--report-only"]) == 1
    assert f"no {MEASURED}" in capsys.readouterr().err


@pytest.mark.parametrize("more", [("--iterations", "20"), ("--delta", "25")])
def test_streams_of_another_kind_need_another_folder(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    command = ["autoscale", "--out", str(tmp_path / "out"), "--only", RESPONSE]
    assert cli.main(command) == 0
    assert cli.main([*command, "--resume", *more]) == 1
    assert f"other {more[0].removeprefix('--')}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--iterations", "101"), "--iterations has to be from 1 to 100"),
        (("--delta", "101"), "--delta has to be from 0 to 100"),
        (("--at-once", "0"), "--at-once has to be from 1 to 16"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], says: str
) -> None:
    assert cli.main(["autoscale", "--out", str(tmp_path / "out"), *more]) == 2
    assert says in capsys.readouterr().err
    assert (bench.servers, (tmp_path / "out").exists()) == (0, False)


def test_the_help_says_that_times_are_scaled_and_has_no_option_for_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["autoscale", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"are scaled 1:{scale.TIME:g}" in said
    assert "--processes" not in said
    assert all(json.dumps(part.about)[1:-1] in said for part in Autoscale.parts)
