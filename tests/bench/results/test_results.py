"""The result sets of the repository: their pages are made of what they keep, and all of it together stays light."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingeborg.bench import cli
from ingeborg.bench.digest import kept
from ingeborg.bench.packing import command as packing
from tests import wants

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results"
PACKINGS = sorted(path.parent for path in RESULTS.glob(f"*/{packing.DIGEST}"))
SETS = sorted({path.parent for path in RESULTS.glob("*/report.html")} - {*PACKINGS})

CHECKOUT_BYTES_MAX = 8_000_000
"""Of all tracked files: who clones this broker to try it does not want its measurements first."""

SET_BYTES_MAX = 1_000_000
PAGE_BYTES_MAX = 700_000

ANEW = "the code of reports has changed what a page says: look at it, then `make pages`"


def tracked() -> dict[Path, int]:
    """Bytes of each tracked file, as it is on disk."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        wants.skip("git and its repository", "clone the repository instead of unpacking an archive")
    files = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    # A link's own bytes: what it leads to is counted where it is.
    return {path: path.lstat().st_size for path in files if path.is_symlink() or path.is_file()}


def heaviest(files: dict[Path, int]) -> str:
    first = sorted(files, key=lambda path: -files[path])[:5]
    return ", ".join(f"{path.relative_to(ROOT)} {files[path]:,}" for path in first)


def test_a_checkout_is_light() -> None:
    files = tracked()
    assert sum(files.values()) <= CHECKOUT_BYTES_MAX, f"the heaviest: {heaviest(files)}"


def test_each_result_set_is_light_and_has_no_digest_but_the_file() -> None:
    sets: dict[str, dict[Path, int]] = {}
    for path, size in tracked().items():
        if path.is_relative_to(RESULTS):
            sets.setdefault(path.relative_to(RESULTS).parts[0], {})[path] = size
    assert set(sets) >= {folder.name for folder in SETS}
    for name, files in sets.items():
        assert sum(files.values()) <= SET_BYTES_MAX, f"{name}: {heaviest(files)}"
        assert [str(path) for path in files if path.suffix == ".csv" or path.name == "digest.json"] == []
        for path, size in files.items():
            assert path.name != "report.html" or size <= PAGE_BYTES_MAX, (name, size)


def test_there_are_sets_and_each_page_has_its_digest_beside_it() -> None:
    assert len(SETS) >= 3
    assert sorted(path.parent for path in RESULTS.glob(f"*/{kept.NAME}")) == SETS
    for folder in SETS:
        assert {"matrix.toml", "summary.md", "comparison.json"} <= {path.name for path in folder.iterdir()}


def test_every_set_that_the_docs_name_is_kept() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"bench/results/([^)/\s<>*`]+)/", page.read_text("utf-8"))}
    assert len(named) >= 3
    assert {name for name in named if not (RESULTS / name / "summary.md").is_file()} == set()


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
def test_the_page_and_the_summary_are_made_again_to_the_byte(folder: Path, tmp_path: Path) -> None:
    wants.module("pyarrow", "bench")
    assert cli.main(["report", str(folder / kept.NAME), "--out", str(tmp_path / "report.html")]) == 0
    for name in ("summary.md", "report.html"):
        made, there = ((where / name).read_text(encoding="utf-8") for where in (tmp_path, folder))
        assert figures(made) == figures(there), f"{folder.name}/{name}: other figures"
        assert made == there, f"{folder.name}/{name}: {ANEW}"


@pytest.mark.parametrize("folder", PACKINGS, ids=lambda folder: folder.name)
def test_the_page_of_a_packing_is_made_again_to_the_byte(folder: Path, tmp_path: Path) -> None:
    for name in (packing.DIGEST, packing.TIMES):
        shutil.copy(folder / name, tmp_path / name)
    assert cli.main(["packing", "--again", "--out", str(tmp_path)]) == 0
    for name in (packing.SUMMARY, packing.PAGE):
        made, there = ((where / name).read_text(encoding="utf-8") for where in (tmp_path, folder))
        assert figures(made) == figures(there), f"{folder.name}/{name}: other figures"
        assert made == there, f"{folder.name}/{name}: {ANEW}"


def figures(text: str) -> list[str]:
    """The numbers that a reader sees, in their order."""
    return re.findall(r"\d[\d.,]*", re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL))
