"""An autoscaler's file: its allowed content, and the errors for a wrong one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ingeborg.autoscaler import settings
from ingeborg.autoscaler.settings import Settings, SettingsError, read

GOOD: dict[str, dict[str, Any]] = {
    "group": {"name": "billing", "topics": ["orders", "refunds"], "members_max": 4, "capacity_bytes_per_s": 1_000},
    "kafka": {"servers": ["localhost:9092"]},
    "sink": {"kind": "files", "folder": "sink", "tables": {"orders": "sales"}},
    "scaler": {"kind": "processes"},
}


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {toml(each)}' for key, each in value.items())}}}"
    return repr(value)


def written(folder: Path, document: dict[str, dict[str, Any]]) -> Path:
    lines = []
    for name, rows in document.items():
        lines += [f"[{name}]", *(f"{key} = {toml(value)}" for key, value in rows.items())]
    file = folder / "group.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def changed(table: str, **rows: Any) -> dict[str, dict[str, Any]]:
    """Return the valid file with these rows; ``None`` removes a row."""
    found = {name: dict(each) for name, each in GOOD.items()}
    found.setdefault(table, {})
    for key, value in rows.items():
        found[table].pop(key, None)
        if value is not None:
            found[table][key] = value
    return found


def refused(folder: Path, document: dict[str, dict[str, Any]]) -> str:
    with pytest.raises(SettingsError) as caught:
        read(written(folder, document))
    return str(caught.value)


def test_a_file_of_what_is_needed_has_defaults_for_the_rest(tmp_path: Path) -> None:
    found = read(written(tmp_path, GOOD))
    assert found.group.topics == ("orders", "refunds")
    assert found.group.members_min == 1
    assert (found.metadata_topic, found.speeds_topic) == ("billing.metadata", "billing.speeds")
    assert found.numbers_max == 8
    assert (found.sink.table("orders"), found.sink.table("refunds")) == ("sales", "refunds")
    assert found.path("sink") == tmp_path / "sink"
    assert found.path("/else/where") == Path("/else/where")


def test_every_row_can_be_said(tmp_path: Path) -> None:
    """Each row can have its default, except the required ones."""
    document = changed("group")
    for name, table in settings.TABLES.items():
        for row in dataclasses.fields(table):
            if row.metadata and row.default != "" and not (name == "group" and row.name in GOOD["group"]):
                document.setdefault(name, {}).setdefault(row.name, row.default)
    assert isinstance(read(written(tmp_path, document)), Settings)


@pytest.mark.parametrize(
    ("table", "rows", "words"),
    [
        ("group", {"name": None}, "[group] name is needed"),
        ("group", {"name": "a b"}, "[group] name is needed: at most 200 letters, digits"),
        ("group", {"topics": []}, "[group] topics is needed"),
        ("group", {"topics": ["a", "a"]}, "names a topic twice"),
        ("group", {"topics": "orders"}, "must be a list of non-empty strings"),
        ("group", {"topics": ["billing.speeds"]}, "one of the group's own topics"),
        ("group", {"members_max": None}, "members_max is needed"),
        ("group", {"members_max": 0}, "members_max has to be at least 1 and at most 1,000, not 0"),
        ("group", {"members_max": 2, "members_min": 3}, "members_min is 3, but members_max is only 2"),
        ("group", {"capacity_bytes_per_s": None}, "capacity_bytes_per_s is needed"),
        ("group", {"capacity_bytes_per_s": "a lot"}, "capacity_bytes_per_s has to be a number, not 'a lot'"),
        ("group", {"fill": 1.5}, "fill has to be at least 0.1 and at most 1"),
        ("group", {"algorithm": "best"}, "algorithm must be one of mend, mwf"),
        ("group", {"lost_s": 3.0}, "lost_s must be more than two beats of 2 s"),
        ("group", {"member_max": 3}, "[group] has no 'member_max'; did you mean members_max?"),
        ("kafka", {"servers": None}, "[kafka] servers is needed"),
        ("kafka", {"metadata_topic": "x", "speeds_topic": "x"}, "must differ"),
        ("kafka", {"security": "tls"}, "security must be plaintext, ssl"),
        ("kafka", {"security": "sasl_ssl"}, "sasl_ssl needs user and password_file"),
        ("kafka", {"sasl_mechanism": "GSSAPI"}, "sasl_mechanism must be"),
        ("monitor", {"measure": "guess"}, "measure must be one of offsets, log_sizes"),
        ("monitor", {"every_s": 3.0, "window_s": 1.0}, "window_s must be at least every_s"),
        ("member", {"start_from": "middle"}, "start_from must be earliest or latest"),
        ("member", {"isolation": "serializable"}, "isolation must be read_committed or read_uncommitted"),
        ("sink", {"kind": None}, "[sink] kind is needed: files or http"),
        ("sink", {"folder": None}, "[sink] folder is needed"),
        ("sink", {"kind": "http"}, "[sink] url must begin with http"),
        ("sink", {"tables": {"others": "x"}}, "tables names 'others', which is not in [group] topics"),
        ("sink", {"tables": ["x"]}, "must be a table of strings"),
        ("scaler", {"kind": "nomad"}, "[scaler] kind is needed: processes"),
        ("scaler", {"kind": "kubernetes"}, "deployment is needed for kubernetes"),
        ("scaler", {"kind": "http", "url": "ftp://x"}, "[scaler] url must begin with http"),
        ("web", {"port": 70_000}, "port has to be at least -1 and at most 65,535"),
        ("wob", {"port": 1}, "the file has no 'wob'; did you mean [web]?"),
    ],
)
def test_what_is_wrong_is_said_with_its_row(tmp_path: Path, table: str, rows: dict[str, Any], words: str) -> None:
    said = refused(tmp_path, changed(table, **rows))
    assert words in said
    assert said.startswith(str(tmp_path / "group.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [("[group", "it must be TOML"), ("group = 1", "group must be a table: [group]"), (None, "No such file")],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "group.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read(file)
    assert words in str(caught.value)
