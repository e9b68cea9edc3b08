"""A comparison: real servers, one cell after the other, and the files kept of each."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from ingeborg.bench.compare import command as compare_command
from ingeborg.bench.compare import matrix, servers
from ingeborg.bench.compare import run as compare
from ingeborg.bench.digest import forms
from ingeborg.bench.errors import BenchError, ExtraMissing
from tests.bench import digests

THESIS = Path(matrix.__file__).parents[1] / "matrices" / "thesis.toml"
MATRIX = """
[workloads.traffic]
kind = "traffic"
file = "traffic.toml"
time_limit_s = 60
[workloads.endless]
kind = "traffic"
file = "traffic.toml"
time_limit_s = 8
options = { duration_s = 600 }
[systems.ours]
system = "ingeborg"
variant = "home"
[systems.cluster]
system = "ingeborg"
store = "riak"
skip = ["endless"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "traffic.toml").write_text("connections = 4\ntopics = 10\nfanout = 2\nrate = 100\nduration_s = 0.5\n")
    file = tmp_path / "matrix.toml"
    file.write_text(MATRIX)
    return file


def of(file: Path, out: Path, *arguments: str) -> tuple[int, list[tuple[str, ...]]]:
    """Run `bench compare`, with digest and report only noted; return its exit code, and their calls."""
    called: list[tuple[str, ...]] = []

    def digest(runs: list[str], directory: Path) -> int:
        called.append(("digest", *(str(Path(run).relative_to(out)) for run in runs), str(directory.relative_to(out))))
        directory.mkdir(exist_ok=True)
        digests.write(directory, digests.demo())
        return 0

    def report(source: Path, page: Path) -> int:
        called.append(("report", source.name, page.name))
        run = digests.demo()
        assert forms.read_document(source) == forms.shortened(digests.document(run), digests.tables(run))[0]
        return 0

    parser = argparse.ArgumentParser()
    compare_command.add(parser.add_subparsers(), digest, report)
    options = parser.parse_args(["compare", str(file), "--out", str(out), *arguments])
    return options.command(options), called


@pytest.mark.parametrize(
    ("log", "options", "said"),
    [
        ("day.csv", "", "loadgen: {}/day.csv, line 1: no column station, offset_s, artist, track in the header line"),
        ("absent.csv", "", "loadgen: {}/absent.csv: No such file"),
        ("day.csv", "speed = 0", "loadgen: speed has to be above 0"),
    ],
)
def test_a_log_that_cannot_be_replayed_is_named_before_a_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, options: str, said: str
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(servers, "running", start)
    (tmp_path / "day.csv").write_text("station;offset_s;artist;track\n")
    (tmp_path / "w.toml").write_text(f'log = "{log}"\n')
    file = tmp_path / "matrix.toml"
    file.write_text(
        f'[workloads.w]\nkind = "replay"\nfile = "w.toml"\noptions = {{ {options} }}\n'
        '[systems.ours]\nsystem = "ingeborg"\n'
    )
    with pytest.raises(BenchError) as caught:
        of(file, tmp_path / "out")
    assert str(caught.value).startswith("w on ours: " + said.format(tmp_path))
    assert not (tmp_path / "out").exists()


def outcomes(out: Path) -> dict[str, tuple[str, str]]:
    record = json.loads((out / compare.RECORD).read_text())
    return {cell["cell"]: (cell["outcome"], cell["why"]) for cell in record["cells"]}


@pytest.mark.cluster
def test_every_cell_is_run_on_a_server_of_its_own_and_what_cannot_be_is_said(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(servers.RIAK_VARIABLE, raising=False)
    monkeypatch.setattr(compare, "_REST_S", 0)  # this test measures nothing
    out = tmp_path / "out"
    code, called = of(file, out)
    assert code == 0
    found = outcomes(out)
    assert found["traffic-ours-1"] == ("done", "")
    assert found["endless-ours-1"] == ("cut short at its time limit", "8 s")
    assert found["traffic-cluster-1"][0] == "skipped"
    assert "does not name a Riak cluster" in found["traffic-cluster-1"][1]
    assert called == [
        ("digest", "logs/traffic-ours-1", "logs/endless-ours-1", "logs/digest"),
        ("report", "digest.parquet", "report.html"),
    ]
    facts = json.loads((out / "logs" / "traffic-ours-1" / "run.json").read_text())
    assert (facts["variant"], facts["complete"], facts["config"]["rate"]) == ("home", True, 100)
    assert "server" in (out / "logs" / "traffic-ours-1" / "machine.csv").read_text()
    record = {cell["cell"]: cell for cell in json.loads((out / compare.RECORD).read_text())["cells"]}
    assert record["traffic-ours-1"]["version"] == version("ingeborg")
    assert record["traffic-cluster-1"]["version"] == ""
    # The files that make the report reproducible are in its folder.
    assert (out / "matrix.toml").read_text() == MATRIX
    assert (out / "traffic.toml").exists()
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(out) in str(process.info["cmdline"])]

    code, _ = of(file, out, "--resume")
    assert code == 0
    assert json.loads((out / "logs" / "traffic-ours-1" / "run.json").read_text()) == facts


def test_a_run_that_lost_something_is_a_result_and_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def running(*_: object, **__: object) -> Iterator[servers.Running]:
        yield servers.Running(["ws://127.0.0.1:9"], "1.0", None)

    def generate(command: list[str], _: object) -> tuple[int, bool]:
        log = Path(command[command.index("--out") + 1])
        log.mkdir(parents=True)
        (log / "run.json").write_text('{"failed": "the server died"}')
        return (3 if "traffic-ours" in log.name else 1), False

    monkeypatch.setattr(servers, "running", running)
    monkeypatch.setattr(compare, "_generate", generate)
    monkeypatch.setattr(compare, "_REST_S", 0)
    code, called = of(file, tmp_path / "out", "--only", "ours")
    assert code == 0
    assert called[-1] == ("report", "digest.parquet", "report.html")
    assert outcomes(tmp_path / "out") == {
        "traffic-ours-1": ("done", "deliveries or connections were lost; see the report"),
        "endless-ours-1": ("failed", "the server died"),
    }


@pytest.mark.cluster
def test_a_signal_stops_the_generator_and_the_server_and_the_comparison_goes_on_later(
    file: Path, tmp_path: Path
) -> None:
    file.write_text(MATRIX.replace("time_limit_s = 8", "time_limit_s = 60"))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ingeborg.bench.cli", "compare", str(file), "--out", str(out), "--only", "endless"]
    process = subprocess.Popen([*command, "--only", "ours"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("run "):
            break
    process.terminate()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cutting the run short" in said
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(out) in str(process.info["cmdline"])]
    assert not (out / compare.RECORD).exists()


def commands(file: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, list[str]]:
    """Return the commands that each cell would give to loadgen, on servers that report these releases."""
    found: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def running(system: matrix.System, *_: object, **__: object) -> Iterator[servers.Running]:
        yield servers.Running(["x://127.0.0.1:9"], "2.15.2", None, None if system.system == "redis" else 2026)

    def generate(command: list[str], _: object) -> tuple[int, bool]:
        log = Path(command[command.index("--out") + 1])
        log.mkdir(parents=True)
        (log / "run.json").write_text("{}")
        found[log.name] = command
        return 0, False

    monkeypatch.setattr(servers, "running", running)
    monkeypatch.setattr(compare, "_generate", generate)
    monkeypatch.setattr(compare, "_REST_S", 0)
    assert of(file, out, *arguments)[0] == 0
    return found


def test_a_system_is_named_by_its_set_up_its_release_and_the_year_of_that(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(
        MATRIX + '[systems.new]\nsystem = "nats-current"\n'
        '[systems.plain]\nsystem = "nats-current"\nvariant = "plain"\n'
        '[systems.redis]\nsystem = "redis"\n'
        '[systems.lined]\nsystem = "ingeborg"\nvariant = "home"\nlines = true\n'
    )
    found = commands(file, tmp_path / "out", monkeypatch, "--only", "traffic")

    def word(cell: str, option: str) -> str:
        return found[cell][found[cell].index(option) + 1]

    assert {cell: word(cell, "--variant") for cell in found} == {
        "traffic-ours-1": "home",
        "traffic-cluster-1": "",
        "traffic-new-1": "2.15.2 (2026)",
        "traffic-plain-1": "plain, 2.15.2 (2026)",
        "traffic-redis-1": "2.15.2",
        "traffic-lined-1": "home",
    }
    assert word("traffic-new-1", "--system") == "nats"
    assert [cell for cell in found if "--lines" in found[cell]] == ["traffic-lined-1"]
    record = {cell["cell"]: cell for cell in json.loads((tmp_path / "out" / compare.RECORD).read_text())["cells"]}
    assert (record["traffic-new-1"]["version"], record["traffic-new-1"]["year"]) == ("2.15.2", 2026)
    assert record["traffic-redis-1"]["year"] is None


def test_a_comparison_without_a_result_has_failed(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(servers.RIAK_VARIABLE, raising=False)
    with pytest.raises(BenchError, match="no run has produced anything"):
        of(file, tmp_path / "out", "--only", "cluster")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "mars"], "--only mars is unknown; known names: cluster, endless, ours, traffic"),
        (["--repeat", "0"], "--repeat"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started(
    file: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    with pytest.raises(BenchError, match=complaint):
        of(file, tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_without_the_library_of_the_file_to_keep_nothing_is_measured(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ExtraMissing, match="pyarrow is not installed"):
        of(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_in_use_wants_resume(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="add --resume"):
        of(file, tmp_path)


def test_the_most_topics_are_the_callers_to_say(file: Path) -> None:
    chosen = compare_command._chosen(matrix.read(THESIS), ["topics", "nats"], 64)
    assert [(cell.name, cell.options) for cell in chosen.cells(1)] == [("topics-nats-1", {"last": 64})]
