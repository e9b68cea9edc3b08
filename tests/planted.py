"""Faults that are put in on purpose and have to be found: what the tests prove is what no fault gets past.

Owns: the list of them, ``python -m tests.planted``, and how a fault is looked for. Must never: plant one.

A test that finds some is marked ``planted``, with what is planted: a function or a class whose docstring says what is
wrong, or a sentence. Where histories find it, the seed of one that does is known, and is the first to be tried.
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
    """A fault is found by another seed than the one that is known."""


def finds(plant: Any, seed: int | None = None) -> pytest.MarkDecorator:
    """The mark of a test that finds this."""
    return pytest.mark.planted.with_args(plant, seed=seed)


def fault(plant: Any, *values: Any, seed: int | None = None, id: str | None = None) -> Any:
    """A set of a test's parameters: what is planted, ``values``, and then the seed, where there is one."""
    seeds = () if seed is None else (seed,)
    return pytest.param(plant, *values, *seeds, marks=finds(plant, seed), id=id or getattr(plant, "__name__", None))


def what_of(plant: Any) -> str:
    """What is wrong, in words."""
    return plant if isinstance(plant, str) else " ".join((plant.__doc__ or "").split())


def search(plant: Any, known: int, others: Iterable[int], found: Callable[[int], object]) -> None:
    """Raises ``AssertionError`` where no history finds the fault. The known seed comes first: a change of the core may
    have moved the fault to another one, which is said then."""
    if found(known):
        return
    for seed in others:
        if seed != known and found(seed):
            text = f"seed {known} does not find it any longer, and seed {seed} does; write that down: {what_of(plant)}"
            warnings.warn(MovedWarning(text), stacklevel=2)
            return
    raise AssertionError(f"not found: {what_of(plant)}")


class Planted(NamedTuple):
    """``test``: the node id of the test that finds it."""

    name: str
    what: str
    seed: int | None
    test: str

    def line(self) -> str:
        """For people, and for `tests/frame`."""
        seed = "" if self.seed is None else f" (seed {self.seed})"
        return f"{self.test}{seed}\n    {self.name + ': ' if self.name else ''}{self.what}"


def planted(item: pytest.Item) -> Planted | None:
    """What a test finds, if it is marked."""
    marker = item.get_closest_marker("planted")
    if marker is None:
        return None
    [what] = marker.args
    return Planted(getattr(what, "__name__", ""), what_of(what), marker.kwargs.get("seed"), item.nodeid)


class Listing:
    """The plugin that keeps what has been collected."""

    def __init__(self) -> None:
        self.found: list[Planted] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All of it."""
        self.found = [one for item in session.items if (one := planted(item)) is not None]


def files() -> list[Path]:
    """Those that may have such a test."""
    return sorted(path for path in HERE.rglob("test_*.py") if "planted" in path.read_text(encoding="utf-8"))


def main() -> int:
    """A test and its seed, and in the next line what it finds."""
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
