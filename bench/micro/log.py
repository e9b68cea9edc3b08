"""Measure the cost of the generator's log: CPU time per event, from the call until its bytes are in the file.

    python -m ingeborg.bench.micro.log [EVENTS]

Prints the CPU microseconds per event for each kind, and for the mix of the traffic workload. The cost of the loop that
makes the events is not included. In that mix, 77 of 100 publishes are new messages, and each new message is delivered
five times. For comparison, the program also prints the cost of packing the same fields into bytes, and the cost of
drawing a message of the workload's plan (docs/adr/0006).
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ingeborg.loadgen.log.recorder import Recorder
from ingeborg.loadgen.log.rundir import EventFiles
from ingeborg.loadgen.process.driver import LINES_MAX
from ingeborg.loadgen.workloads.settings import Traffic
from ingeborg.loadgen.workloads.traffic import TrafficPlan

NOW_NS = 1_234_567_890_123_456


def cost_us(events: int, record: Callable[[Recorder, int], None] | None) -> float:
    """Return the CPU microseconds per call of ``record``, including the writes to files."""
    with tempfile.TemporaryDirectory() as directory:
        recorder, files = Recorder(), EventFiles(Path(directory), 0)
        began_s = time.process_time()
        for number in range(events):
            if record is not None:
                record(recorder, number)
                if len(recorder) >= LINES_MAX:
                    files.write(recorder.take(), LINES_MAX)
        files.write(recorder.take(), len(recorder))
        files.close()
        return (time.process_time() - began_s) / events * 1e6


def _nothing(recorder: Recorder, number: int) -> None:
    pass


def _news(recorder: Recorder, number: int) -> None:
    recorder.news("sustained-12", number % 1000, number, NOW_NS + number, 5)


def _sent(recorder: Recorder, number: int) -> None:
    recorder.sent("sustained-12", number % 20, number % 1000, number, NOW_NS + number, NOW_NS + number + 40_000, True)


def _received(recorder: Recorder, number: int) -> None:
    at_ns = NOW_NS + number
    recorder.received("sustained-12", number % 20, number % 1000, number, at_ns, at_ns + 4_000_000)


def packed_us(events: int) -> float:
    """Return the CPU microseconds to pack the fields of a delivery into bytes and collect them, instead of writing
    text."""
    parts: list[bytes] = []
    pack = struct.Struct("<BHIIQQQ").pack
    before_s = time.process_time()
    for number in range(events):
        at_ns = NOW_NS + number
        parts.append(pack(1, number % 20, number % 1000, number, at_ns, at_ns + 4_000_000, 4_000_000))
        if len(parts) >= LINES_MAX:
            b"".join(parts)
            parts.clear()
    return (time.process_time() - before_s) / events * 1e6


def planned_us(messages: int) -> float:
    """Return the CPU microseconds to draw one message of the traffic workload's plan."""
    plan = TrafficPlan(Traffic(), duplicates=Traffic().duplicates)
    before_s = time.process_time()
    sends = sum(1 for _ in plan.sends(10_000.0, messages / 10_000))
    return (time.process_time() - before_s) / sends * 1e6


def main(events: int) -> None:
    loop_us = cost_us(events, _nothing)
    costs = {record: cost_us(events, record) - loop_us for record in (_news, _sent, _received)}
    for record, value_us in costs.items():
        print(f"{record.__name__[1:]:<9} {value_us:.2f} us")
    news, received = 0.77, 0.77 * 5
    mix_us = (news * costs[_news] + costs[_sent] + received * costs[_received]) / (news + 1 + received)
    print(f"{'traffic':<9} {mix_us:.2f} us per event (goal: below 1)")
    print(f"{'packed':<9} {packed_us(events) - loop_us:.2f} us")
    print(f"{'planned':<9} {planned_us(events):.2f} us per message")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
