"""A process that reads a lane of the embedded store from end to end: ``python -m ingeborg.broker.command.doctor.reading
DIR LANE MAP``.

Owns: the reading, and one line of JSON about it on standard output. Must never: write to the store, or run within
another process, because LMDB has no checksums, and a damaged page can kill the process that reads it. The doctor
notices if this process dies.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from ...store.base import StoreError
from ...store.embedded.layout import Lane, open_for_reading

#: Time limit for reading, in seconds. The process skips the rest of a store with more than about ten million entries.
READ_S = 8.0

#: The number of entries in a batch. The process reads the clock after each batch. Each batch has its own transaction,
#: so that LMDB can reuse pages that writers free meanwhile.
ENTRIES_AT_ONCE = 20_000


def main(arguments: list[str]) -> int:
    """Read the lane, and return the exit code: 0 if it was read, 1 if reading failed."""
    directory, lane, map_size_bytes = Path(arguments[0]), Lane(arguments[1]), int(arguments[2])
    until = time.monotonic() + READ_S
    entries, whole = 0, True
    try:
        environment = open_for_reading(directory, lane, map_size_bytes)
        for name in environment.db:  # the existing databases
            after: bytes | None = None  # the last key read
            while whole:
                with environment.begin() as txn, txn.cursor(environment.db[name]) as cursor:
                    found = cursor.first() if after is None else cursor.set_range(after)
                    if found and cursor.key() == after:
                        found = cursor.next_nodup()
                    count = 0
                    # All entries of a key are in one batch, because the next batch cannot start in the middle of a key.
                    while found and count < ENTRIES_AT_ONCE:
                        after = bytes(cursor.key())
                        count += sum(1 for _ in cursor.iternext_dup())
                        found = cursor.next_nodup()
                entries += count
                if not found:
                    break
                whole = time.monotonic() < until
    except Exception as failure:  # the doctor reports every kind of failure
        print(json.dumps({"error": str(failure) if isinstance(failure, StoreError) else repr(failure)}), flush=True)
        os._exit(1)
    print(json.dumps({"entries": entries, "whole": whole}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
