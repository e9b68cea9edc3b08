"""The source of random numbers for nodes: one of Python's generators, with a seed.

Owns: only its generator. Must never: seed the generator itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from ingeborg.broker.core.overlay.node import Chance

One = TypeVar("One")


class Drawn(Chance):
    """Draws from a generator, which several nodes can share."""

    def __init__(self, generator: Random) -> None:
        self.generator = generator

    def random(self) -> float:
        """Draw a number; see ``Chance``."""
        return self.generator.random()

    def choice(self, some: Sequence[One]) -> One:
        """Draw one element; see ``Chance``."""
        return self.generator.choice(some)

    def sample(self, some: Sequence[One], count: int) -> list[One]:
        """Draw several elements; see ``Chance``."""
        return self.generator.sample(some, count)
