"""The subject of a commit fits into one line of `git log --oneline` and of a web page with commits."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import wants

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 72

BASE = "c10e8ebdd1454442c8e7a77694938ea0b0e4b3fe"
"""The rule holds for the commits after this one."""

PATIENCE_S = 30


class NoHistoryError(Exception):
    """Raised if git does not run, or knows no commit."""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git in this folder."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoHistoryError(getattr(error, "stderr", "") or str(error)) from error
    return done.stdout


def too_long(folder: Path, base: str) -> list[str]:
    """Return the commits after `base` whose subject is too long. Merges do not count: git writes their subjects.

    A shallow clone may lack `base`. Then only the newest commit surely comes after it.
    """
    try:
        git(folder, "cat-file", "-e", f"{base}^{{commit}}")
        span = [f"{base}..HEAD"]
    except NoHistoryError:
        span = ["-1", "HEAD"]
    lines = git(folder, "log", "--no-merges", "--format=%h %s", *span).splitlines()
    subjects = [(line, line.partition(" ")[2]) for line in lines]
    return [line for line, subject in subjects if len(subject) > LONGEST and not subject.startswith("Merge ")]


def test_subjects_of_commits_are_short() -> None:
    try:
        found = too_long(ROOT, BASE)
    except NoHistoryError:
        wants.skip("git and its repository", "clone the repository instead of unpacking an archive")
    assert found == [], f"shorten these subjects to {LONGEST} characters: git rebase -i {BASE[:7]}, then “reword”"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository with two commits whose subjects are too long, and a short one between."""
    if shutil.which("git") is None:
        wants.skip("git and its repository", "clone the repository instead of unpacking an archive")
    git(tmp_path, "init", "--quiet")
    for subject in ("a" * (LONGEST + 1), "b" * LONGEST, "c" * (LONGEST + 1)):
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        git(tmp_path, *identity, "commit", "--quiet", "--allow-empty", "-m", f"{subject}\n\nA body.")
    return tmp_path


def subjects_too_long(folder: Path, base: str) -> list[str]:
    """Return the subjects without the commits' hashes."""
    return [line.partition(" ")[2] for line in too_long(folder, base)]


def test_commits_after_the_base_are_checked(repository: Path) -> None:
    first = git(repository, "rev-list", "--max-parents=0", "HEAD").strip()
    assert subjects_too_long(repository, first) == ["c" * (LONGEST + 1)]
    assert subjects_too_long(repository, "HEAD") == []


def test_without_the_base_the_newest_commit_is_checked(repository: Path) -> None:
    assert subjects_too_long(repository, BASE) == ["c" * (LONGEST + 1)]


def test_a_shallow_clone_is_checked(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "--quiet", "--bare", "--depth", "1", f"file://{repository}", ".")
    assert subjects_too_long(clone, BASE) == ["c" * (LONGEST + 1)]


def test_a_folder_without_a_repository_has_no_history(tmp_path: Path) -> None:
    with pytest.raises(NoHistoryError, match="not a git repository"):
        too_long(tmp_path, BASE)
