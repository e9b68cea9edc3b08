"""The format of a run's log, with tables, columns, types and limits, as bench/SCHEMA.md defines them.

Owns every name and number that the log's writer and its reader must agree on. Must never: use a file or a session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

SCHEMA_VERSION = 2

RUN_FILE = "run.json"
EVENT_FILE = re.compile(r"events-(\d{3})-(\d{4,})\.csv")

PHASE_KINDS = ("connect", "subscribe", "unsubscribe", "search", "run", "sustained", "half", "drain")
ROLES = ("generator", "server", "layer", "host")

SKIPPED = "^[1-9][0-9]{0,9}$"
"""The `detail` of a delivery that replaces other messages: the number of replaced messages, as text. Otherwise the
field is empty, as in all logs that are older than bounds."""

NS_PER_S = 1_000_000_000

OFFSET_S_MAX = 7 * 24 * 3600
"""The greatest distance of a time from the run's start, in seconds. No run lasts a week. Without a limit, a single
damaged number would produce a table of a billion seconds."""

STARTED_NS_MAX = 1 << 62
"""The latest start time that a run may record. The clock counts from the start of the machine, so this allows more than
a century. Times are 64-bit integers, and so are all sums and differences of a time and the limit above."""

CLOSING_S_MAX = 60
"""How long after its last phase a run may still have events, in seconds. Closing the connections takes at most 30 s,
and a fault while closing is an event."""

RAW_CHARS_MAX = 80
"""Maximum number of characters of a rejected line that an error message quotes."""

CORRUPT = "_corrupt"
"""The column in which Spark puts a line that does not fit the schema."""


@dataclass(frozen=True)
class Table:
    """One CSV table of the log. `glob` finds its files in a run's directory. `required` says that every complete run
    has the table."""

    name: str
    glob: str
    columns: StructType
    required: bool

    @property
    def header(self) -> str:
        """Return the exact first line of each of the table's files."""
        return ",".join(self.columns.names)

    def holds(self, file: str) -> bool:
        """Return whether a file of this name belongs to the table."""
        return bool(EVENT_FILE.fullmatch(file)) if self.name == "events" else file == self.glob

    @property
    def parsed(self) -> StructType:
        """Return the columns, and the column for lines that do not fit them."""
        return StructType([*self.columns.fields, StructField(CORRUPT, StringType())])


EVENTS = Table(
    "events",
    "events-*.csv",
    StructType(
        [
            StructField("kind", StringType()),
            StructField("phase", StringType()),
            StructField("connection", LongType()),
            StructField("topic", LongType()),
            StructField("seq", LongType()),
            StructField("intended_ns", LongType()),
            StructField("at_ns", LongType()),
            StructField("value", LongType()),
            StructField("detail", StringType()),
        ]
    ),
    required=True,
)

PHASES = Table(
    "phases",
    "phases.csv",
    StructType(
        [
            StructField("phase", StringType()),
            StructField("kind", StringType()),
            StructField("start_ns", LongType()),
            StructField("end_ns", LongType()),
            StructField("measured", LongType()),
            StructField("offered_per_s", DoubleType()),
            StructField("amount", LongType()),
            StructField("detail", StringType()),
        ]
    ),
    required=True,
)

MACHINE = Table(
    "machine",
    "machine.csv",
    StructType(
        [
            StructField("at_ns", LongType()),
            StructField("source", StringType()),
            StructField("role", StringType()),
            StructField("cpu_s", DoubleType()),
            StructField("rss_bytes", LongType()),
            StructField("anon_bytes", LongType()),
            StructField("net_rx_bytes", LongType()),
            StructField("net_tx_bytes", LongType()),
            StructField("disk_read_bytes", LongType()),
            StructField("disk_write_bytes", LongType()),
        ]
    ),
    required=False,
)

COUNTERS = Table(
    "counters",
    "counters.csv",
    StructType(
        [
            StructField("at_ns", LongType()),
            StructField("phase", StringType()),
            StructField("source", StringType()),
            StructField("name", StringType()),
            StructField("value", DoubleType()),
        ]
    ),
    required=False,
)

TABLES = (EVENTS, PHASES, MACHINE, COUNTERS)

RUN_COLUMNS = (StructField("run", IntegerType()), StructField("started_ns", LongType()))
"""Columns of every row that identify its run: the run's number among the runs of this job, and the time of the run's
beginning. (A number is cheaper to shuffle and compare than the run's id, which is a text.)"""

POSITION = ("file", "block", "line")
"""The position of a row. Within a file, the order by these columns is the order of lines."""

PLACED = (StructField("file", IntegerType()), StructField("block", LongType()), StructField("line", LongType()))
"""The columns of POSITION with their types."""

KEPT = StorageLevel.MEMORY_AND_DISK
"""The storage level of frames that are read more than once. Rows are serialized and compressed together, and go to disk
if memory is full. An event takes 30 bytes. Compressing each column separately would take as much space, and twice the
time of parsing."""

CURVE_PPM = tuple(sorted({round(1_000_000 * (1 - 10 ** (-step / 10))) for step in range(51)}))
"""The points of the percentile curve, evenly spaced in log(1 - p). Each further nine (90 %, 99 % …) has ten points, up
to 99.999 %."""

BUCKETS_PER_DECADE = 20
"""Resolution of the histograms. A bucket is 12 % wide, which bounds the error of every figure that is read from a
histogram."""

FINE = 64
"""Number of parts into which a bucket is divided to find a percentile. A part is 0.2 % wide, so that few rows are left
to rank one by one. The number is a power of two. So a latency's part always lies in the latency's bucket, independent
of how the logarithm is rounded."""

EXACT_DELIVERIES_MAX = 10_000_000
"""If a run has at most this number of deliveries, the percentiles of its phases are exact (SCHEMA.md)."""

SKETCH_ACCURACY = 1_000_000
"""For larger runs, a Greenwald-Khanna sketch of this accuracy gives the percentiles. The rank of each percentile
deviates from the exact rank by at most a millionth of the number of deliveries, so that p99.999 is still meaningful. A
coarser sketch would take the same time. A finer sketch of about ten million values would be as large as the values."""
