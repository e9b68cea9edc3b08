"""The rules that a line must satisfy to be a row of its table. They cover types, ranges and consistency, as
bench/SCHEMA.md defines them.

Owns the texts for all faults that a row can have. All functions are pure (DataFrame -> DataFrame) and only use column
expressions. They drop no line and judge no file, because `logs` does that.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingeborg.bench.spark.schema import CORRUPT, NS_PER_S, OFFSET_S_MAX, PHASE_KINDS, ROLES, SKIPPED, Table

_Problems = list[tuple[Column, str]]

_CSV = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
"""Options of Spark's CSV parser. Quoting follows RFC 4180, except that a field cannot contain a line break."""

_AT = "at_ns is missing, or more than a week from the run's start"


def checked(lines: DataFrame, table: Table) -> DataFrame:
    """Parse lines of text, and return them with the typed columns of `table` and the column `problem`. It describes
    the fault of the row in words, and is null for a good row. `lines` has the text in `raw`, the `started_ns` of its
    run, and any other columns."""
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in table.parsed.fields)
    parsed = lines.withColumn("parsed", F.from_csv("raw", columns, _CSV)).select(*lines.columns, "parsed.*")
    return parsed.withColumn("problem", _problem(table)).drop(CORRUPT)


def _problem(table: Table) -> Column:
    """Return the first fault of a row as text, or null if the row has no fault."""
    misfit = f"not {len(table.columns)} columns with numbers where they belong ({table.header})"
    found = [
        (~F.is_valid_utf8("raw"), "not UTF-8"),
        # Spark's parser would ignore some control characters, and then assign values to the wrong line.
        (F.col("raw").rlike("[\\x00-\\x1f\\x7f]"), "a control character (NUL, a carriage return …)"),
        (F.col(CORRUPT).isNotNull() | (F.col("raw") == ""), misfit),
        *_PROBLEMS[table.name](),
    ]
    return F.coalesce(*(F.when(condition, F.lit(text)) for condition, text in found))


def _far(name: str) -> Column:
    """Return whether a time is missing or too far from the run's start. The function compares instead of subtracting.
    With a damaged number, the difference may exceed 64 bits, and then Spark fails."""
    began, most = F.col("started_ns"), OFFSET_S_MAX * NS_PER_S
    return F.col(name).isNull() | ~F.col(name).between(began - most, began + most)


def _none_of(name: str, words: tuple[str, ...]) -> Column:
    return F.col(name).isNull() | ~F.col(name).isin(*words)


def _no_amount(name: str) -> Column:
    """Return whether a value is negative or not a number. An empty value is allowed."""
    return F.col(name).isNotNull() & (F.isnan(F.col(name).cast("double")) | (F.col(name) < 0))


def _event_problems() -> _Problems:
    col = F.col
    kind = col("kind")
    message = kind != "error"
    return [
        (_none_of("kind", ("news", "sent", "received", "error")), "unknown kind"),
        (col("phase").isNull(), "no phase"),
        (_far("at_ns"), _AT),
        (message & _far("intended_ns"), "intended_ns is missing, or more than a week from the run's start"),
        (
            message & (col("topic").isNull() | col("seq").isNull() | col("value").isNull()),
            "topic, seq or value is missing",
        ),
        (message & (col("seq") < 1), "seq is below 1"),
        (kind.isin("sent", "received") & col("connection").isNull(), "connection is missing"),
        ((kind == "news") & (col("value") < 0), "a negative number of deliveries"),
        ((kind == "sent") & ~col("value").isin(0, 1), "value of sent is neither 0 nor 1"),
        (
            (kind == "received") & (col("value") != col("at_ns") - col("intended_ns")),
            "value is not at_ns - intended_ns",
        ),
        (
            (kind == "received") & ~F.coalesce(col("detail").rlike(SKIPPED), F.lit(True)),
            "detail of received is not a number of skipped messages",
        ),
    ]


def _phase_problems() -> _Problems:
    col = F.col
    return [
        (col("phase").isNull(), "no phase"),
        (_none_of("kind", PHASE_KINDS), "unknown kind"),
        (_far("start_ns"), "start_ns is missing, or more than a week from the run's start"),
        (_far("end_ns"), "end_ns is missing, or more than a week from the run's start"),
        (col("end_ns") < col("start_ns"), "end_ns is before start_ns"),
        (col("measured").isNull() | ~col("measured").isin(0, 1), "measured is neither 0 nor 1"),
        (_no_amount("offered_per_s"), "offered_per_s is not a valid rate"),
        (_no_amount("amount"), "a negative amount"),
    ]


def _machine_problems() -> _Problems:
    return [
        (_far("at_ns"), _AT),
        (F.col("source").isNull(), "no source"),
        (_none_of("role", ROLES), "unknown role"),
        (_no_amount("cpu_s"), "cpu_s is not a number of seconds"),
    ]


def _counter_problems() -> _Problems:
    return [
        (_far("at_ns"), _AT),
        (F.col("phase").isNull() | F.col("source").isNull() | F.col("name").isNull(), "no phase, source or name"),
        (F.col("value").isNull() | F.isnan("value"), "no value"),
    ]


_PROBLEMS: dict[str, Callable[[], _Problems]] = {
    "events": _event_problems,
    "phases": _phase_problems,
    "machine": _machine_problems,
    "counters": _counter_problems,
}
