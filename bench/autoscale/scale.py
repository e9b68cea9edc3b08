"""The scale of the experiments compared with the document's (arXiv 2402.06085).

Owns: these numbers. Must never: take another value from a row: results of two scales must not mix.

Seconds of the document are ``TIME`` times as long as the measured ones. Bytes per second are scaled so that 32 members
together need less than a core: a member's own throttle limits it to ``CONSUMED``, not the machine.
"""

from __future__ import annotations

from typing import Final

#: Seconds in the document for each measured second.
TIME: Final = 10.0

PARTITIONS: Final = 32
#: Change between two measurements of a stream, in per cent of C (table III, and the document's comparison of
#: latencies).
DELTA: Final = 5.0
#: How long a measurement of a stream holds (section VI-C), in seconds here.
ITERATION_S: Final = 30.0 / TIME

#: A member's highest rate (C̄ in section VI-C), in bytes per second of keys and values.
CONSUMED: Final = 100_000.0
#: A partition's highest rate (C = 5/6 C̄).
MOST: Final = CONSUMED * 5 / 6

#: Bytes of each record's value; it has no key.
RECORD_BYTES: Final = 2_000
#: Bytes that Kafka adds to it in the log: a batch of one record, without compression.
OVERHEAD_BYTES: Final = 73

#: The document's consumer sends after 5 MB, of which it reads 2.3 MB per second, or after a second (section VI-F).
BATCH_BYTES: Final = int(CONSUMED * 5.0 / 2.3 / TIME)
WAIT_S: Final = 1.0 / TIME
#: Amount of data fetched at once from one partition, as seconds of reading.
PORTION_S: Final = 0.1

#: Numbers of members of Kafka's own assignments: from about what the document's packing needs on average, up to one for
#: each partition.
COUNTS: Final = (18, 22, 27, 32)
#: Records that KEDA's rule lets each member be behind: one second's work of a member, and three.
LAGS: Final = (50, 150)
SEEDS: Final = 5
#: Number of measurements of a stream, which cover 180 s.
ITERATIONS: Final = 60
