"""How much of the seeds a run of the tests takes: what a change needs, a share of them, or all.

Owns: ``--proof``, which seeds a test gets, how much has to happen in their histories, and the tests that only
`make prove` runs. Must never: know what a history is.

- ``change`` (`make test`): a few fixed seeds of each test. What happens in them is known, so floors hold by far.
- ``share`` (CI's compiled slice): one seed in ``SHARES``, drawn from the commit, so that a week of commits has all.
  It asks for no floor: how much happens in so few histories depends on which they are.
- ``all`` (`make prove`): every seed, and the tests that are marked ``prove``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]

#: In so many runs, of as many commits that lie well, every seed has had its turn.
SHARES: Final = 8

#: A commit, instead of the one that is checked out.
VARIABLE: Final = "INGEBORG_TEST_COMMIT"

#: A floor is half of what a test says happens in all of its seeds; of few seeds half of that, for they differ more.
HALF: Final = 2


Thing = TypeVar("Thing")


class Proof(NamedTuple):
    """``share``: of ``SHARES``, from 0; ``origin``: where it comes from, for people."""

    speed: str = "change"
    share: int = 0
    origin: str = ""

    def header(self) -> str:
        """A line of pytest's header."""
        if self.speed == "share":
            again = f"--proof share --share {self.share}"
            return f"seeds: share {self.share} of {SHARES}, {self.origin}; {again} repeats it"
        return "seeds: all" if self.speed == "all" else "seeds: a few of each test; make prove takes all"


#: What this process runs. pytest says so before it imports any test.
_chosen = Proof()


class Seeds(Sequence[int]):
    """``taken``: those of ``count`` in all that a test is to run."""

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
        """How much of something has to be in these histories, of which there is ``least`` in all of them. Of a share
        nothing is asked."""
        if self._speed == "share":
            return 0
        of_these = least * len(self._taken) // self._count
        return of_these // HALF if self._speed == "all" else of_these // (2 * HALF)


def draw(proof: Proof, first: int, count: int, few: int) -> Seeds:
    """The seeds of ``first`` to ``first + count`` that this run takes; the first ``few`` of them do for a change."""
    everything = range(first, first + count)
    if proof.speed == "all":
        return Seeds(everything, count, proof.speed)
    if proof.speed == "change":
        return Seeds(everything[:few], count, proof.speed)
    # Each share has one at least, where there are fewer seeds than shares, too.
    return Seeds(everything[proof.share :: SHARES] or [everything[proof.share % count]], count, proof.speed)


def seeds(first: int, count: int, few: int = 1) -> Seeds:
    """See ``draw``."""
    return draw(_chosen, first, count, few)


def some(things: Sequence[Thing], few: int = 1) -> Sequence[Thing]:
    """As with seeds: those of a test's few dear things that this run takes."""
    return [things[place] for place in seeds(0, len(things), few)]


def variants(each: Iterable[tuple[Any, ...]], step: int) -> list[Any]:
    """Parameters of a test of dear variants: one in ``step`` is for every run, the others are for `make prove`."""
    prove = pytest.mark.prove
    return [pytest.param(*values, marks=() if number % step == 0 else prove) for number, values in enumerate(each)]


def examples(count: int, few: int) -> int:
    """How many examples Hypothesis is to draw, of the ``count`` of a full proof."""
    return count if _chosen.speed == "all" else few


def head(root: Path = ROOT) -> str:
    """The commit that is checked out; empty where git does not know one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"], cwd=root, capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def drawn(commit: str) -> tuple[int, str]:
    """The share of a commit, and where it comes from. Raises ``pytest.UsageError`` where that is no commit's name."""
    if not commit:
        return 0, "git knows no commit here"
    try:
        return int(commit[:8], 16) % SHARES, f"by commit {commit[:8]}"
    except ValueError:
        raise pytest.UsageError(f"--commit {commit}: a commit's name, in hexadecimal") from None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by ``tests/conftest.py``, as what follows."""
    parser.addoption(
        "--proof",
        choices=["change", "share", "all"],
        default="change",
        help="which seeds: a few fixed ones, a share drawn from the commit, or all (and the tests marked prove)",
    )
    parser.addoption("--share", type=int, choices=range(SHARES), help=f"of {SHARES}, instead of the commit's")
    parser.addoption("--commit", help=f"whose share it is to be, instead of the one that is checked out ({VARIABLE})")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the share. With pytest-xdist the controller does, and its processes hear which it has drawn."""
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
    """Tell a process of pytest-xdist's."""
    node.workerinput["share"] = _chosen.share


def pytest_report_header() -> str:
    """Which seeds they are."""
    return _chosen.header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without what only `make prove` runs."""
    if _chosen.speed == "all":
        return
    only = [item for item in items if item.get_closest_marker("prove")]
    if only:
        config.hook.pytest_deselected(items=only)
        items[:] = [item for item in items if not item.get_closest_marker("prove")]
