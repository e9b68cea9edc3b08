"""The intended times of news items and of the reports about them.

Owns: the decision which client sends which report at which time. It is made before the run starts. Must never: read a
clock. A schedule does not adapt to the run, even if a sender falls behind. Latency is measured from the intended time,
so every stall increases latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

_NS = 1_000_000_000


class Change(NamedTuple):
    """A station changes to another song. ``at_s``: seconds from the run's start. ``start_ms``: the song's start time in
    the payload."""

    at_s: float
    station: str
    topic: str
    start_ms: int


class News(NamedTuple):
    """A news item: the ``seq``-th message (from 1) of topic number ``topic``. ``at_ns``: the intended time of its first
    report, from the run's start."""

    at_ns: int
    topic: int
    seq: int
    station: str
    start_ms: int
    reports: int  # how many listeners report it
    client: int  # the first client to report it
    others_ns: int | None  # intended time of the second client's report, or None if nobody else reports it


class Report(NamedTuple):
    """One client's publish of news item ``news``. ``first``: whether it is the earliest planned report of the item."""

    at_ns: int
    news: int
    first: bool


class Schedule(NamedTuple):
    """``topics``: names by topic number. ``news``: in the order of intended times. ``reports``: for each client, its
    reports in the order of intended times."""

    topics: list[str]
    news: list[News]
    reports: list[list[Report]]
    unheard: int  # number of changes that had no listener, and so caused no news item


def schedule(
    changes: Sequence[Change], listeners: Mapping[str, Sequence[int]], clients: int, spread_s: float, random: Random
) -> Schedule:
    """Let every listener of a station report each of its changes, after a uniformly drawn delay of up to ``spread_s``.

    Topics are numbered in the order of their first news items. Two changes of one station must not share both topic and
    ``start_ms``, because the broker would treat them as one message.
    """
    heard: list[tuple[list[tuple[int, int]], Change]] = []
    unheard = 0
    for change in sorted(changes):
        reporters = listeners.get(change.station, ())
        if not reporters:
            unheard += 1
            continue
        times = sorted((int((change.at_s + random.uniform(0, spread_s)) * _NS), client) for client in reporters)
        heard.append((times, change))
    heard.sort(key=lambda item: (item[0][0][0], item[1]))

    numbers: dict[str, int] = {}
    seqs: dict[int, int] = {}
    news: list[News] = []
    reports: list[list[Report]] = [[] for _ in range(clients)]
    for times, change in heard:
        topic = numbers.setdefault(change.topic, len(numbers))
        seqs[topic] = seq = seqs.get(topic, 0) + 1
        for position, (at_ns, client) in enumerate(times):
            reports[client].append(Report(at_ns, len(news), position == 0))
        others_ns = times[1][0] if len(times) > 1 else None
        news.append(News(times[0][0], topic, seq, change.station, change.start_ms, len(times), times[0][1], others_ns))
    for mine in reports:
        mine.sort()
    return Schedule(list(numbers), news, reports, unheard)
