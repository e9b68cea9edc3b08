"""Chance for nodes, from a seeded generator of Python's.

Owns nothing but the generator that it is given. Must never seed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from ingeborg.broker.core.overlay.node import Chance

One = TypeVar("One")


class Drawn(Chance):
    """Draws from the generator; several may share one."""

    def __init__(self, generator: Random) -> None:
        self.generator = generator

    def random(self) -> float:
        """See ``Chance``."""
        return self.generator.random()

    def choice(self, some: Sequence[One]) -> One:
        """See ``Chance``."""
        return self.generator.choice(some)

    def sample(self, some: Sequence[One], count: int) -> list[One]:
        """See ``Chance``."""
        return self.generator.sample(some, count)
