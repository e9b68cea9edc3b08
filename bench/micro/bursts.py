"""Print the latencies of a run's messages, grouped by the number of recipients of each new message.

    python -m ingeborg.bench.micro.bursts RUN

Owns: the figures by size of burst in docs/workloads/radio.md. Reads the log of one run, which is a folder that
``loadgen radio --out`` made, and keeps all latencies in memory (40 bytes for each delivery). Must never: be collected
as a test.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Maximum number of deliveries of a new message in each class. The last class has all messages with more deliveries.
UP_TO = (10, 30, 100, 300, 1_000, 3_000, 10_000, 10**9)

News = tuple[str, str]
"""A new message's topic and number, as in the log."""


def events(run: Path) -> Iterator[dict[str, str]]:
    """Yield every event of the run. Raises ``SystemExit`` if the run has no file of events."""
    files = sorted(run.glob("events-*.csv"))
    if not files:
        raise SystemExit(f"{run} has no events-*.csv: RUN must be the folder of one run")
    for path in files:
        with path.open(newline="") as lines:
            yield from csv.DictReader(lines)


def latencies(run: Path) -> tuple[dict[int, list[float]], Counter[int]]:
    """Return the latencies of deliveries in milliseconds, and the number of new messages. Both are grouped by the
    classes of ``UP_TO``."""
    wanted: dict[News, int] = {}
    took: dict[News, list[float]] = defaultdict(list)
    for event in events(run):
        news = event["topic"], event["seq"]
        if event["kind"] == "news":
            wanted[news] = int(event["value"])
        elif event["kind"] == "received":
            took[news].append(int(event["value"]) / 1e6)
    by_class: dict[int, list[float]] = defaultdict(list)
    count: Counter[int] = Counter()
    for news, times in took.items():
        up_to = next(most for most in UP_TO if wanted.get(news, 0) <= most)
        by_class[up_to] += times
        count[up_to] += 1
    return by_class, count


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    by_class, count = latencies(parser.parse_args(arguments).run)
    print(" recipients up to   messages  deliveries    p50 ms    p90 ms    p99 ms")
    rows = [(f"{up_to:,}" if up_to < UP_TO[-1] else "more", by_class[up_to], count[up_to]) for up_to in sorted(count)]
    rows.append(("all", [took for times in by_class.values() for took in times], count.total()))
    for name, times, news in rows:
        ordered = sorted(times)
        points = "".join(f"{ordered[int(share * (len(ordered) - 1))]:10.1f}" for share in (0.5, 0.9, 0.99))
        print(f"{name:>17} {news:10,} {len(ordered):11,}{points}")


if __name__ == "__main__":
    main()
