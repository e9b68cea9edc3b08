"""The seeds that a run of the tests takes: a few for a change, a share, or all.

Owns: ``--proof``, a test's seeds, the floors for events in their histories, and the tests that only `make prove` runs.
Must never: know what a history is.

- ``change`` (`make test`): a few fixed seeds of each test. Their events are known, so floors hold by far.
- ``share`` (CI's compiled slice): one seed in ``SHARES``, drawn from the commit, so that a week of commits has all.
  It requires no floor, since the number of events in a few histories depends on the histories.
- ``all`` (`make prove`): every seed, and the tests with the mark ``prove``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]

#: After this many runs, of commits with different shares, every seed has had its turn.
SHARES: Final = 8

#: The variable that names a commit, instead of the one that is checked out.
VARIABLE: Final = "INGEBORG_TEST_COMMIT"

#: A floor is half of a test's figure for all of its seeds. For a few seeds it is half of that, since they differ more.
HALF: Final = 2


Thing = TypeVar("Thing")


class Proof(NamedTuple):
    """A choice of seeds. ``share``: its number among ``SHARES``, from 0; ``origin``: its source, for people."""

    speed: str = "change"
    share: int = 0
    origin: str = ""

    def header(self) -> str:
        """Return a line for pytest's header."""
        if self.speed == "share":
            again = f"--proof share --share {self.share}"
            return f"seeds: share {self.share} of {SHARES}, {self.origin}; {again} repeats it"
        return "seeds: all" if self.speed == "all" else "seeds: a few of each test; make prove takes all"


#: The choice of this process. pytest makes it before it imports any test.
_chosen = Proof()


class Seeds(Sequence[int]):
    """The seeds that a test runs: ``taken``, out of ``count`` in all."""

    def __init__(self, taken: Sequence[int], count: int, speed: str) -> None:
        self._taken = taken
        self._count = count
        self._speed = speed

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[int]:
        return iter(self._taken)

    def __getitem__(self, place: int) -> int:  # type: ignore[override]  # nobody wants a slice
        return self._taken[place]

    def enough(self, least: int) -> int:
        """Return the floor for these histories, if all histories together have ``least`` events. A share has no
        floor."""
        if self._speed == "share":
            return 0
        of_these = least * len(self._taken) // self._count
        return of_these // HALF if self._speed == "all" else of_these // (2 * HALF)


def draw(proof: Proof, first: int, count: int, few: int) -> Seeds:
    """Return this run's seeds from ``first`` to ``first + count``; for a change the first ``few`` are enough."""
    everything = range(first, first + count)
    if proof.speed == "all":
        return Seeds(everything, count, proof.speed)
    if proof.speed == "change":
        return Seeds(everything[:few], count, proof.speed)
    # Each share has at least one seed, even with fewer seeds than shares.
    return Seeds(everything[proof.share :: SHARES] or [everything[proof.share % count]], count, proof.speed)


def seeds(first: int, count: int, few: int = 1) -> Seeds:
    """See ``draw``."""
    return draw(_chosen, first, count, few)


def some(things: Sequence[Thing], few: int = 1) -> Sequence[Thing]:
    """Choose among a test's few expensive things as among seeds."""
    return [things[place] for place in seeds(0, len(things), few)]


def variants(each: Iterable[tuple[Any, ...]], step: int) -> list[Any]:
    """Return a test's expensive variants as parameters: one in ``step`` for every run, the others for `make prove`."""
    prove = pytest.mark.prove
    return [pytest.param(*values, marks=() if number % step == 0 else prove) for number, values in enumerate(each)]


def examples(count: int, few: int) -> int:
    """Return how many examples Hypothesis draws, out of the ``count`` of a full proof."""
    return count if _chosen.speed == "all" else few


def head(root: Path = ROOT) -> str:
    """Return the commit that is checked out; empty if git knows none."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"], cwd=root, capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def drawn(commit: str) -> tuple[int, str]:
    """Return the share of a commit, and its source for people.

    Raises:
        pytest.UsageError: the text is no commit's name.
    """
    if not commit:
        return 0, "git knows no commit here"
    try:
        return int(commit[:8], 16) % SHARES, f"by commit {commit[:8]}"
    except ValueError:
        raise pytest.UsageError(f"--commit {commit}: a commit's name, in hexadecimal") from None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options. ``tests/conftest.py`` calls this and the functions that follow."""
    parser.addoption(
        "--proof",
        choices=["change", "share", "all"],
        default="change",
        help="which seeds: a few fixed ones, a share drawn from the commit, or all (and the tests marked prove)",
    )
    parser.addoption("--share", type=int, choices=range(SHARES), help=f"of {SHARES}, instead of the commit's")
    parser.addoption("--commit", help=f"take this commit's share, and not that of the one checked out ({VARIABLE})")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the share. With pytest-xdist the controller draws it, and passes it to its processes."""
    global _chosen
    chosen, share = config.getoption("--proof"), config.getoption("--share")
    if hasattr(config, "workerinput"):
        _chosen = Proof(chosen, config.workerinput["share"])
        return
    origin = "as chosen"
    if share is None:
        commit = config.getoption("--commit") or os.environ.get(VARIABLE) or (head() if chosen == "share" else "")
        share, origin = drawn(commit)
    _chosen = Proof(chosen, share, origin)


def pytest_configure_node(node: Any) -> None:
    """Pass the share to a process of pytest-xdist."""
    node.workerinput["share"] = _chosen.share


def pytest_report_header() -> str:
    """Return a line on the seeds."""
    return _chosen.header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that only `make prove` runs."""
    if _chosen.speed == "all":
        return
    only = [item for item in items if item.get_closest_marker("prove")]
    if only:
        config.hook.pytest_deselected(items=only)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]
