"""The settings of each workload: one table of names, defaults, limits and help for the command line and workload files.

Owns: reading a workload file (TOML), the legal values, and the precedence (option, then file, then default). Must
never: depend on a system or a run. This module rejects every wrong value with a ``WorkloadError``, which names the key
and its legal values.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ingeborg.protocol.bounds import WEIGHT_MAX, WINDOW_MAX
from ingeborg.protocol.options import converted, option, out_of_bounds, shown, spelling

from . import bounded, sizes
from .bounded import Group
from .sizes import Sizes

#: These limits cover thesis 6.2 and 6.5. A benchmark above these limits would be another workload.
CONNECTIONS_MAX = 1_000_000
TOPICS_MAX = 1 << 24
RATE_MAX = 10_000_000.0
#: Limits of a causal run. Each of its processes keeps all messages from the beginning, at about 300 bytes each.
MESSAGES_MAX, SUBSCRIPTIONS_MAX = 1_000_000, 1 << 22
#: With a greater exponent, nearly all wishes are for a handful of songs, and `popularity.counts` would not keep their
#: mean.
WISH_EXPONENT_MAX = 2.0
DURATION_S_MAX = 24 * 3600.0
#: The greatest time in a recorded log. Up to this value, a float has exact milliseconds. The present time in
#: milliseconds since 1970 is below this value.
LOG_S_MAX = 9_000_000_000_000
#: The greatest value of a setting, unless its row says otherwise. Sums and products of such numbers are still finite.
_NUMBER_MAX = 1_000_000_000
#: The greatest integer that JSON and the readers of a log can represent.
_SEED_MAX = (1 << 63) - 1


class WorkloadError(ValueError):
    """The settings do not make a workload. The error message says which setting is wrong, and why."""


def _option(
    default: Any, help: str, metavar: str = "N", *, least: float = 0, most: float = _NUMBER_MAX, above: bool = False
) -> Any:
    """Declare a row of a workload's table. Numbers have limits here, because a run multiplies some numbers with each
    other."""
    return option(default, help, metavar, least=least, most=most, above=above)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    seed: int = _option(1, "the same seed makes the same run", least=-_SEED_MAX, most=_SEED_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paced(_Common):
    drain_s: float = _option(10.0, "the longest wait for messages still under way", "S", most=3600, above=True)
    # A working system stalls for less time than this: the peers of a dead endpoint replace it after 3 s, and a server
    # restarts about as fast. With a longer limit, a run would only measure a dead system.
    stall_s: float = _option(
        10.0, "a system that delivers no due message for this long has failed", "S", most=3600, above=True
    )
    bounds: str = _option(
        "", "bounds of the clients: live, screen, wall, or a list of groups (docs/loadgen.md; ingeborg only)", "SPEC"
    )
    bounds_window: int = _option(0, "unconfirmed notifications of a client with bounds; 0: no limit", most=WINDOW_MAX)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of clients with bounds."""
        return bounded.parse(self.bounds)

    @property
    def about(self) -> bool:
        """Whether publishes can have an item or a weight."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(_Paced):
    """Thesis 6.2.1: raise the rate until latency exceeds its limit. Then measure at the greatest sustainable rate and
    at half that rate."""

    workload: ClassVar[str] = "traffic"

    connections: int = _option(20, "clients, each of which publishes and subscribes", least=1, most=CONNECTIONS_MAX)
    topics: int = _option(1000, "topics", least=1, most=TOPICS_MAX)
    fanout: float = _option(5.0, "average number of subscribers of a topic, distributed over the topics by Zipf(1)")
    duplicates: float = _option(0.23, "share of publishes that repeat another connection's payload", "SHARE", most=0.99)
    repeat_within_s: float = _option(1.0, "longest time from first publish to repetition", "S", most=3600, above=True)
    size: str = _option("200", "payload bytes: 200, uniform:100:400 or lognormal:MEDIAN:SIGMA:MAX", "SPEC")
    skew: float = _option(0.0, "Zipf exponent for the topics of publishes (0: all topics equally often)", "X", most=10)
    rate: float | None = _option(
        None, "publish at this rate instead of searching for the greatest", "PER_S", most=RATE_MAX, above=True
    )
    duration_s: float = _option(20.0, "length of the run, with --rate", "S", most=DURATION_S_MAX, above=True)
    p99_ms: float = _option(50.0, "limit of the 99th percentile of latency", "MS", least=0.001, most=600_000)
    start_rate: float = _option(500.0, "rate that the search starts at", "PER_S", least=10, most=RATE_MAX)
    most_rate: float = _option(200_000.0, "highest rate that the search tries", "PER_S", most=RATE_MAX, above=True)
    step_s: float = _option(3.0, "length of a step of the search", "S", least=0.5, most=600)
    measure_s: float = _option(15.0, "length of each of the two measured phases", "S", least=1, most=DURATION_S_MAX)
    precision: float = _option(0.05, "largest error of the rate found", "SHARE", least=0.01, most=0.1)
    items: int = _option(0, "items of a topic; each publish draws one; 0: none (ingeborg only)", most=1 << 20)
    weight: float = _option(
        0.0, "the greatest weight of a publish, drawn from 0 up; 0: no weights (ingeborg only)", "X", most=WEIGHT_MAX
    )

    def __post_init__(self) -> None:
        _check(self)
        _sizes(self.size)
        if self.fanout > self.connections:
            raise WorkloadError(f"fanout: {self.fanout:g} subscribers of a topic need at least as many connections")
        if self.start_rate > self.most_rate:
            raise WorkloadError("start_rate must not be above most_rate")

    @property
    def about(self) -> bool:
        """See ``_Paced``."""
        return self.items > 0 or self.weight > 0

    @property
    def payload_sizes(self) -> Sizes:
        return sizes.parse(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(_Common):
    """Thesis 6.5: one subscriber, one publisher, and 1, 2, 4 … topics."""

    workload: ClassVar[str] = "topics"

    first: int = _option(1, "number of topics to begin with", least=1, most=TOPICS_MAX)
    last: int = _option(131_072, "number of topics to end with; it doubles for each run", least=1, most=TOPICS_MAX)
    messages: int = _option(20_000, "messages for each number of topics, at least one per topic", least=1, most=1 << 27)
    window: int = _option(10_000, "the most messages in flight", least=1, most=1 << 20)
    size: str = _option("200", "payload bytes: 200, uniform:100:400 or lognormal:MEDIAN:SIGMA:MAX", "SPEC")
    subscribe_timeout_s: float = _option(
        300.0,
        "a system that takes longer to subscribe has failed at this number of topics",
        "S",
        most=DURATION_S_MAX,
        above=True,
    )
    stall_s: float = _option(20.0, "a system silent for this long has failed", "S", most=3600, above=True)

    def __post_init__(self) -> None:
        _check(self)
        _sizes(self.size)
        if self.first > self.last:
            raise WorkloadError("first must not be above last")

    @property
    def payload_sizes(self) -> Sizes:
        return sizes.parse(self.size)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of topics to run, in order."""
        return [self.first << doubling for doubling in range((self.last // self.first).bit_length())]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Air(_Paced):
    clients: int = _option(200, "clients, each with a connection", least=1, most=CONNECTIONS_MAX)
    listens: int = _option(5, "stations each client listens to", least=1)
    duration_s: float = _option(20.0, "seconds of load", "S", least=1, most=DURATION_S_MAX)
    wishes: float | None = _option(
        None, "average number of wish lists with a played song (default: 100, or half of the clients if that is less)"
    )
    wish_exponent: float = _option(
        0.8,
        "Zipf exponent for the number of wish lists with a song, most played songs first (0: equally many lists)",
        "X",
        most=WISH_EXPONENT_MAX,
    )
    idle_wishes: int = _option(50, "unplayed songs on each wish list")
    spread_ms: float = _option(200.0, "clients report a change within this time", "MS")
    size: str = _option("64", "smallest payload in bytes: 64, uniform:100:400 or lognormal:MEDIAN:SIGMA:MAX", "SPEC")

    @property
    def payload_sizes(self) -> Sizes:
        return sizes.parse(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Radio(_Air):
    """Thesis 1.3.2: stations change songs, every listener of a station reports the change, and a client gets it if the
    song is on its wish list."""

    workload: ClassVar[str] = "radio"

    stations: int = _option(40, "stations on the air", least=1, most=1 << 20)
    song_s: float = _option(10.0, "length of a song", "S", least=0.1, most=DURATION_S_MAX)
    songs: int = _option(10_000, "songs in the catalogue", least=1, most=1 << 30)

    def __post_init__(self) -> None:
        _check(self)
        _sizes(self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(_Air):
    """The radio workload with the songs of a recorded now-playing log: CSV, gzipped or plain, with the columns station,
    offset_s, artist and track."""

    workload: ClassVar[str] = "replay"

    log: str = _option("", "the recorded log; a path in a workload file is relative to that file", "FILE")
    stations: int = _option(100, "stations drawn from the log", least=1, most=1 << 20)
    speed: float | None = _option(
        None, "seconds of the log to play per second (default: an hour of the log in the run)", "X", above=True
    )
    start_s: float = _option(0.0, "second of the log to begin with", "S", most=LOG_S_MAX)

    def __post_init__(self) -> None:
        _check(self)
        _sizes(self.size)
        if not self.log:
            raise WorkloadError("log: give the path of the now-playing log to replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Causal(_Paced):
    """Clients ask questions, answer questions that they receive, and comment on answers. Each message is on a topic of
    its speaker."""

    workload: ClassVar[str] = "causal"

    clients: int = _option(32, "clients, each with a connection", least=1, most=CONNECTIONS_MAX)
    rooms: int = _option(16, "rooms to talk in, each with its own topics", least=1)
    members: int = _option(8, "clients in a room, drawn at random", least=1)
    speakers: int = _option(4, "members of a room who answer; the first one asks", least=1)
    partial: float = _option(0.2, "share of a room's topics that a member does not subscribe to", "SHARE", most=1)
    rate: float = _option(50.0, "questions per second", "PER_S", most=RATE_MAX, above=True)
    answers: int = _option(2, "answers to a question, each by another speaker")
    chain: int = _option(1, "comments below an answer, each on the previous message")
    # Programs answer within this time. If answers took longer, most questions would arrive everywhere before their
    # answers, even if the system promises no order.
    think_ms: float = _option(5.0, "the longest time from receiving to answering, uniform from 0", "MS", most=60_000)
    duration_s: float = _option(10.0, "seconds of questions", "S", most=DURATION_S_MAX, above=True)
    size: str = _option("200", "payload bytes: 200, uniform:100:400 or lognormal:MEDIAN:SIGMA:MAX", "SPEC")
    violations: int | None = _option(
        None,
        "the most causal violations that the run's goal allows; bench digest checks this (default: no goal)",
        most=MESSAGES_MAX,
    )

    def __post_init__(self) -> None:
        _check(self)
        _sizes(self.size)
        if not self.speakers <= self.members <= self.clients:
            raise WorkloadError(
                f"speakers must not exceed members, and members must not exceed clients: not {self.speakers}, "
                f"{self.members} and {self.clients}"
            )
        if self.answers > (others := max(self.speakers - 1, 1)):  # a lone speaker answers itself
            raise WorkloadError(f"answers: only {others} of a room's speakers can answer, not {self.answers}")
        if not self.questions:
            raise WorkloadError("rate x duration_s makes no question: raise either of them")
        if (messages := self.questions * (1 + self.answers * (1 + self.chain))) > MESSAGES_MAX:
            raise WorkloadError(
                f"rate, duration_s, answers, chain make {messages:,} messages, more than {MESSAGES_MAX:,}"
            )
        if (made := self.rooms * self.members * (1 + self.speakers)) > SUBSCRIPTIONS_MAX:
            raise WorkloadError(
                f"rooms, members and speakers make {made:,} subscriptions, more than {SUBSCRIPTIONS_MAX:,}"
            )

    @property
    def questions(self) -> int:
        """The number of questions."""
        return int(self.rate * self.duration_s)

    @property
    def payload_sizes(self) -> Sizes:
        return sizes.parse(self.size)


Settings = Traffic | Topics | Radio | Replay | Causal
Kind = TypeVar("Kind", bound=Settings)
KINDS: dict[str, type[Settings]] = {kind.workload: kind for kind in (Traffic, Topics, Radio, Replay, Causal)}


def settings(kind: type[Kind], file: Path | None, options: Mapping[str, str], **defaults: Any) -> Kind:
    """Return the settings of a workload. Options override the file. The file overrides ``defaults``. ``defaults``
    override the defaults of the table."""
    values: dict[str, Any] = dict(defaults)
    known = {key.name: key for key in dataclasses.fields(kind)}
    if file is not None:
        values |= _read(kind.workload, file, known)
    for name, text in options.items():
        values[name] = _typed(known[name], text, spelling(name))
    return kind(**values)


def _read(workload: str, file: Path, known: Mapping[str, dataclasses.Field[Any]]) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, not TOML, or a number with thousands of digits
        raise WorkloadError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    named = table.pop("workload", workload)
    if named != workload:
        raise WorkloadError(f"{file} is a workload of kind {named!r}, not {workload!r}")
    unknown = sorted(set(table) - set(known))
    if unknown:
        keys = ", ".join(sorted(known))
        raise WorkloadError(f"{file}: unknown key {', '.join(map(repr, unknown))}; {workload} has: {keys}")
    values = {name: _typed(known[name], value, f"{file}: {name}") for name, value in table.items()}
    if isinstance(values.get("log"), str):
        values["log"] = str(file.parent / values["log"])
    return values


def _typed(row: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """Convert a command-line text, or a TOML value, to the row's type."""
    if row.name == "size" and type(value) is int:
        return str(value)  # a file may give a fixed size as a number
    if row.name == "bounds" and type(value) is list:
        value = json.dumps(value, default=str)  # a file has a list, and an option has the same list as JSON
    try:
        return converted(row, value)
    except ValueError as error:
        raise WorkloadError(f"{where} {error}") from None


def _check(made: Any) -> None:
    for row in dataclasses.fields(made):
        value = getattr(made, row.name)
        if should := out_of_bounds(row, value):
            raise WorkloadError(f"{row.name} {should}, not {shown(value) if isinstance(value, int) else f'{value:g}'}")
    if isinstance(made, _Paced):
        _check_bounds(made)


def _check_bounds(made: _Paced) -> None:
    try:
        held_s = max((group.held_s for group in made.groups), default=0.0)
    except ValueError as error:
        raise WorkloadError(f"bounds: {error}") from None
    if made.bounds_window and not made.groups:
        raise WorkloadError("bounds_window: only clients with bounds have a window; set bounds too")
    # With shorter limits, the run would count a held message as lost, or take its endpoint for dead.
    for name, limit_s in (("drain_s", made.drain_s), ("stall_s", made.stall_s)):
        if limit_s <= held_s:
            raise WorkloadError(
                f"bounds: an endpoint may hold a message for {held_s:g} s (staleness_ms, or 40.96 s if it is null), "
                f"but {name} is only {limit_s:g} s, and has to be longer"
            )


def _sizes(spec: str) -> None:
    try:
        sizes.parse(spec)
    except ValueError as error:
        raise WorkloadError(f"size: {error}") from None
