"""A good log with damage: the digest refuses it, naming the file."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingeborg.bench.errors import BenchError
from tests.bench import synthetic

pytestmark = pytest.mark.spark

S = synthetic.S
TABLES = ("phases.csv", "machine.csv")
PARTS = ("events-000-0000.csv", "events-000-0001.csv", "events-001-0000.csv", "events-001-0001.csv")
FILES = (*PARTS, *TABLES)

# Each example is some jobs of Spark. A failing one names its mutation: shrinking it, job by job, is not needed.
EXAMPLES: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


def write(directory: Path) -> Path:
    """Write a run of two processes with two parts each: losses, repetitions, errors, samples of processes."""
    rng = random.Random(7)
    made = synthetic.random_run("run-1", rng)
    while len(made.events) < 40 or not made.machine:
        made = synthetic.random_run("run-1", rng)
    made.facts["config"] = {"processes": 2}
    rows = made.events
    made.parts = [rows[::4], rows[1::4]]
    run = made.write(directory)
    for process, more in ((0, rows[2::4]), (1, rows[3::4])):
        synthetic.write_csv(run / f"events-{process:03d}-0001.csv", synthetic.EVENT_HEADER, more)
    return run


@pytest.fixture(scope="module")
def good(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run, without names of its files in its run.json. The tests read it as it is, and with them."""
    from ingeborg.bench.spark import inventory, logs

    run = write(tmp_path_factory.mktemp("good") / "run")
    named = Path(shutil.copytree(run, run.parent / "named"))
    synthetic.name_files(named)
    for path in (run, named):
        [found] = logs.read(spark, inventory.find(spark, [str(path)])).runs
        inventory.made_of(found)
        assert (found.lines, found.torn, found.empty) == (
            sum(len((run / name).open().readlines()) for name in FILES),
            [],
            [],
        )
    return run


def refused(spark: Any, good: Path, named: bool, mutate: Callable[[Path], None]) -> bool:
    """Say whether the digest refused it, naming a file."""
    from ingeborg.bench.spark import job

    with tempfile.TemporaryDirectory() as directory:
        run = Path(shutil.copytree(good, Path(directory) / "run"))
        if named:
            synthetic.name_files(run)
        mutate(run)
        out = Path(directory) / "digest"
        out.mkdir()
        try:
            job.digest(spark, [str(run)], out, fresh=True, say=lambda _: None)
        except BenchError as error:
            text = str(error)
            assert re.search(
                rf"{re.escape(str(run))}/[\w.\-]+\.(csv|json|gz|bak)|events-\*|events-\d{{3}}-\d+", text
            ), text
            assert text.isprintable()
            return True
    return False


@st.composite
def byte_mutations(draw: st.DrawFn) -> tuple[str, ...]:
    """Damage to bytes and names in storage or on the way; in words, so that a failing example is readable."""
    name = draw(st.sampled_from(FILES))
    place = str(draw(st.integers(0, 99)))  # in percent of the file
    kind = draw(
        st.sampled_from(["flip", "cut", "insert", "drop line", "twice line", "delete", "copy", "swap", "append"])
    )
    # A file in its own place is still the good log.
    others = [other for other in FILES if other != name or kind not in ("copy", "swap")]
    return kind, name, place, draw(st.sampled_from(others))


def perform(run: Path, kind: str, name: str, place: str, other: str) -> None:
    file = run / name
    content = file.read_bytes()
    at = len(content) * int(place) // 100
    lines = content.splitlines(keepends=True)
    number = len(lines) * int(place) // 100
    match kind:
        case "flip":
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        case "cut":
            content = content[:at]
        case "insert":
            content = content[:at] + b"\0" + content[at:]
        case "drop line":
            content = b"".join(lines[:number] + lines[number + 1 :])
        case "twice line":
            content = b"".join(lines[: number + 1] + lines[number:])
        case "append":
            content += (run / other).read_bytes()
        case "copy":
            (run / other).write_bytes(content)
        case "swap":
            (run / name).write_bytes((run / other).read_bytes())
            content, file = content, run / other
    file.write_bytes(content)
    if kind == "delete":
        file.unlink()


@settings(max_examples=30, **EXAMPLES)
@given(mutation=byte_mutations())
def test_whatever_happens_to_a_log_whose_files_are_named(spark: Any, good: Path, mutation: Any) -> None:
    assert refused(spark, good, True, lambda run: perform(run, *mutation))


#: Damage noticed also in a log without those names: from an earlier version, or a generator that was killed at once.
KINDS = (
    *("cut in a line", "insert", "mark", "line ends"),
    *("delete process", "delete before another", "copy", "rename", "packed"),
)


@settings(max_examples=18, **EXAMPLES)
@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(PARTS),
    place=st.integers(1, 99),
    process=st.integers(0, 1),
)
def test_what_happens_to_a_log_whose_files_are_not_named(
    spark: Any, good: Path, kind: str, name: str, place: int, process: int
) -> None:
    def mutate(run: Path) -> None:
        file = run / name
        content = file.read_bytes()
        at = len(content) * place // 100
        match kind:
            case "cut in a line":
                while content[at - 1 : at] in (b"\n", b""):
                    at += 1
                file.write_bytes(content[:at])
            case "insert":
                file.write_bytes(content[:at] + b"\0" + content[at:])
            case "mark":
                file.write_bytes(b"\xef\xbb\xbf" + content)
            case "line ends":
                end = content.index(b"\n", min(at, len(content) - 2))
                file.write_bytes(content[:end] + b"\r" + content[end:])
            case "delete process":
                for part in run.glob(f"events-{process:03d}-*.csv"):
                    part.unlink()
            case "delete before another":
                (run / f"events-{process:03d}-0000.csv").unlink()
            case "copy":
                (run / f"events-{process:03d}-0002.csv").write_bytes(content)
            case "rename":
                file.rename(run / f"{name}.bak")
            case "packed":
                (run / f"{name}.gz").write_bytes(content)

    assert refused(spark, good, False, mutate)
