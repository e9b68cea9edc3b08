"""What a soak is told.

Owns: the settings, their defaults and the reason of each. Must never: know how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One soak. Rates are per second and of the whole set-up; shares are of the clients."""

    minutes: float = 30.0
    endpoints: int = 3
    clients: int = 1_000
    #: Subscribed to by ``fanout`` clients each.
    topics: int = 2_000
    #: Few enough that the endpoints, and not the one process that receives it all, are what is loaded.
    fanout: int = 5
    payload_bytes: int = 150
    #: Publishes a second; 0: it is found first, and ``load`` of it is used.
    rate: float = 0.0
    load: float = 0.7
    #: Of the publishes, so many are repeated by another connection a second later, and have to be dropped.
    repeated: float = 0.1
    publishers: int = 24
    slow_share: float = 0.01
    moving_share_per_s: float = 0.01
    kill_every_s: float = 60.0
    #: For how long a killed endpoint stays away: longer than the 3 s after which the others do without it.
    down_s: float = 5.0
    #: What slow clients are sent beside their topics. They get 400 kB/s and take 64: the kernel's buffers hold some
    #: 3 MB of it, so that they are closed upon every ten to fifteen seconds.
    bulk_bytes: int = 16_384
    bulk_per_s: float = 25.0
    slow_read_bytes: int = 65_536
    slow_pause_s: float = 1.0
    outbox_bytes: int = 1 << 20
    dedup_ttl_s: float = 10.0
    #: A step of the search for the greatest rate; what it has to keep to.
    step_s: float = 4.0
    p99_ms: float = 200.0
    start_rate: float = 500.0
    #: Before memory is looked at: with two others each has been killed twice, and the one that lives has had its share
    #: of their clients and of what waited for them. Memory of a shorter soak than twice that is told and not judged.
    warm_up_s: float = 300.0
    #: What the endpoint that lives through it all may grow by after that. At the first kills it goes by steps; later
    #: it is flat. A leak of a byte for each delivery of half an hour is as much.
    growth_bytes: int = 60_000_000
    seed: int = 1

    @property
    def slow(self) -> int:
        """How many clients are slow; one at least."""
        return max(1, round(self.slow_share * self.clients))
