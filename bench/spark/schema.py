"""The shape of a run's log: tables, columns, types and limits, as bench/SCHEMA.md defines them.

Owns every name and number that the log's writer and its reader must agree on. It never touches a file or a session.
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
"""The `detail` of a delivery that stands for others: how many, as text. Without any the field is empty, as in logs of a
time before bounds."""

NS_PER_S = 1_000_000_000

OFFSET_S_MAX = 7 * 24 * 3600
"""The greatest distance of a time from the run's start, in seconds. No run lasts a week; without a limit one damaged
number would produce a table of a billion seconds."""

STARTED_NS_MAX = 1 << 62
"""A century of a clock that begins with its machine. Times are 64-bit integers, and so are all sums and differences of
one and the above."""

CLOSING_S_MAX = 60
"""How long after its last phase a run may still have events, in seconds: closing connections takes 30 at most, and a
fault of one is then an event."""

RAW_CHARS_MAX = 80
"""The most bytes of a rejected line that an error message quotes."""

CORRUPT = "_corrupt"
"""Column in which Spark leaves a line that does not fit the schema."""


@dataclass(frozen=True)
class Table:
    """One CSV table of the log. `glob` finds its files in a run's directory; `required`: a complete run has it."""

    name: str
    glob: str
    columns: StructType
    required: bool

    @property
    def header(self) -> str:
        """The first line of each of the table's files, to the byte."""
        return ",".join(self.columns.names)

    def holds(self, file: str) -> bool:
        """Whether a file of this name is one of the table's."""
        return bool(EVENT_FILE.fullmatch(file)) if self.name == "events" else file == self.glob

    @property
    def parsed(self) -> StructType:
        """The columns, and the one for lines that do not fit them."""
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
"""Columns about its run in every row: the run's number among the runs of this job (a word to shuffle and to compare,
while its id is a text), and its beginning."""

POSITION = ("file", "block", "line")
"""The position of a row: ordering by these three is the order of lines in one file."""

PLACED = (StructField("file", IntegerType()), StructField("block", LongType()), StructField("line", LongType()))
"""The same, with types."""

KEPT = StorageLevel.MEMORY_AND_DISK
"""The storage level of frames that are read more than once: serialized, compressed in one piece, and on disk beyond the
memory. 30 bytes an event; columns compressed one by one would take as much, and twice the time of parsing to make."""

CURVE_PPM = tuple(sorted({round(1_000_000 * (1 - 10 ** (-step / 10))) for step in range(51)}))
"""The points of the percentile curve, evenly spaced in log(1 - p): ten to each further nine, up to 99.999 %."""

BUCKETS_PER_DECADE = 20
"""Resolution of the histograms: a bucket is 12 % wide, which bounds the error of anything read from them."""

FINE = 64
"""Parts of a bucket in which a percentile is searched: 0.2 % wide, so that few rows are left to rank one by one. A
power of two, so that a latency's fine bucket lies in its bucket with any rounding."""

EXACT_DELIVERIES_MAX = 10_000_000
"""Up to this number of deliveries in a run, the percentiles of its phases are exact (SCHEMA.md)."""

SKETCH_ACCURACY = 1_000_000
"""Above, a Greenwald-Khanna sketch of this accuracy gives them: the rank of each is within a millionth of the number
of deliveries from the exact one, so that p99.999 still means something. A coarser sketch takes the same time; a finer
one of some ten million values would be as large as they are."""
