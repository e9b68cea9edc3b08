"""Named parts of a plan. A user can choose parts, for example to repeat a single experiment.

Owns: the choice of parts by their names. Must never: know what a part does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ingeborg.bench.errors import UsageError


class Part(NamedTuple):
    """A part of a plan. ``text`` is one sentence that says what the part measures."""

    name: str
    text: str


def chosen(parts: Sequence[Part], only: Collection[str]) -> list[str]:
    """Return the names of the chosen parts, in the order of the plan. An empty ``only`` chooses all parts. Raises
    ``UsageError`` if a name is unknown."""
    names = [part.name for part in parts]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise UsageError(f"--only does not know {', '.join(unknown)}: choose from {', '.join(names)}")
    return [name for name in names if name in only or not only]
