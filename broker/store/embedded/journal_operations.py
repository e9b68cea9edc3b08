"""A writer process's changes to the journal of retained messages.

Owns: the changes that each operation makes within the caller's transaction. Must never: begin or commit a transaction,
raise a ``StoreError``, lower the greatest stamp, or lower a floor (except for ``VOID`` if the slot becomes complete).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lmdb
import ormsgpack

from ingeborg.broker.store.embedded.journal import EPOCHS, TOP, VOID_FLOOR, epochs_in, pack_stamp, present, top_in
from ingeborg.broker.store.embedded.layout import Environment
from ingeborg.broker.store.embedded.now import SLOT_BYTES
from ingeborg.broker.store.embedded.slices import value_of


class JournalOperations:
    """Changes the three databases of the journal. A transaction changes all three or none."""

    def __init__(self, environment: Environment) -> None:
        self._kept, self._floors = environment.db["kept"], environment.db["kept_floors"]
        self._about = environment.db["kept_about"]

    def keep(self, txn: lmdb.Transaction, argument: Sequence[Any]) -> list[Any]:
        """Write entries, delete entries, raise floors, and record the greatest stamp, in this order. The argument is a
        ``Frame``."""
        entries, forgotten, floors, slots = argument
        whole = frozenset(slots)
        with txn.cursor(self._kept) as cursor:
            cursor.putmulti([(key, value) for key, value in entries])
        for key in forgotten:
            txn.delete(key, db=self._kept)
        for slot, floor in floors:
            self._raise_floor(txn, slot, floor, slot in whole)
        stamps = [
            *(key[SLOT_BYTES:] for key, _ in entries),
            *(key[SLOT_BYTES:] for key in forgotten),
            *(floor for _, floor in floors if floor != VOID_FLOOR),
        ]
        if stamps:
            self._raise_top(txn, max(stamps))
        return []

    def reach(self, txn: lmdb.Transaction, argument: tuple[list[str], bytes]) -> list[Any]:
        """Record the current epochs, and the greatest stamp that their positions may have. Return the past epochs and
        the greatest stamp."""
        epochs, stamp = argument
        held = epochs_in(txn, self._about)
        if (recorded := present(held, epochs, top_in(txn, self._about))) != held:
            txn.put(EPOCHS, ormsgpack.packb(list(recorded.items())), db=self._about)
        self._raise_top(txn, stamp)
        past = [[epoch, ended] for epoch, ended in recorded.items() if ended is not None]
        return [past, pack_stamp(top_in(txn, self._about))]

    # Stamps have equal lengths, so their bytes compare as the numbers do. ``VOID`` is greater than every stamp.

    def _raise_floor(self, txn: lmdb.Transaction, slot: bytes, floor: bytes, is_whole: bool) -> None:
        held = value_of(txn, slot, self._floors)
        if held is None or held < floor or (held == VOID_FLOOR and is_whole):
            txn.put(slot, floor, db=self._floors)

    def _raise_top(self, txn: lmdb.Transaction, stamp: bytes) -> None:
        held = value_of(txn, TOP, self._about)
        if held is None or held < stamp:
            txn.put(TOP, stamp, db=self._about)
