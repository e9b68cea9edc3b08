"""A digest on disk: reading returns what was written, damage is an error, and only unchanged runs are remembered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ingeborg.bench.digest import files as digestdir
from ingeborg.bench.digest.document import DIGEST_VERSION
from ingeborg.bench.digest.tables import TABLES, Digest
from ingeborg.bench.errors import BenchError


def log(size: int) -> dict[str, object]:
    return {"sizes": {"run.json": size}, "sha256": {"run.json": "ab" * 32}, "modified_ms": None}


def digest(**sizes: int) -> Digest:
    """Return a digest of runs by name, with the size of their logs."""
    runs = {run: {"run": run, "log": log(size) | {"lines": 3}, "notes": []} for run, size in sizes.items()}
    tables: dict[str, list[dict[str, object]]] = {name: [] for name in TABLES}
    for run in sizes:
        tables["seconds"] += [{"run": run, "second": second, "delivered": 3, "p50_ns": None} for second in (1, 0)]
        tables["machine"] += [
            {"run": run, "source": "a", "role": "server", "second": 0, "cpu_cores": cores} for cores in (0.5, 0.25)
        ]
    return Digest(runs, tables)


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_written_is_read_in_the_order_of_runs_and_times(tmp_path: Path) -> None:
    document = digestdir.write(tmp_path, digest(b=1, a=2), ["b", "a"])
    assert [run["run"] for run in document["runs"]] == ["b", "a"]
    read, tables = digestdir.read(tmp_path)
    assert read == document
    assert [(row["run"], row["second"]) for row in tables["seconds"]] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert [row["cpu_cores"] for row in tables["machine"]] == [0.5, 0.25] * 2, "samples of one second stay in order"
    assert tables["seconds"][0]["p50_ns"] is None
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [digestdir.DOCUMENT, *(f"{name}.csv" for name in TABLES)]
    )


def test_a_table_whose_cell_is_not_of_its_column_is_said_with_file_and_line(tmp_path: Path) -> None:
    digestdir.write(tmp_path, digest(a=1), ["a"])
    table = tmp_path / "seconds.csv"
    table.write_text(table.read_text().replace(",3,", ",2.5,", 1))
    with pytest.raises(BenchError, match=r"seconds\.csv, line 2: .*'2\.5'"):
        digestdir.read(tmp_path)


@pytest.mark.parametrize(("value", "cell"), [(0.5, "0.5"), (3.0, "3"), (2.9999999, "3"), (-1e-9, "0"), (1e-7, "0")])
def test_a_whole_number_has_no_point_and_another_six_digits_after_it(tmp_path: Path, value: float, cell: str) -> None:
    made = digest(a=1)
    made.tables["machine"][0]["cpu_cores"] = value  # type: ignore[index]
    digestdir.write(tmp_path, made, ["a"])
    assert (tmp_path / "machine.csv").read_text().splitlines()[1] == f"a,a,server,0,{cell},,,,,,"


def test_reading_and_writing_again_changes_no_byte(tmp_path: Path, said: list[str]) -> None:
    digestdir.write(tmp_path, digest(a=1, b=2), ["a", "b"])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    kept = digestdir.remembered(tmp_path, {"a": log(1), "b": log(2)}, said.append)
    digestdir.write(tmp_path, kept, ["a", "b"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert said == []


def test_only_runs_of_the_very_same_files_are_remembered(tmp_path: Path, said: list[str]) -> None:
    digestdir.write(tmp_path, digest(same=1, grown=1, gone=1, edited=1), ["same", "grown", "gone", "edited"])
    edited = log(1) | {"sha256": {"run.json": "cd" * 32}}
    kept = digestdir.remembered(
        tmp_path, {"same": log(1), "grown": log(2), "edited": edited, "new": log(1)}, said.append
    )
    assert list(kept.runs) == ["same"]
    assert {row["run"] for rows in kept.tables.values() for row in rows} == {"same"}


@pytest.mark.parametrize("how", ["an older version", "torn document", "no table", "foreign table"])
def test_a_digest_that_cannot_be_read_holds_nothing_and_says_why(tmp_path: Path, said: list[str], how: str) -> None:
    digestdir.write(tmp_path, digest(a=1), ["a"])
    document = tmp_path / digestdir.DOCUMENT
    if how == "an older version":
        document.write_text(json.dumps(json.loads(document.read_text()) | {"digest": DIGEST_VERSION - 1}))
    elif how == "torn document":
        document.write_text(document.read_text()[:40])
    elif how == "no table":
        (tmp_path / "seconds.csv").unlink()
    else:
        (tmp_path / "seconds.csv").write_text("a,b\n")
    assert digestdir.remembered(tmp_path, {"a": log(1)}, said.append) == Digest.empty()
    [words] = said
    assert str(tmp_path) in words
    assert words.endswith("every run is computed again")


def test_nothing_there_is_nothing_to_say(tmp_path: Path, said: list[str]) -> None:
    assert digestdir.remembered(tmp_path, {"a": log(1)}, said.append) == Digest.empty()
    assert said == []


def test_a_digest_that_is_interrupted_leaves_the_old_one(tmp_path: Path) -> None:
    digestdir.write(tmp_path, digest(a=1), ["a"])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    class Interrupts(dict[str, object]):
        def get(self, *_: object) -> None:
            raise KeyboardInterrupt

    made = digest(b=1)
    first, *others = made.tables["machine"]
    broken = Digest(made.runs, {**made.tables, "machine": [Interrupts(first), *others]})
    with pytest.raises(KeyboardInterrupt):
        digestdir.write(tmp_path, broken, ["b"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_no_document_stands_beside_tables_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digestdir.write(tmp_path, digest(a=1), ["a"])
    replace, replaced = os.replace, list[Path]()

    def fails(source: Path, target: Path) -> None:
        replaced.append(target)
        if len(replaced) > 1:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(BenchError, match="cannot write the digest"):
        digestdir.write(tmp_path, digest(b=1), ["b"])
    with pytest.raises(BenchError, match="is not a digest"):
        digestdir.read_document(tmp_path)
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=f"cannot write the digest to {tmp_path}/nowhere"):
        digestdir.write(tmp_path / "nowhere", digest(a=1), ["a"])
