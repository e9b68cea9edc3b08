"""Programs built with Go: their pins, the errors if they cannot be built, and when they are built again."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from ingeborg.bench.rivals import NotInstalledError, RivalError, go_programs
from ingeborg.bench.rivals.go_programs import CENTRIFUGE, PROGRAMS, GoProgram

ROOT = Path(__file__).resolve().parents[3]

each = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@each
def test_go_mod_pins_the_release_that_the_page_of_dependencies_names(program: GoProgram) -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"\d+\.\d+\.\d+", program.release())
    assert f"| `{program.module}` | v{program.release()} | " in page
    assert f"| Go {program.go_release()} or newer" in page


@each
def test_the_sums_are_of_what_go_mod_requires_and_of_nothing_that_is_not_needed(program: GoProgram) -> None:
    required = re.findall(r"^\t?(?:require )?(\S+ v\S+)", (program.sources / "go.mod").read_text(), re.MULTILINE)
    sums = (program.sources / "go.sum").read_text().splitlines()
    assert len(required) > 5
    assert {f"{each}/go.mod" for each in required} <= {line.rpartition(" ")[0] for line in sums}
    assert sum(file.stat().st_size for file in program.sources.iterdir()) < 16_384


@each
def test_without_go_it_is_said_what_to_install(
    program: GoProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: None)
    with pytest.raises(NotInstalledError, match=rf"{program.title}.*Go \d\.\d+ or newer.*apt-get install golang-go"):
        go_programs.ensure(program, tmp_path)
    assert list(tmp_path.iterdir()) == []


def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_args, **_words: str(go))


def test_a_go_that_fails_leaves_nothing_and_its_words_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use the installed one: by default Go would fetch a newer one.
    fake_go(tmp_path, monkeypatch, 'echo "go.mod requires go >= 1.26.0 (running go 1.19; $GOTOOLCHAIN)"; exit 3')
    with pytest.raises(RivalError, match=r"(?s)exit code 3.*running go 1\.19; local"):
        go_programs.ensure(CENTRIFUGE, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_go_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go_programs, "BUILD_S", 0.2)
    fake_go(tmp_path, monkeypatch, "exec sleep 30")
    with pytest.raises(RivalError, match="did not build Centrifuge in 0 s"):
        go_programs.ensure(CENTRIFUGE, tmp_path / "cache")


@each
def test_what_go_has_built_is_kept_and_made_anew_only_of_other_sources(
    program: GoProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path after -o is the last but one word, and the package the last.
    script = 'while [ $# -gt 2 ]; do shift; done; echo "$2" >"$1"; echo once >>"$0.times"'
    fake_go(tmp_path, monkeypatch, script)
    cache = tmp_path / "cache"
    built = go_programs.ensure(program, cache)
    assert (built, built.read_text()) == (program.path(cache), f"{program.package}\n")
    assert go_programs.ensure(program, cache) == built
    assert (tmp_path / "go.times").read_text() == "once\n"
    other = tmp_path / "sources"
    shutil.copytree(program.sources, other)
    (other / ".editor").mkdir()
    assert dataclasses.replace(program, sources=other).path(cache) == built
    with (other / "go.sum").open("a") as sums:
        sums.write("\n")
    assert go_programs.ensure(dataclasses.replace(program, sources=other), cache) != built
