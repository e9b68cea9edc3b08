"""The assignment of a generator process: one line of JSON, from which the process makes a plan and a backend.

Owns: the fields of that JSON. Every process, including the coordinator, makes the same plan from an assignment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..workloads import bounded, radio, replay, settings
from ..workloads.bounded import Group
from ..workloads.causal import CausalPlan
from ..workloads.plan import Plan
from ..workloads.radio import AirPlan, Crowd
from ..workloads.settings import Causal, Radio, Replay, Settings, Topics, Traffic
from ..workloads.topics import TopicsPlan
from ..workloads.traffic import TrafficPlan

#: Seconds of its log that a replay covers if no speed is given.
REPLAY_SPAN_S = 3600.0
#: Wish lists per played song, if the settings do not give a number. The full-size workload has this number (thesis
#: 1.3.2).
_WISHES = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a process has to do in a run.

    ``clients``: the prefix of client ids; ``tag``: the prefix of payloads; ``topics``: the number of topics in the
    topics workload; ``subscribed``: whether the system already has the wish lists; ``layer``: the Redis and the queue
    of the deduplication layer, if such a layer is in front of the system; ``lines``: whether several messages share a
    frame; ``metrics_urls``: the URLs of the endpoints' metrics and health, if these are not at ``urls``.
    """

    clients: str
    tag: str
    system: str
    urls: list[str]
    directory: str
    workload: str
    settings: dict[str, Any]
    duplicates: float
    process: int = 0
    processes: int = 1
    topics: int = 0
    subscribed: bool = False
    layer: dict[str, Any] | None = None
    lines: bool = False
    metrics_urls: list[str] = dataclasses.field(default_factory=list)

    def for_process(self, process: int) -> Assignment:
        return dataclasses.replace(self, process=process)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Assignment:
        return cls(**fields)

    def made(self) -> Settings:
        return settings.KINDS[self.workload](**self.settings)


def plan(assignment: Assignment) -> Plan:
    """Draw the plan of an assignment. Raises ``WorkloadError``."""
    made = assignment.made()
    if isinstance(made, Traffic):
        return TrafficPlan(made, duplicates=assignment.duplicates)
    if isinstance(made, Topics):
        return TopicsPlan(made, assignment.topics, assignment.tag)
    if isinstance(made, Causal):
        return CausalPlan(made)
    if assignment.subscribed:
        made = dataclasses.replace(made, idle_wishes=0)  # the system has these subscriptions already
    return air_plan(made)


def bounds(assignment: Assignment, connections: int) -> Sequence[Group | None]:
    """Return each client's group, indexed by connection number. The entry of a client without bounds is ``None``. The
    sequence is empty if no client has bounds."""
    made = assignment.made()
    if isinstance(made, Topics) or not made.bounds:
        return ()
    return bounded.assigned(made.groups, connections, made.seed)


def window(assignment: Assignment) -> int | None:
    """Return how many notifications a client with bounds may leave unconfirmed, or ``None`` if there is no limit."""
    made = assignment.made()
    return None if isinstance(made, Topics) else made.bounds_window or None


def clients_name(made: Settings) -> str:
    """Return the prefix of client ids for clients whose subscriptions outlive a run. The same world always gets the
    same prefix."""
    return f"{made.workload}-{made.seed}"


def air_plan(made: Radio | Replay) -> AirPlan:
    """Draw the plan of a radio world, which is either invented or recorded."""
    wishes = min(_WISHES, made.clients / 2) if made.wishes is None else made.wishes
    listens = min(made.listens, made.stations)
    crowd = Crowd(
        clients=made.clients,
        listens=listens,
        wishes=wishes,
        wish_exponent=made.wish_exponent,
        idle_wishes=made.idle_wishes,
        spread_s=made.spread_ms / 1000,
        seed=made.seed,
    )
    if isinstance(made, Radio):
        world = radio.radio(
            crowd, stations=made.stations, songs=made.songs, song_s=made.song_s, duration_s=made.duration_s
        )
        return AirPlan(world, made.payload_sizes, made.seed)
    log = replay.read(Path(made.log))
    speed = REPLAY_SPAN_S / made.duration_s if made.speed is None else made.speed
    world = replay.replay(
        log, crowd, stations=made.stations, start_s=made.start_s, speed=speed, duration_s=made.duration_s
    )
    end_s = made.start_s + made.duration_s * speed
    notes = [f"{Path(made.log).name}: {len(log.rows):,} changes; seconds {made.start_s:.15g} to {end_s:.15g}"]
    notes += [f"skipped {count:,} rows: {reason}" for reason, count in log.skipped.most_common()]
    return AirPlan(world, made.payload_sizes, made.seed, notes)
