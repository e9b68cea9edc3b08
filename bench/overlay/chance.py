"""Chance for nodes, from a seeded generator of Python's.

Owns: only its generator. Must never: seed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from ingeborg.broker.core.overlay.node import Chance

One = TypeVar("One")


class Drawn(Chance):
    """Draws from the generator; several nodes can share one."""

    def __init__(self, generator: Random) -> None:
        self.generator = generator

    def random(self) -> float:
        """Draw a number; see ``Chance``."""
        return self.generator.random()

    def choice(self, some: Sequence[One]) -> One:
        """Draw one; see ``Chance``."""
        return self.generator.choice(some)

    def sample(self, some: Sequence[One], count: int) -> list[One]:
        """Draw several; see ``Chance``."""
        return self.generator.sample(some, count)
