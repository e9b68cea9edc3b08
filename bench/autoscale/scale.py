"""The scale of the experiments compared with the experiments of the document (arXiv 2402.06085).

Owns: the numbers of the scale. Must never: let an experiment use another scale, because results of two scales must not
mix.

One measured second corresponds to ``TIME`` seconds in the document. Bytes per second are scaled so that 32 members
together need less than one core. So a member is limited by its own throttle (to ``CONSUMED``), and not by the machine.
"""

from __future__ import annotations

from typing import Final

#: Seconds in the document for each measured second.
TIME: Final = 10.0

PARTITIONS: Final = 32
#: Change between two measurements of a stream, in per cent of C (table III, and the document's comparison of
#: latencies).
DELTA: Final = 5.0
#: How long a measurement of a stream lasts (section VI-C), in scaled seconds.
ITERATION_S: Final = 30.0 / TIME

#: A member's highest rate (C̄ in section VI-C), in bytes per second of keys and values.
CONSUMED: Final = 100_000.0
#: A partition's highest rate (C = 5/6 C̄).
MOST: Final = CONSUMED * 5 / 6

#: Bytes of each record's value. Records have no key.
RECORD_BYTES: Final = 2_000
#: Bytes that Kafka adds to each record in its log, where each batch has one record and is not compressed.
OVERHEAD_BYTES: Final = 73

#: The document's consumer sends a batch when it has 5 MB, or after one second. It reads 2.3 MB per second (section
#: VI-F).
BATCH_BYTES: Final = int(CONSUMED * 5.0 / 2.3 / TIME)
WAIT_S: Final = 1.0 / TIME
#: Amount of data in one fetch from one partition, as the number of seconds that a member at full speed needs to read
#: it.
PORTION_S: Final = 0.1

#: Numbers of members for Kafka's own assignments. The smallest number is about what the document's packing needs on
#: average, and the largest number gives each partition its own member.
COUNTS: Final = (18, 22, 27, 32)
#: Unread records that KEDA's rule allows each member. A member reads the first number of records in one second, and the
#: second number in three seconds.
LAGS: Final = (50, 150)
SEEDS: Final = 5
#: Number of measurements of a stream, which cover 180 s.
ITERATIONS: Final = 60

#: The load of figure 14 in bytes per second, and how long each value lasts, in seconds. Each value lasts longer than
#: the monitor's window.
STEP_RATES: Final = (50_000.0, 100_000.0, 50_000.0, 100_000.0, 50_000.0)
STEP_S: Final = 40.0

#: Step of figure 13's histogram, in bytes per second. In the other histograms, this many steps cover a factor of ten.
SAMPLE_BYTES: Final = 10_000_000
STEPS_TO_TEN: Final = 5
#: Window for latencies over time, in seconds.
WINDOW_S: Final = 3
