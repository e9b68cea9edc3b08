"""A digest as one file: nothing is lost on the way there and back, and any other file gives an error of one line."""

from __future__ import annotations

import json
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench import cli
from ingeborg.bench.digest import files, forms, kept
from ingeborg.bench.digest.document import DIGEST_VERSION
from ingeborg.bench.digest.tables import ORDER, REAL, TABLES, TEXT, Digest
from ingeborg.bench.errors import BenchError
from tests import wants
from tests.bench import digests

Json = dict[str, Any]

SORTED_BY = {
    "seconds": {"second"},
    "histogram": {"second", "phase", "high_ns"},
    "machine": {"source", "second"},
    "counters": {"phase", "source", "name"},
}
"""Sort keys of rows, which are never missing."""

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LOG_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
"""Text as a log may have it: `bench digest` refuses control characters."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def pyarrow() -> None:
    wants.module("pyarrow", "bench")


@st.composite
def made(draw: st.DrawFn, text: st.SearchStrategy[str], missing_text: bool) -> tuple[Json, dict[str, list[Json]]]:
    """Draw a digest of any values: a document, and rows in any order."""
    ids = draw(st.lists(text, min_size=1, max_size=3, unique=True))
    runs = [{"run": run, "said": draw(VALUES)} for run in ids]

    def cell(name: str, column: str) -> st.SearchStrategy[Any]:
        kind: st.SearchStrategy[Any] = text if column in TEXT else st.integers(-(2**63), 2**63 - 1)
        if column in REAL:
            kind = FINITE
        may_miss = column not in SORTED_BY[name] and (missing_text or column not in TEXT)
        return st.none() | kind if may_miss else kind

    def row(name: str) -> st.SearchStrategy[Json]:
        cells = {column: cell(name, column) for column in TABLES[name][1:]}
        return st.fixed_dictionaries({"run": st.sampled_from(ids), **cells})

    tables = {name: draw(st.lists(row(name), max_size=4)) for name in TABLES}
    return {"digest": DIGEST_VERSION, "runs": runs}, tables


def in_order(tables: dict[str, list[Json]]) -> dict[str, list[Json]]:
    return {
        name: [{column: row[column] for column in TABLES[name]} for row in sorted(rows, key=ORDER[name])]
        for name, rows in tables.items()
    }


@given(made(ANY_TEXT, missing_text=True))
def test_every_value_comes_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, digest: tuple[Json, dict[str, list[Json]]]
) -> None:
    document, tables = digest
    path = tmp_path_factory.mktemp("kept") / "digest.parquet"
    kept.write(path, document, tables)
    # Compare their printed forms: 1 is not 1.0, and 0.0 is not -0.0.
    assert repr(kept.read(path)) == repr((document, in_order(tables)))
    assert repr(kept.read_document(path)) == repr(document)
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no draft is left"


@given(made(LOG_TEXT, missing_text=False))
def test_a_folder_that_was_a_file_meanwhile_is_the_same_byte_by_byte(
    tmp_path_factory: pytest.TempPathFactory, digest: tuple[Json, dict[str, list[Json]]]
) -> None:
    top = tmp_path_factory.mktemp("forms")
    (top / "before").mkdir()
    files.write(top / "before", Digest.of(*digest), [run["run"] for run in digest[0]["runs"]])
    forms.convert(top / "before", top / "new" / "digest.parquet")
    forms.convert(top / "new" / "digest.parquet", top / "after")
    assert repr(kept.read(top / "new" / "digest.parquet")) == repr(files.read(top / "before"))
    before, after = ({file.name: file.read_bytes() for file in (top / name).iterdir()} for name in ("before", "after"))
    assert before == after


def test_a_short_digest_has_as_many_digits_as_a_page_shows_and_all_of_counts(tmp_path: Path) -> None:
    run = digests.demo()
    document, tables = digests.document(run), digests.tables(run)
    tables["machine"][0] |= {
        "cpu_cores": 1.23456789,
        "net_rx_bytes_s": 123_456_789.0,
        "rss_bytes": 987_654_321,
        "second": 1_234,
    }
    sample = {"run": "demo", "phase": "run", "source": "a", "name": "x_total"}
    tables["counters"] = [{**sample, "first": 0.123456789, "last": 123_456_789.0}]
    document["runs"][0]["phases"][0] |= {"duration_s": 20.0001234, "curve": [[500_000, 1_234_567]]}
    kept.write(tmp_path / "digest.parquet", document, tables)
    forms.convert(tmp_path / "digest.parquet", tmp_path / "short.parquet", short=True)
    before, after = kept.read(tmp_path / "digest.parquet"), kept.read(tmp_path / "short.parquet")
    assert after == forms.shortened(*before)
    drawn = next(row for row in after[1]["machine"] if row["rss_bytes"] == 988_000_000)
    assert (drawn["cpu_cores"], drawn["net_rx_bytes_s"], drawn["second"]) == (1.23, 123_000_000.0, 1_234)
    assert after[1]["counters"] == [{**sample, "first": 0.123457, "last": 123_456_789.0}]
    phase = after[0]["runs"][0]["phases"][0]
    assert (phase["duration_s"], phase["curve"]) == (20.0001, [[500_000, 1_230_000]])
    assert after[1]["histogram"] == before[1]["histogram"]
    assert after[1]["seconds"] == before[1]["seconds"]


def write_demo(folder: Path) -> Path:
    """Write a file with the digest of one good run."""
    path = folder / "digest.parquet"
    run = digests.demo()
    kept.write(path, digests.document(run), digests.tables(run))
    return path


def test_the_kinds_of_columns_are_those_of_the_page_on_digests(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    schema = pq.read_schema(write_demo(tmp_path))
    kinds = {name: {field.name: str(field.type) for field in schema.field(name).type.value_type} for name in TABLES}
    counts = dict.fromkeys(("news", "reports", "duplicates_offered", "delivered", "errors"), "int64")
    rates = ("net_rx_bytes_s", "net_tx_bytes_s", "disk_read_bytes_s", "disk_write_bytes_s")
    assert [*schema.names] == ["run", "document", *TABLES]
    assert kinds == {
        "seconds": {"second": "int64", **counts, **dict.fromkeys(("p50_ns", "p99_ns", "max_ns"), "int64")},
        "histogram": {"phase": "string", **dict.fromkeys(("second", "low_ns", "high_ns", "deliveries"), "int64")},
        "machine": {"source": "string", "role": "string", "second": "int64", "cpu_cores": "double"}
        | {"rss_bytes": "int64", "anon_bytes": "int64", **dict.fromkeys(rates, "double")},
        "counters": {**dict.fromkeys(("phase", "source", "name"), "string"), "first": "double", "last": "double"},
    }


def test_the_same_digest_is_the_same_file(tmp_path: Path) -> None:
    first = write_demo(tmp_path).read_bytes()
    assert write_demo(tmp_path).read_bytes() == first


def test_page_and_summary_are_the_same_of_either_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "digest", tmp_path / "digest.parquet"
    folder.mkdir()
    digests.write(folder, *digests.compared(doublings=3)["runs"])
    assert cli.main(["convert", str(folder), "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"Digest: {file}\n"
    said = []
    for source in (folder, file):
        assert cli.main(["summary", str(source)]) == 0
        said.append(capsys.readouterr().out)
        assert cli.main(["report", str(source), "--out", str(tmp_path / source.suffix / "page.html")]) == 0
        capsys.readouterr()
    assert said[0] == said[1]
    for name in ("page.html", "summary.md"):
        assert (tmp_path / name).read_bytes() == (tmp_path / ".parquet" / name).read_bytes()


def damaged(path: Path, how: str) -> None:
    """Damage a good file."""
    import pyarrow.parquet as pq

    whole = path.read_bytes()
    table, metadata = pq.read_table(path), {"ingeborg.layout": "1", "ingeborg.digest": str(DIGEST_VERSION)}
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut short":
        path.write_bytes(whole[:-20])
    elif how == "its beginning only":
        path.write_bytes(whole[:3000])
    elif how == "text":
        path.write_text(string.ascii_letters * 20)
    elif how == "a changed byte":
        path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    elif how == "another program's":
        pq.write_table(table.replace_schema_metadata(None), path)
    elif how == "another layout":
        pq.write_table(table.replace_schema_metadata(metadata | {"ingeborg.layout": "2"}), path)
    elif how == "another version":
        pq.write_table(table.replace_schema_metadata(metadata | {"ingeborg.digest": "1"}), path)
    elif how == "other columns":
        pq.write_table(table.drop_columns(["machine"]).replace_schema_metadata(metadata), path)
    elif how == "no document":
        texts = table.set_column(1, table.schema.field(1), [["[]"]])
        pq.write_table(texts.cast(table.schema).replace_schema_metadata(metadata), path)
    elif how == "no runs":
        pq.write_table(table.slice(0, 0).replace_schema_metadata(metadata), path)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("empty", "truncated, damaged or not a Parquet file"),
        ("cut short", "make it again from the digest folder: bench convert DIGEST_DIR --out digest.parquet"),
        ("its beginning only", "truncated, damaged or not a Parquet file"),
        ("text", "truncated, damaged or not a Parquet file"),
        ("a changed byte", "truncated, damaged or not a Parquet file"),
        ("another program's", "holds no digest: `bench compare` and `bench convert` write files with a digest"),
        ("another layout", "has layout 2, but this version of bench reads layout 1"),
        ("another version", "holds a digest of version 1, but this version of bench reads 2"),
        ("other columns", "does not have the columns of a digest: make it again"),
        ("no document", "the column `document` is not as expected"),
        ("no runs", "name different runs, or no run"),
        ("gone", "there is no file"),
    ],
)
def test_what_is_no_such_file_is_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str, said: str
) -> None:
    path = write_demo(tmp_path)
    damaged(path, how)
    for command in (["summary"], ["report", "--out", "x.html"], ["convert", "--out", str(tmp_path / "folder")]):
        if how == "a changed byte" and command == ["summary"]:
            continue  # the byte may be in a table, which a summary does not read
        assert cli.main([command[0], str(path), *command[1:]]) == 1
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert error.startswith("bench: ")
        assert str(path) in error
        assert said in error
    assert not (tmp_path / "folder").exists()


def test_no_changed_byte_is_taken_for_a_figure(tmp_path: Path) -> None:
    """Each page has a checksum; the file's end, which has none, holds no figure."""
    path = write_demo(tmp_path)
    good, whole = kept.read(path), path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert kept.read(path) == good, place
        except BenchError:
            refused += 1
    assert refused > len(whole) / 13 / 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delivered": 1.5}, "table seconds: 1.5 does not have the type of column delivered"),
        ({"delivered": True}, "table seconds: True does not have the type of column delivered"),
        ({"p50_ns": "5"}, "table seconds: '5' does not have the type of column p50_ns"),
        ({"delivered": 2**63}, "does not fit its column"),
        ({"run": "another"}, "table seconds has rows of run 'another', which the document does not list"),
        ({"second": None}, "table seconds: its rows cannot be sorted"),
    ],
)
def test_what_does_not_fit_is_not_written(tmp_path: Path, change: Json, said: str) -> None:
    run = digests.demo()
    tables = digests.tables(run)
    tables["seconds"][3] |= change
    with pytest.raises(BenchError, match=said):
        kept.write(tmp_path / "digest.parquet", digests.document(run), tables)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "digest").mkdir()
    digests.write(tmp_path / "digest", digests.demo())
    (tmp_path / "a file").write_text("")
    for out in ("x.parquet", "folder"):
        assert cli.main(["convert", str(tmp_path / "digest"), "--out", str(tmp_path / "a file" / out)]) == 1
        assert "cannot make the directory" in capsys.readouterr().err
    with pytest.raises(BenchError, match=f"cannot write {tmp_path}/nowhere/x.parquet"):
        kept.write(tmp_path / "nowhere" / "x.parquet", digests.document(digests.demo()), digests.tables())


def test_without_the_library_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_demo(tmp_path)
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["summary", str(path)]) == 2
    assert capsys.readouterr().err.endswith("pip install 'ingeborg[bench]'\n")


def test_no_command_waits_for_the_library_that_does_not_use_it(tmp_path: Path) -> None:
    digests.write(tmp_path, digests.demo())
    program = (
        "import json, sys; from ingeborg.bench import cli; status = cli.main(['summary', sys.argv[1]]); "
        "json.dump([status, 'pyarrow' in sys.modules], sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stderr) == [0, False]
