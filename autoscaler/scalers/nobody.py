"""No scaler: somebody else runs members. KEDA may, by the metric that says how many are wanted, or a person.

Owns: nothing. Must never: say how many run, which is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence


class NobodyScaler:
    """Takes every order and gives none."""

    async def running(self) -> None:
        """Not known, ever."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Nothing is done: whoever runs members reads what is wanted for himself."""

    async def close(self) -> None:
        """Nothing is held."""
