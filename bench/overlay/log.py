"""Writes a simulated run as a log of this project: bench/SCHEMA.md, in virtual nanoseconds.

Owns: the meaning of the schema's words in an overlay. Must never: compute a figure.

A node is a connection, a root is a topic, a message's number is its ``seq``. ``news``: its root's broadcast, with the
number of nodes that must get it; ``sent``: the same; ``received``: another node's delivery. (A root's own delivery is
its broadcast, and has no row; a second delivery has one.) Nodes that got a message without being due it, for example
because they crashed later, count among the deliveries that the news must cause: otherwise they would hide a node that
lacks it.

``counters.csv`` has the traffic over the links, at both ends of each phase. Same run, same bytes: the log has no clock
of this machine and no version.
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
"""Some 15 MB: Spark reads parts in parallel."""

MARK: Final = "causal"
"""The ``detail`` of a ``sent`` row: the check of causal order treats every broadcast as dependent on all messages that
its root had, even if its protocol does not promise that."""

SOURCE: Final = "overlay"
COUNTERS: Final = ("overlay_messages_total", "overlay_payload_bytes_total", "overlay_control_bytes_total")
"""Names in ``counters.csv``: messages, bytes of payloads, and all other bytes sent so far."""

_EVENTS = "kind,phase,connection,topic,seq,intended_ns,at_ns,value,detail\n"
_PHASES = "phase,kind,start_ns,end_ns,measured,offered_per_s,amount,detail\n"
_COUNTERS = "at_ns,phase,source,name,value\n"


@dataclass(frozen=True)
class Phase:
    """A phase of the run, from slot to slot; ``before``, ``after``: the traffic until then."""

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
    """Write the log into a new directory; return its number of event lines. ``facts``: the part of run.json that
    describes the run: ``run``, ``system``, ``variant``, ``workload``, ``seed``, ``config``, ``goals``."""
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
    # The constant part of a message's rows is formatted once.
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
    """Count the nodes that must get it: those it is due to, and the others that did."""
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
