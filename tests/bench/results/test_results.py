"""The result sets of the repository: their pages are made of what they keep, and all of it together stays light."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ingeborg.bench import cli
from ingeborg.bench.autoscale.experiment import Autoscale
from ingeborg.bench.caching.experiment import Caching
from ingeborg.bench.digest import kept
from ingeborg.bench.dyconits.experiment import Dyconits
from ingeborg.bench.experiments.experiment import MEASURED, Experiment
from ingeborg.bench.overlay.experiment import Overlay
from ingeborg.bench.packing.experiment import Packing
from tests import wants

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results"


def sets(digest: str) -> list[Path]:
    return sorted(path.parent for path in RESULTS.glob(f"*/{digest}"))


#: The evaluations, and the folders with their stored results.
EVALUATIONS: list[Experiment] = [Autoscale(), Caching(), Dyconits(), Overlay(), Packing()]
EVALUATED = [(evaluation, folder) for evaluation in EVALUATIONS for folder in sets(evaluation.document)]

COMPARISONS = sets(kept.NAME)
SUMMARY, PAGE = "summary.md", "report.html"

MEASURED_BYTES_MAX = 750_000
"""Of all that was measured, in `bench/results` and `docs/soak`: who clones this broker to try it does not want its
measurements first."""

CHECKOUT_BYTES_MAX = 13_400_000
"""Of all tracked files. Nearly all of it is source: it grows with what is built, and this says by how much. It is
raised when a capability comes in that has its tests and pages, after what can be made lighter has been; never for what
was measured."""

SET_BYTES_MAX = 400_000
PAGE_BYTES_MAX = 700_000

ANEW = "the code of reports has changed what a summary says: look at it and its page, then `make pages`"


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
    measured = {
        path: size
        for path, size in files.items()
        if path.is_relative_to(RESULTS) or path.is_relative_to(ROOT / "docs" / "soak")
    }
    assert sum(measured.values()) <= MEASURED_BYTES_MAX, f"the heaviest: {heaviest(measured)}"


def test_each_result_set_is_light_and_has_no_digest_but_the_file_and_no_page() -> None:
    found: dict[str, dict[Path, int]] = {}
    for path, size in tracked().items():
        if path.is_relative_to(RESULTS):
            found.setdefault(path.relative_to(RESULTS).parts[0], {})[path] = size
    assert set(found) >= {folder.name for folder in (*COMPARISONS, *(folder for _, folder in EVALUATED))}
    for name, files in found.items():
        assert sum(files.values()) <= SET_BYTES_MAX, f"{name}: {heaviest(files)}"
        assert [str(path) for path in files if path.suffix == ".csv" or path.name in ("digest.json", PAGE)] == []


def test_there_are_sets_of_each_kind() -> None:
    assert COMPARISONS
    assert {evaluation.name for evaluation, _ in EVALUATED} == {evaluation.name for evaluation in EVALUATIONS}
    for folder in COMPARISONS:
        assert {"matrix.toml", SUMMARY, "comparison.json"} <= {path.name for path in folder.iterdir()}


def test_every_set_that_the_docs_name_is_kept() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"bench/results/([^)/\s<>*`]+)/", page.read_text("utf-8"))}
    assert len(named) >= 3
    assert {name for name in named if not (RESULTS / name).is_dir()} == set()


@pytest.mark.parametrize("folder", COMPARISONS, ids=lambda folder: folder.name)
def test_a_comparison_is_made_again_of_its_digest(folder: Path, tmp_path: Path) -> None:
    wants.module("pyarrow", "bench")
    assert cli.main(["report", str(folder / kept.NAME), "--out", str(tmp_path / PAGE)]) == 0
    made_again(folder, tmp_path)


@pytest.mark.parametrize(("evaluation", "folder"), EVALUATED, ids=lambda each: str(each.name))
def test_an_evaluation_is_made_again_of_its_digest(evaluation: Experiment, folder: Path, tmp_path: Path) -> None:
    for name in (evaluation.document, MEASURED):
        if (folder / name).is_file():
            shutil.copy(folder / name, tmp_path / name)
    assert cli.main([evaluation.name, "--report-only", "--out", str(tmp_path)]) == 0
    made_again(folder, tmp_path)


def made_again(folder: Path, made: Path) -> None:
    """As below, and all figures of the summary are on the page."""
    page = summary_made_again(folder, made)
    text = (made / SUMMARY).read_text(encoding="utf-8")
    assert set(figures(text)) <= set(figures(page)), f"{folder.name}: figures that are not on the page"


def summary_made_again(folder: Path, made: Path) -> str:
    """The summary is made again to the byte. Returns the page."""
    text = (made / SUMMARY).read_text(encoding="utf-8")
    there = (folder / SUMMARY).read_text(encoding="utf-8")
    assert figures(text) == figures(there), f"{folder.name}: other figures"
    assert text == there, f"{folder.name}: {ANEW}"
    return page_made_again(made)


def page_made_again(made: Path) -> str:
    """The page, which is light."""
    page = (made / PAGE).read_text(encoding="utf-8")
    assert len(page.encode()) <= PAGE_BYTES_MAX
    return page


def figures(text: str) -> list[str]:
    """The numbers that a reader sees, in their order."""
    return re.findall(r"\d[\d.,]*", re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL))
