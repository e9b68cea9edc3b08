"""The intended times of news and of the reports about them.

Owns: the order of a run before it starts. Must never: look at a clock; a schedule does not know how the run goes, and a
sender that falls behind does not change it (latency counts from the intended time, so a stall cannot hide itself).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

_NS = 1_000_000_000


class Change(NamedTuple):
    """A station changes to another song. ``at_s``: seconds from the run's start; ``start_ms``: as in the payload."""

    at_s: float
    station: str
    topic: str
    start_ms: int


class News(NamedTuple):
    """The ``seq``-th message (from 1) of topic number ``topic``; ``at_ns``: its first report, from the run's start."""

    at_ns: int
    topic: int
    seq: int
    station: str
    start_ms: int
    reports: int  # listeners that report it
    client: int  # the first client to report it
    others_ns: int | None  # intended time of the next client's report; None: nobody else reports it


class Report(NamedTuple):
    """One client's publish of news number ``news``. ``first``: no earlier report is planned."""

    at_ns: int
    news: int
    first: bool


class Schedule(NamedTuple):
    """``topics``: by number. ``news``: by intended time. ``reports``: of each client, by intended time."""

    topics: list[str]
    news: list[News]
    reports: list[list[Report]]
    unheard: int  # changes of stations without listeners: no news


def schedule(
    changes: Sequence[Change], listeners: Mapping[str, Sequence[int]], clients: int, spread_s: float, random: Random
) -> Schedule:
    """Let every listener of a station report each of its changes, up to ``spread_s`` after it (uniform).

    Topics are numbered by their first news. Two changes of one station never share topic and ``start_ms``: they would
    be one message to the broker.
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
