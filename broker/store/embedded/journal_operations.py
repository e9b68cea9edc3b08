"""What a writer process does to the journal of kept messages.

Owns: the changes each operation makes within a transaction it is given. Must never: begin or commit one, raise a
``StoreError``, or lower a floor or the greatest stamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lmdb
import ormsgpack

from ingeborg.broker.store.embedded.endings import value_of
from ingeborg.broker.store.embedded.journal import LINES, TOP, lines_in, pack_stamp, present, top_in
from ingeborg.broker.store.embedded.layout import Environment
from ingeborg.broker.store.embedded.now import SLOT_BYTES


class JournalOperations:
    """The three databases; a transaction changes all of them or none."""

    def __init__(self, environment: Environment) -> None:
        self._kept, self._floors = environment.db["kept"], environment.db["kept_floors"]
        self._about = environment.db["kept_about"]

    def keep(self, txn: lmdb.Transaction, argument: Sequence[Any]) -> list[Any]:
        """Write, then delete, raise floors, record the greatest stamp; the argument is a ``Frame``."""
        entries, forgotten, floors = argument
        with txn.cursor(self._kept) as cursor:
            cursor.putmulti([(key, value) for key, value in entries])
        for key in forgotten:
            txn.delete(key, db=self._kept)
        for slot, stamp in floors:
            self._raise(txn, self._floors, slot, stamp)
        stamps = [
            *(key[SLOT_BYTES:] for key, _ in entries),
            *(key[SLOT_BYTES:] for key in forgotten),
            *(stamp for _, stamp in floors),
        ]
        if stamps:
            self._raise(txn, self._about, TOP, max(stamps))
        return []

    def reach(self, txn: lmdb.Transaction, argument: tuple[list[str], bytes]) -> list[Any]:
        """Record the present lines, and that they go so far. Returns the past ones, and the greatest stamp."""
        lines, stamp = argument
        held = lines_in(txn, self._about)
        if (recorded := present(held, lines, top_in(txn, self._about))) != held:
            txn.put(LINES, ormsgpack.packb(list(recorded.items())), db=self._about)
        self._raise(txn, self._about, TOP, stamp)
        past = [[line, ended] for line, ended in recorded.items() if ended is not None]
        return [past, pack_stamp(top_in(txn, self._about))]

    def _raise(self, txn: lmdb.Transaction, database: Any, key: bytes, stamp: bytes) -> None:
        """Stamps are of one length, so that their bytes compare as they do."""
        held = value_of(txn, key, database)
        if held is None or held < stamp:
            txn.put(key, stamp, db=database)
