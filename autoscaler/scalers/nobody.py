"""No scaler: something else runs the members, for example KEDA by the metric of wanted members, or a person.

Owns: nothing. Must never: report how many run, because it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence


class NobodyScaler:
    """Accepts every order and ignores it."""

    async def running(self) -> None:
        """Return ``None``: this is never known."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Do nothing: the operator, or KEDA, reads the wanted number."""

    async def close(self) -> None:
        """Do nothing: the scaler holds no resources."""
