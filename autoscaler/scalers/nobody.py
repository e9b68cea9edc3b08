"""The scaler for members that somebody else runs: for example KEDA, which reads the metric of wanted members, or a
person.

Owns: nothing. Must never: report how many members run, because it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence


class NobodyScaler:
    """Accepts every order and ignores it."""

    async def running(self) -> None:
        """Return ``None``, because this scaler never knows which members run."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Do nothing, because KEDA or the operator reads the wanted number."""

    async def close(self) -> None:
        """Do nothing, because the scaler holds no resources."""
