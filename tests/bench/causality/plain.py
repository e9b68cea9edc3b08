"""Causal order the slow and plain way, which the check must agree with; and runs to compare them on.

Owns made-up runs: `written` ones, event by event, and `random_log`; and the `log` of a small real run. `order` keeps
for each message the set of all its dependencies, without clocks, axes or forgetting. `algorithm_16` is the document's,
as printed.
"""

from __future__ import annotations

import csv
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench import synthetic
from tests.bench.synthetic import MS, START_NS, Row, Run

Message = tuple[int, int]

PHASES = [synthetic.phase("run", "run", 0, 1_000 * MS, 1)]

_EVENT = re.compile(r"(\d+)([<>])([a-z])([*~]?)(?:@(\d+)(?:-(\d+))?)?")


def written(name: str, text: str, **facts: object) -> Run:
    """Return the run that the text describes.

    `1>a 2<a`: connection 1 sent message a, 2 received it, a millisecond apart. `@5`: at 5 ms; `1>a@5-7`: planned for 5
    and sent at 7. `*`: marked as causal; `~`: not the first report by schedule. Message a is number 1 of topic 1, b
    number 1 of topic 2 …
    """
    rows: list[Row] = []
    now = 0
    for connection, arrow, letter, mark, meant, done in _EVENT.findall(text):
        first = int(meant) if meant else now + 1
        now = int(done) if done else first
        topic = ord(letter) - ord("a") + 1
        if arrow == "<":
            rows.append(synthetic.received("run", int(connection), topic, 1, 0, now * MS))
        else:
            row = synthetic.sent("run", int(connection), topic, 1, first * MS, now * MS, int(mark != "~"))
            rows.append((*row[:-1], "causal" if mark == "*" else None))
    return Run(synthetic.facts(name, **facts), [rows], PHASES)


def random_log(name: str, rng: random.Random) -> Run:
    """Return a random run in two processes: few connections, coarse times, losses, copies, marks, several reports, of
    which the first may be missing, and copies before the report or without one."""
    connections = rng.randint(2, 6)
    rows: list[Row] = []
    marks = rng.random() < 0.3
    for number in range(rng.randint(2, 14)):
        message = 1 + number % 3, 1 + number // 3
        base = rng.randrange(3, 40)
        for index in range(rng.choice((1, 1, 1, 1, 2, 3)) if rng.random() < 0.97 else 0):
            meant = base + index * rng.choice((0, 0, 1, 9))
            at = meant + rng.choice((0, 0, 1, 4))
            first = int(not index and rng.random() < 0.9)
            row = synthetic.sent("run", rng.randrange(connections), *message, meant * MS, at * MS, first)
            rows.append((*row[:-1], "causal" if marks and rng.random() < 0.7 else None))
        for connection in rng.sample(range(connections), rng.randint(1, connections)):
            for _ in range(rng.choice((1, 1, 1, 2))):
                at = max(base + rng.choice((-1, 0, 1, 2, 3, 5, 15)), 0)
                rows.append(synthetic.received("run", connection, *message, base * MS, at * MS))
    rng.shuffle(rows)
    rows.sort(key=lambda row: int(row[6]))
    return Run(synthetic.facts(name), [[row for row in rows if row[2] % 2 == part] for part in (0, 1)], PHASES)


def log(directory: Path) -> Run:
    """Return the content of the event files, in order."""
    parts = []
    for path in sorted(directory.glob("events-*.csv")):
        with path.open(newline="") as file:
            parts.append([tuple(map(_value, row.items())) for row in csv.DictReader(file, strict=True)])
    return Run({}, parts, [])


def _value(field: tuple[str, str]) -> str | int | None:
    name, text = field
    return text if name in ("kind", "phase", "detail") and text else int(text) if text else None


class Told(NamedTuple):
    """An event as the check sees it; times in ns since the start. `originals`: -1 for a copy."""

    at_ns: int
    connection: int
    message: Message
    meant_ns: int
    originals: int
    depends: bool


def told(run: Run) -> list[Told]:
    """Return a run's first copies, and the reports of received messages, in order."""
    placed = [(row[6], part, line, row) for part, rows in enumerate(run.parts) for line, row in enumerate(rows)]
    rows = [row for *_, row in sorted(placed, key=lambda each: each[:3]) if row[0] in ("sent", "received")]
    came: dict[Message, int] = {}
    reports: dict[Message, list[Row]] = defaultdict(list)
    seen: set[tuple[int, Message]] = set()
    kept = []
    for row in rows:
        message = row[3], row[4]
        if row[0] == "sent":
            reports[message].append(row)
        elif (row[2], message) in seen:
            continue
        else:
            seen.add((row[2], message))
            came.setdefault(message, row[6])
        kept.append(row)
    marks = any(row[8] for row in rows)
    made = []
    for row in kept:
        message = row[3], row[4]
        if message not in came:
            continue
        latest = max(came[message], min((report[5] for report in reports[message]), default=0))
        originals = [report for report in reports[message] if report[5] <= latest]
        number = -1 if row[0] == "received" else len(originals) if row[5] <= latest else 0
        depends = any(report[7] for report in originals) and (not marks or all(report[8] for report in originals))
        made.append(Told(row[6] - START_NS, row[2], message, row[5] - START_NS, number, depends))
    return made


def order(rows: Sequence[Told]) -> dict[Message, set[Message]]:
    """Return message -> all its dependencies."""
    past: dict[Message, set[Message]] = {}
    opened: dict[Message, list[set[Message]]] = defaultdict(list)
    knows: dict[int, set[Message]] = defaultdict(set)
    heard: dict[int, list[tuple[int, Message]]] = defaultdict(list)
    for row in rows:
        if row.originals < 0:
            if row.message in past:
                heard[row.connection].append((row.at_ns, row.message))
            continue
        known = knows[row.connection]
        for at_ns, message in heard[row.connection]:
            if at_ns <= row.meant_ns:
                known |= {message} | past[message]
        if row.originals:
            opened[row.message].append(set(known) if row.depends else set())
            known.add(row.message)
            if len(opened[row.message]) == row.originals:
                past[row.message] = set.intersection(*opened[row.message])
        elif row.message in past:
            known |= {row.message} | past[row.message]
    return past


def violations(rows: Sequence[Told]) -> dict[tuple[int, Message], set[Message]]:
    """Return connection and late message -> all earlier arrivals that depend on the message."""
    past = order(rows)
    came: dict[int, list[Message]] = defaultdict(list)
    found: dict[tuple[int, Message], set[Message]] = {}
    for row in rows:
        if row.originals < 0:
            before = {message for message in came[row.connection] if row.message in past.get(message, ())}
            if before:
                found[row.connection, row.message] = before
            came[row.connection].append(row.message)
    return found


def algorithm_16(logs: Mapping[int, Sequence[Message]]) -> bool:
    """Check causal order: seed document, section 4.2.3, line by line.

    Args:
        logs: Process -> its delivered messages, its own at the moment of their broadcast. A message is (address,
            number).

    Returns:
        True if the logs keep causal order.
    """
    causal_history: dict[Message, list[Message]] = {}
    for p in logs:
        seen: list[Message] = []
        for m in logs[p]:
            addr, _ = m
            if p == addr:
                causal_history[m] = seen
                seen = []
            seen = [*seen, m]
    for m1 in causal_history:
        addr, _ = m1
        for m2 in causal_history[m1]:
            for p in logs:
                if p != addr:
                    for m3 in logs[p]:
                        if m2 == m3:
                            break
                        if m1 == m3:
                            return False
    return True
