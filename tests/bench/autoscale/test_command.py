"""`bench autoscale` from its arguments to its results: a finished run is stored, and does not run again."""

from __future__ import annotations

import contextlib
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingeborg.bench import cli, rivals
from ingeborg.bench.autoscale import command, job, response, scale, throughput, work
from ingeborg.bench.autoscale.cases import LONG, Changes, Condition, Unit, plan, units
from ingeborg.bench.errors import BenchError

Run = Callable[..., int]


class Bench:
    """Ends every experiment at once. ``runs``: their names, in order. ``fails``: names of experiments that fail."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.fails: set[str] = set()
        self.servers = 0

    def done(self, name: str) -> dict[str, Any]:
        self.runs.append(name)
        if name in self.fails:
            raise BenchError(f"{name} does not settle")
        return {"unit": name}

    async def read(self, condition: Condition, repeat: int, servers: str, out: Path) -> dict[str, Any]:
        return self.done(f"throughput-{condition.number}-{repeat}")

    async def change(self, unit: Changes, servers: str, out: Path) -> dict[str, Any]:
        return self.done(unit.name)

    async def step(self, servers: str, out: Path) -> dict[str, Any]:
        return self.done("steps")

    async def compare(self, unit: Unit, servers: str, out: Path) -> dict[str, Any]:
        assert servers == "127.0.0.1:9"
        return self.done(unit.name)

    @contextlib.contextmanager
    def running(self, system: str, *, state: Path) -> Iterator[Any]:
        self.servers += 1
        yield SimpleNamespace(url="kafka://127.0.0.1:9", version="4.3.1")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench()
    nothing = dict.fromkeys(("throughput", "steps", "changes", "runs", "systems", "handovers", "over_time"))
    monkeypatch.setattr(rivals, "running", found.running)
    monkeypatch.setattr(throughput, "run", found.read)
    monkeypatch.setattr(response, "changes", found.change)
    monkeypatch.setattr(response, "steps", found.step)
    monkeypatch.setattr(work, "run", found.compare)
    monkeypatch.setattr(job, "digest", lambda out: nothing)
    return found


def run(out: Path, *more: str) -> int:
    return cli.main(["autoscale", *(more or ("all",)), "--out", str(out)])


def test_a_run_that_was_cut_short_goes_on_where_it_was(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.fails = {"kip-848-27-s3", "throughput-2-1"}
    assert run(tmp_path) != 0
    assert "2 of 97 runs have failed: throughput-2-1, kip-848-27-s3; run the command again" in capsys.readouterr().err
    assert not (tmp_path / command.SUMMARY).exists()
    assert len(bench.runs) == len(set(bench.runs)) == 97

    bench.fails, bench.runs = set(), []
    assert run(tmp_path) == 0
    assert "97 runs, 95 already done" in capsys.readouterr().out
    assert bench.runs == ["throughput-2-1", "kip-848-27-s3"]
    assert json.loads(lzma.decompress((tmp_path / command.DIGEST).read_bytes()))["kafka"] == ["4.3.1"]

    bench.runs, bench.servers = [], 0
    assert run(tmp_path) == run(tmp_path, "all", "--again") == 0
    assert (bench.runs, bench.servers) == ([], 0)


def test_the_whole_has_every_experiment_and_five_streams_of_each_group(bench: Bench, tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    alone = [f"throughput-{test}-{repeat}" for repeat in (1, 2, 3) for test in (1, 2, 3)]
    alone += ["changes-5", "changes-25", "steps"]
    assert bench.runs == [*alone, *(unit.name for unit in units(5))]


def test_the_long_streams_run_only_if_they_are_asked_for(bench: Bench, tmp_path: Path) -> None:
    assert run(tmp_path, "long") == 0
    assert bench.runs == [unit.name for unit in plan([LONG])]


@pytest.mark.parametrize("more", [("--iterations", "20"), ("--delta", "25")])
def test_what_another_plan_has_found_is_not_mixed_with_it(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert run(tmp_path, "response") == 0
    assert run(tmp_path, "response", *more) != 0
    assert f"other {more[0].removeprefix('--')}" in capsys.readouterr().err


def test_nor_is_what_other_sources_have_found(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, "response") == 0
    monkeypatch.setattr(command, "sources", lambda: "others")
    assert run(tmp_path, "response") != 0


def test_the_help_says_how_long_it_takes_and_that_times_are_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["autoscale", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"times are scaled 1:{scale.TIME:g}" in said
    assert "all takes about 6 hours" in said
    assert "500 decisions of the controller, which takes about 13 hours" in said
