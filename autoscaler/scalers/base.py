"""The interface of a scaler: reports the running members, and takes the wanted number.

Owns: the contract, and its errors. Must never: know an implementation.

``tests/autoscaler/scalers/contract.py`` tests every scaler that can list its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class ScalerError(Exception):
    """The scaler could not carry out an order or answer a question. The text is for the operator: what failed, and what
    to do. The controller asks again."""


@dataclass(frozen=True, slots=True)
class Running:
    """The members that the scaler runs, started or about to start. ``names``: in no order; ``None``: the scaler knows
    only their number. ``count``: their number. A member that was ordered to end no longer counts, even while it still
    runs: the scaler may start another for it."""

    count: int
    names: frozenset[str] | None


class Scaler(Protocol):
    """Runs members. A member's name is the one in its ``hello``."""

    async def running(self) -> Running | None:
        """Return the running members. ``None``: this scaler never knows, and the controller relies on members' beats
        alone. Raises ``ScalerError``."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Order ``count`` members to run. ``leaving``: members with no work left; if too many run, the scaler ends
        these, in their order. It never ends any other member: if ``leaving`` has too few, more than ``count`` keep
        running. The scaler ignores unknown names. The call returns once the order is given, before it is carried out.
        Repeating an order changes nothing. Raises ``ScalerError``; part of the order may then have been given."""

    async def close(self) -> None:
        """Release all resources. Members keep running."""
