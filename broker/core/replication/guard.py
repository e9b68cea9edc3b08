"""A message waits until its slot's standby has it: then the crash of this home loses and doubles nothing. ADR 23.

Owns: which messages wait for that. Must never: hand one over, or know who the standby is.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..cluster.standby import Standbys
from ..dispatch import Handover
from ..links.carrying import arrived, carried
from .kept import MESSAGE_BYTES, KeptMessages


class Guard:
    """One home's."""

    def __init__(self, kept: KeptMessages, standbys: Standbys) -> None:
        self.kept = kept
        self._standbys = standbys
        #: Are there to be standbys?
        self.on = standbys.on
        self.names = kept.names
        #: By key, what is being handed over; empty where there are no standbys.
        self.under_way = kept.under_way

    def begin(self, handover: Handover, key: int) -> None:
        """It is handed over from here on, and waits first, if there is a standby."""
        self.name(handover, key)
        self.keep(handover, key)

    def name(self, handover: Handover, key: int) -> None:
        """By which name it is handed over."""
        message = handover.message
        identity = self.kept.identities.get(key)
        if identity is not None:
            # A message with this key is waiting to be tried again. Those who have had that must not get this one. Its
            # publish keeps its own, for a home that it may have to go to.
            said = replace(carried(message), origin=identity[0], number=identity[1])
            message = handover.message = arrived(said, message.received)
        self.under_way[key] = message

    def keep(self, handover: Handover, key: int) -> None:
        """Have its standby know of it."""
        size = MESSAGE_BYTES + len(handover.message.payload)
        handover.guarded += self._standbys.keep(self.kept, handover.slot, key, size, handover)

    def take_kept(self) -> list[Handover]:
        """Messages that need not wait for their standby any more, and wait for nothing else."""
        kept, self.kept.confirmed = self.kept.confirmed, []
        go_on: list[Handover] = []
        for handover in kept:
            handover.guarded -= 1
            if not handover.guarded:
                go_on.append(handover)
        return go_on
