"""Long tests come first, and tests that share something stay in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests import order

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100


def test_the_table_names_files_that_are_there() -> None:
    for file in (*order.LONG_S, *order.APART, *chain.from_iterable(order.TOGETHER.values())):
        assert (ROOT / file).exists(), f"tests/order.py names {file}"


def test_files_whose_tests_go_apart_share_nothing_of_a_module_s_or_longer() -> None:
    for file in order.APART:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert not re.search(r"scope=[\"'](module|package|session|class)[\"']", source), file


@pytest.mark.parametrize(
    ("name", "folder", "wanted", "least"),
    [
        ("Spark", "tests/bench", r"\bspark: |usefixtures\(\"spark\"\)", 6),
        ("Kafka", "tests/autoscaler", r"conftest import .*\bCluster\b", 6),
        ("Kafka", "tests/bench", r"\bsession_kafka\b", 1),
        ("Kafka", "tests/loadgen/backends", r"\bsystem = \"kafka\"", 1),
    ],
    ids=["Spark", "Kafka of the autoscaler", "Kafka of its comparison", "Kafka of the adapter"],
)
def test_what_each_process_starts_for_itself_is_wanted_in_one_alone(
    name: str, folder: str, wanted: str, least: int
) -> None:
    files = [path for path in (ROOT / folder).rglob("test_*.py") if re.search(wanted, path.read_text(encoding="utf-8"))]
    assert len(files) >= least
    assert {path: order.unit(f"{path.relative_to(ROOT)}::test_it") for path in files} == dict.fromkeys(files, name)


@pytest.mark.parametrize(
    ("test", "goes_with"),
    [
        ("tests/a/test_b.py::test_c", "tests/a/test_b.py"),
        ("tests/a/test_b.py::TestC::test_d[x-1]", "tests/a/test_b.py"),
        ("tests/a/test_b.py::test_c[tcp]", "tests/a/test_b.py over tcp"),
        ("tests/a/test_b.py::test_c[tls-tcp or so]", "tests/a/test_b.py over tls"),
        ("tests/a/test_b.py::test_c[tlsish]", "tests/a/test_b.py"),
        ("tests/bench/spark/test_any.py::test_c[1]", "Spark"),
        ("tests/bench/packing/test_job.py::test_c[tcp]", "Spark"),
        ("tests/bench/packing/test_page.py::test_c", "tests/bench/packing/test_page.py"),
        ("tests/simulator/test_histories.py::test_c[tcp]", "tests/simulator/test_histories.py::test_c[tcp]"),
    ],
)
def test_what_goes_to_one_process(test: str, goes_with: str) -> None:
    assert order.unit(test) == goes_with


def test_a_file_that_takes_long_comes_before_one_of_many_tests() -> None:
    many = [f"tests/a/test_many.py::test_{number}" for number in range(100)]
    long = ["tests/clients/test_js.py::test_a", "tests/clients/test_js.py::test_b[tls]"]
    taken = order.seconds([*many, *long])
    assert list(taken) == ["tests/a/test_many.py", "tests/clients/test_js.py", "tests/clients/test_js.py over tls"]
    assert taken["tests/a/test_many.py"] == pytest.approx(100 * order.OTHER_S)
    assert taken["tests/clients/test_js.py"] == taken["tests/clients/test_js.py over tls"] > 10


def test_every_test_is_run_once_by_several_processes_the_long_ones_first(tmp_path: Path) -> None:
    """Empty tests have the table's names, and each process writes down the ones that it runs."""
    said = tmp_path / "said"
    said.mkdir()
    source = (
        "import os, pathlib, pytest\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_it(n, request):\n"
        f"    with (pathlib.Path({str(said)!r}) / os.environ['PYTEST_XDIST_WORKER']).open('a') as file:\n"
        "        file.write(request.node.nodeid + '\\n')\n"
    )
    long, apart = "tests/clients/test_js.py", "tests/simulator/test_histories.py"
    files = [long, apart, "tests/bench/spark/test_job.py", "tests/bench/spark/test_logs.py"]
    files += [f"tests/other/test_{number}.py" for number in range(12)]
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    options = ["--import-mode=importlib", "-n", "2", "--dist", "loadfile", "-q", str(tmp_path)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ
    )
    assert f"{8 * len(files)} passed" in done.stdout, done.stdout
    ran = {path.name: path.read_text().split() for path in said.iterdir()}
    assert sorted(test for tests in ran.values() for test in tests) == sorted(
        f"{file}::test_it[{n}]" for file in files for n in range(8)
    )
    where: dict[str, set[str]] = {}
    for process, tests in ran.items():
        for test in tests:
            where.setdefault(order.unit(test), set()).add(process)
    assert {name: len(processes) for name, processes in where.items()} == dict.fromkeys(where, 1)
    # No process has begun a short test before the last long one.
    for tests in ran.values():
        short = [test.startswith("tests/other/") for test in tests]
        assert short == sorted(short), tests
