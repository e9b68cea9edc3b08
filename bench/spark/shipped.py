"""The part of the causal check that runs in Python on the executors. It turns Arrow batches into Arrow batches.

Owns the columns that the job sends to executors and receives from them. Must never: import a module that an executor
lacks. The job (`run`) sends this module and bench.causality, so a worker needs Python and pyarrow, but not this
package.

All columns are 64-bit integers without nulls, or lists of these. So the code can read a column directly from its
buffer, and needs neither numpy nor a Spark object for each row.
"""

from __future__ import annotations

import itertools
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.udtf import UserDefinedTableFunction

from ingeborg.bench import causality
from ingeborg.bench.causality.arrivals import Arrivals
from ingeborg.bench.causality.clocks import NEVER, Clocks, Message
from ingeborg.bench.causality.trails import Trail

Batches = Iterator[pa.RecordBatch]

ENTRIES_MAX = 1_000_000
"""Limit of the clock entries in one batch. They take 16 MB in the batch. Before that, they take 100 MB as Python
objects."""

RECEIVED = -1
"""The value of `originals` in a row that is not a report."""

NONE = -1
"""The value of a missing run, topic or sequence number. A missing time is NEVER."""

ROWS = ("run", "at_ns", "connection", "topic", "seq", "intended_ns", "originals", "depends", "until_ns")
"""Columns of a run's reports, and of the messages that publishing connections received, in the order of time."""

CLOCKED = ("run", "topic", "seq", "axis", "number", "messages", "entries", "entries_max", "pass_ns")
"""Columns of a message's place in the order. After a run's last message comes a row whose topic and seq are `NONE`,
with the counts and the processor time of the run's pass. The additional column `clock` has axis, number, axis, number
…"""

COMING = ("run", "connection", "at_ns", "topic", "seq", "began_ns", "ended_ns", "axis", "number", "late")
"""Columns of first copies, by run and connection, in the order in which they came. `late` is true if the connection
had already received a message that was sent later. The additional column `clock` has the clock of the message."""

TOO_LATE = (
    *("run", "connection", "at_ns", "topic", "seq", "began_ns"),
    *("before_ns", "before_topic", "before_seq", "before_ended_ns"),
)
"""Columns of a violation: a first copy, and the message that depends on it but arrived earlier."""

LINKS = ("trail", "place", "topic", "seq", "connection", "at_ns", "cause_topic", "cause_seq", "cause_ns")
"""Columns of the links of trails (see `Link`)."""


def schema(columns: Sequence[str], *, clock: bool = False) -> str:
    """Return the schema in the form that Spark expects."""
    return ", ".join([f"{name} long" for name in columns] + ["clock array<long>"] * clock)


def run(rows: DataFrame, handler: type, columns: str) -> DataFrame:
    """Pass each partition of the rows, in its order, through its own instance of the handler, which is a PyArrow table
    function of Spark. (`mapInArrow` would work, but needs pandas.)"""
    for module in (causality, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    function = F.arrow_udtf(handler, returnType=columns)
    assert isinstance(function, UserDefinedTableFunction)
    return function(rows.asTable())


class Pass:
    """Turns ROWS into CLOCKED and `clock`, for messages that arrived too late somewhere, or that depend on a message
    that may still arrive too late."""

    def __init__(self) -> None:
        self._run, self._clocks, self._spent_ns = NONE, Clocks(), 0
        self._out: list[tuple[int, ...]] = []
        self._lists: list[list[int]] = []
        self._held = 0

    def eval(self, batch: pa.RecordBatch) -> Batches:
        rows = _rows(batch, ROWS)
        began_ns = time.thread_time_ns()
        for run, at_ns, connection, topic, seq, intended_ns, originals, depends, until_ns in rows:
            if run != self._run:
                self._spent_ns += time.thread_time_ns() - began_ns
                self._end()
                self._run, self._clocks, self._spent_ns, began_ns = run, Clocks(), 0, time.thread_time_ns()
            if originals == RECEIVED:
                self._clocks.received(at_ns, connection, (topic, seq))
                continue
            made = self._clocks.sent(at_ns, intended_ns, connection, (topic, seq), originals, bool(depends), until_ns)
            if made is not None and (made.clock or until_ns != NEVER):
                self._out.append((run, topic, seq, made.axis, made.number, 0, 0, 0, 0))
                self._lists.append([each for axis, entry in made.clock.items() for each in (axis, entry[0])])
                self._held += len(made.clock)
                if self._held > ENTRIES_MAX:
                    yield self._taken()
        self._spent_ns += time.thread_time_ns() - began_ns
        yield self._taken()

    def terminate(self) -> Batches:
        self._end()
        yield self._taken()

    def _end(self) -> None:
        if self._run != NONE:
            made = self._clocks
            counts = made.messages, made.entries, made.entries_max, self._spent_ns
            self._out.append((self._run, NONE, NONE, 0, 0, *counts))
            self._lists.append([])

    def _taken(self) -> pa.RecordBatch:
        out, lists, self._out, self._lists, self._held = self._out, self._lists, [], [], 0
        return _batch(CLOCKED, out, lists)


class TooLate:
    """Turns COMING and `clock` into TOO_LATE."""

    def __init__(self) -> None:
        self._here = NONE, NONE
        self._arrivals = Arrivals[tuple[int, ...]]()

    def eval(self, batch: pa.RecordBatch) -> Batches:
        out: list[tuple[int, ...]] = []
        rows = zip(_rows(batch, COMING), _lists(batch.column("clock")), strict=True)
        for (run, connection, at_ns, topic, seq, began_ns, ended_ns, axis, number, late), clock in rows:
            if self._here != (run, connection):
                self._here, self._arrivals = (run, connection), Arrivals()
            before = self._arrivals.came((at_ns, topic, seq, ended_ns), axis, number, clock)
            if before is not None and late:
                out.append((run, connection, at_ns, topic, seq, began_ns, *before))
        yield _batch(TOO_LATE, out)


Wanted = tuple[int, Message, int, Message, int]
"""A violation whose trail is wanted: the run; a message, and the time when its first original was sent; the message
that depends on it, and the time when its last original was sent."""


def trails(wanted: Sequence[Wanted]) -> type:
    """Return a handler that turns ROWS into the LINKS of the wanted trails. A trail's number is its index in
    ``wanted``."""

    class Trails:
        def __init__(self) -> None:
            self._found = [(run, began_ns, ended_ns, Trail(m1, m2)) for run, m1, began_ns, m2, ended_ns in wanted]

        def eval(self, batch: pa.RecordBatch) -> None:
            for run, at_ns, connection, topic, seq, intended_ns, originals, depends, _ in _rows(batch, ROWS):
                for of_run, began_ns, ended_ns, trail in self._found:
                    if run != of_run or not began_ns <= at_ns <= ended_ns:
                        continue
                    if originals == RECEIVED:
                        trail.received(at_ns, connection, (topic, seq))
                    else:
                        trail.sent(at_ns, intended_ns, connection, (topic, seq), originals, bool(depends))

        def terminate(self) -> Batches:
            out: list[tuple[int, ...]] = []
            for number, (_, _, _, trail) in enumerate(self._found):
                for place, (message, connection, at_ns, cause, cause_ns) in enumerate(trail.links):
                    after = NEVER if cause_ns is None else cause_ns
                    out.append((number, place, *message, connection, at_ns, *(cause or (NONE, NONE)), after))
            yield _batch(LINKS, out)

    return Trails


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(_ints(batch.column(name), "q") for name in names), strict=True)


def _ints(column: pa.Array, code: Literal["i", "q"]) -> list[int]:
    data = column.buffers()[1]
    if not len(column):
        return []
    ints: list[int] = memoryview(data).cast(code)[column.offset : column.offset + len(column)].tolist()
    return ints


def _lists(column: pa.ListArray) -> list[list[int]]:
    values = _ints(column.values, "q")
    ends = _ints(column.offsets, "i")
    return [values[begin:end] for begin, end in itertools.pairwise(ends)]


def _batch(names: Sequence[str], rows: list[tuple[int, ...]], lists: list[list[int]] | None = None) -> pa.RecordBatch:
    """Return a batch of the rows. `lists`, if given, has the `clock` of each row."""
    columns: list[pa.Array] = [_array("q", column) for column in zip(*rows, strict=True)] or [_array("q", ())] * len(
        names
    )
    if lists is None:
        return pa.RecordBatch.from_arrays(columns, list(names))
    ends = [0]
    for each in lists:
        ends.append(ends[-1] + len(each))
    clock = pa.ListArray.from_arrays(_array("i", ends), _array("q", [each for of_row in lists for each in of_row]))
    return pa.RecordBatch.from_arrays([*columns, clock], [*names, "clock"])


def _array(code: Literal["i", "q"], ints: Iterable[int]) -> pa.Array:
    held = array(code, ints)
    kind = pa.int64() if code == "q" else pa.int32()
    return pa.Array.from_buffers(kind, len(held), [None, pa.py_buffer(held)])
