"""Write a simulated run as a log of this project (bench/SCHEMA.md), in virtual nanoseconds.

Owns: the mapping of an overlay to the terms of the schema. Must never: compute a figure.

A node is a connection, a root is a topic, and a message's number is its ``seq``. Each broadcast has a ``news`` row,
with the number of nodes that must get the message, and a ``sent`` row. Each delivery at another node has a ``received``
row. A root's first delivery of its own message is the broadcast, and has no ``received`` row. A second delivery at the
root has such a row. Some nodes get a message although it is not due to them, for example nodes that crash later. The
``news`` row also counts these nodes. Otherwise, their deliveries would hide nodes that lack the message.

``counters.csv`` has the traffic over the links, at the start and end of each phase. The same run always gives the same
bytes, because the log contains neither the machine's time nor a version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from ingeborg.bench.overlay.metrics import Life, Traffic, owed_to
from ingeborg.bench.overlay.record import DOUBLE, Record
from ingeborg.bench.overlay.wheel import SLOT_NS

SCHEMA: Final = 2
PART_LINES: Final = 250_000
"""Maximum number of lines in a part. They take about 15 MB. Spark reads parts in parallel."""

MARK: Final = "causal"
"""The ``detail`` of every ``sent`` row. It makes the check of causal order treat a broadcast as dependent on all
messages that its root had, even if the protocol promises no order."""

SOURCE: Final = "overlay"
COUNTERS: Final = ("overlay_messages_total", "overlay_payload_bytes_total", "overlay_control_bytes_total")
"""Names of the counters: messages, bytes of payloads, and all other bytes that nodes have sent so far."""

_EVENTS = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"
_PHASES = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail\n"
_COUNTERS = "at_ns,phase,source,name,value\n"


@dataclass(frozen=True)
class Phase:
    """A phase of the run. ``start``, ``end``: the slots of its start and end. ``before``, ``after``: the traffic until
    its start and its end."""

    name: str
    kind: str
    start: int
    end: int
    measured: bool
    before: Traffic
    after: Traffic
    offered_per_s: float | None = None


def write(
    directory: Path, facts: Mapping[str, Any], record: Record, phases: Sequence[Phase], lives: Sequence[Life]
) -> int:
    """Write the log into a new directory, and return its number of event lines. ``facts``: the part of run.json that
    describes the run: ``run``, ``system``, ``variant``, ``workload``, ``seed``, ``config`` and ``goals``."""
    directory.mkdir(parents=True)
    lines = _events(directory, record, lives)
    (directory / "phases.csv").write_text(_PHASES + "".join(map(_phase, phases)), encoding="utf-8")
    (directory / "counters.csv").write_text(_COUNTERS + "".join(map(_counters, phases)), encoding="utf-8")
    whole = {
        "schema": SCHEMA,
        "series": None,
        "started_unix_ms": 0,
        "started_ns": 0,
        "complete": True,
        **facts,
        "files": {path.name: _identity(path) for path in sorted(directory.glob("*.csv"))},
    }
    (directory / "run.json").write_bytes(orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE))
    return lines


def _events(directory: Path, record: Record, lives: Sequence[Life]) -> int:
    owed = [_expected(record, index, lives) for index in range(len(record.messages))]
    # Format the constant part of a message's rows only once.
    heads = []
    for message in record.messages:
        sent_ns = message.at * SLOT_NS
        heads.append((f"received,{message.phase},", f",{message.root},{message.number},{sent_ns},", sent_ns))
    written, part = 0, 0
    lines: list[str] = []
    for slot, node, index, hops in zip(record.slots, record.nodes, record.indices, record.hops, strict=True):
        message = record.messages[index]
        at_ns = slot * SLOT_NS
        if node == message.root and hops != DOUBLE:
            whole = f"{message.phase},%s,{node},{message.number},{at_ns},{at_ns},"
            lines.append(f"news,{whole % ''}{owed[index]},\n")
            lines.append(f"sent,{whole % node}1,{MARK}\n")
        else:
            head, middle, sent_ns = heads[index]
            lines.append(f"{head}{node}{middle}{at_ns},{at_ns - sent_ns},\n")
        if len(lines) >= PART_LINES:
            _part(directory, part, lines)
            written, part, lines = written + len(lines), part + 1, []
    if lines or not part:
        _part(directory, part, lines)
    return written + len(lines)


def _expected(record: Record, index: int, lives: Sequence[Life]) -> int:
    """Count the nodes to which a message is due, and the other nodes that got it."""
    message = record.messages[index]
    owed = owed_to(message, index, lives, record)
    return len(owed) + record.number_got(index) - 1 - record.count(owed, index)


def _part(directory: Path, part: int, lines: Sequence[str]) -> None:
    path = directory / f"events-000-{part:04d}.csv"
    path.write_text(_EVENTS + "".join(lines), encoding="utf-8", newline="")


def _phase(phase: Phase) -> str:
    offered = "" if phase.offered_per_s is None else f"{phase.offered_per_s:.10g}"
    start, end = phase.start * SLOT_NS, phase.end * SLOT_NS
    return f"{phase.name},{phase.kind},{start},{end},{int(phase.measured)},{offered},,\n"


def _counters(phase: Phase) -> str:
    rows = []
    for slot, traffic in ((phase.start, phase.before), (phase.end, phase.after)):
        values = (traffic.messages, traffic.payload_bytes, traffic.control_bytes)
        rows += [
            f"{slot * SLOT_NS},{phase.name},{SOURCE},{name},{value}\n"
            for name, value in zip(COUNTERS, values, strict=True)
        ]
    return "".join(rows)


def _identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
