"""Faults that tests plant on purpose and have to find: the tests prove only the properties that no fault survives.

Owns: the list of faults, ``python -m tests.planted``, and the search for a fault. Must never: plant one.

A test that finds faults has the mark ``planted``, with the fault: a function or a class whose docstring describes it,
or a sentence. If histories find a fault, the test names the seed of one that does, and tries that seed first.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent


class MovedWarning(UserWarning):
    """Another seed than the known one finds a fault."""


def finds(plant: Any, seed: int | None = None) -> pytest.MarkDecorator:
    """Return the mark of a test that finds this fault."""
    return pytest.mark.planted.with_args(plant, seed=seed)


def fault(plant: Any, *values: Any, seed: int | None = None, id: str | None = None) -> Any:
    """Return a set of a test's parameters: the fault, ``values``, and then the seed, if any."""
    seeds = () if seed is None else (seed,)
    return pytest.param(plant, *values, *seeds, marks=finds(plant, seed), id=id or getattr(plant, "__name__", None))


def what_of(plant: Any) -> str:
    """Return the fault's description."""
    return plant if isinstance(plant, str) else " ".join((plant.__doc__ or "").split())


def search(plant: Any, known: int, others: Iterable[int], found: Callable[[int], object]) -> None:
    """Search the histories for the fault, first the one of the known seed. A change of the core may have moved the
    fault to another seed; then this warns.

    Raises:
        AssertionError: no history finds the fault.
    """
    if found(known):
        return
    for seed in others:
        if seed != known and found(seed):
            text = f"seed {known} no longer finds it, but seed {seed} does; change the test: {what_of(plant)}"
            warnings.warn(MovedWarning(text), stacklevel=2)
            return
    raise AssertionError(f"not found: {what_of(plant)}")


class Planted(NamedTuple):
    """A planted fault. ``test``: the node id of the test that finds it."""

    name: str
    what: str
    seed: int | None
    test: str

    def line(self) -> str:
        """Format it for people, and for `tests/frame`."""
        seed = "" if self.seed is None else f" (seed {self.seed})"
        return f"{self.test}{seed}\n    {self.name + ': ' if self.name else ''}{self.what}"


def planted(item: pytest.Item) -> Planted | None:
    """Return the fault that a marked test finds, or ``None``."""
    marker = item.get_closest_marker("planted")
    if marker is None:
        return None
    [what] = marker.args
    return Planted(getattr(what, "__name__", ""), what_of(what), marker.kwargs.get("seed"), item.nodeid)


class Listing:
    """The plugin that keeps the collected faults."""

    def __init__(self) -> None:
        self.found: list[Planted] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the faults of all collected tests."""
        self.found = [one for item in session.items if (one := planted(item)) is not None]


def files() -> list[Path]:
    """Return the files that may have such a test."""
    return sorted(path for path in HERE.rglob("test_*.py") if "planted" in path.read_text(encoding="utf-8"))


def main() -> int:
    """Print each test and its seed, and in the next line its fault."""
    listing, said = Listing(), io.StringIO()
    with contextlib.redirect_stdout(said):
        arguments = ["--collect-only", "-qq", "-p", "no:cacheprovider", "--proof", "all", *map(str, files())]
        status = pytest.main(arguments, plugins=[listing])
    if status != pytest.ExitCode.OK:
        print(said.getvalue(), file=sys.stderr)
    for one in listing.found:
        print(one.line())
    print(f"{len(listing.found)} planted faults")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
