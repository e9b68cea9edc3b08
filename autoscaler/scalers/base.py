"""The interface of a scaler, which reports the running members and carries out orders for the number of members.

Owns: the contract, and its errors. Must never: depend on an implementation.

``tests/autoscaler/scalers/contract.py`` tests every scaler that can list its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class ScalerError(Exception):
    """The scaler could not carry out an order or answer a question. The error message tells the operator what failed
    and what to do. The controller tries again."""


@dataclass(frozen=True, slots=True)
class Running:
    """The members that the scaler runs or is about to start. ``count``: their number. ``names``: their names, or
    ``None`` if the scaler knows only their number. A member that was ordered to end no longer counts, even while it
    still runs, because the scaler may already start another member in its place."""

    count: int
    names: frozenset[str] | None


class Scaler(Protocol):
    """Runs members. A member's name is the name in its ``Hello``."""

    async def running(self) -> Running | None:
        """Return the running members. A scaler that can never know them returns ``None``, and the controller then
        relies on the members' beats alone. Raises ``ScalerError``."""

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Order that ``count`` members run. ``leaving``: members with no work left. If too many members run, the scaler
        ends members from this list, in its order. It never ends any other member, so if the list is too short, more
        than ``count`` members keep running. The scaler ignores unknown names. The call returns as soon as the order is
        given, before it is carried out. Repeating an order changes nothing. Raises ``ScalerError``. After this error,
        part of the order may nevertheless have been given."""

    async def close(self) -> None:
        """Release all resources. Members keep running."""
