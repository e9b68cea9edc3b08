"""What a soak is told.

Owns: the settings, their defaults and the reason of each, and which of them are options of the command. Must never:
know how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingeborg.protocol.options import option


@dataclass(frozen=True)
class Settings:
    """One soak. Rates are per second and of the whole set-up; shares are of the clients."""

    minutes: float = option(30.0, "of the soak itself", "MINUTES", least=0, above=True)
    endpoints: int = option(3, "of which the first is not killed; at least two", "N")
    clients: int = option(1_000, "of which some are slow, and some move", "N", least=10)
    topics: int = option(2_000, "each with five subscribers", "N", least=1)
    #: Few enough that the endpoints, and not the one process that receives it all, are what is loaded.
    fanout: int = 5
    payload_bytes: int = 150
    rate: float = option(0.0, "publishes a second; 0: 70 % of the greatest rate, found first", "PER_S", least=0)
    load: float = 0.7
    #: Of the publishes, so many are repeated by another connection a second later, and have to be dropped.
    repeated: float = 0.1
    publishers: int = option(24, "connections that publish", "N", least=1)
    slow_share: float = 0.01
    moving_share_per_s: float = 0.01
    kill_every_s: float = option(60.0, "between two kills", "S")
    # Longer than the 3 s after which the others do without it.
    down_s: float = option(5.0, "how long a killed endpoint stays away", "S", least=0)
    #: What slow clients are sent beside their topics. They get 400 kB/s and take 64: the kernel's buffers hold some
    #: 3 MB of it, so that they are closed upon every ten to fifteen seconds.
    bulk_bytes: int = 16_384
    bulk_per_s: float = 25.0
    slow_read_bytes: int = 65_536
    slow_pause_s: float = 1.0
    outbox_bytes: int = 1 << 20
    dedup_ttl_s: float = 10.0
    step_s: float = option(4.0, "a step of the search for the greatest rate", "S", least=0, above=True)
    #: What a step has to keep to.
    p99_ms: float = 200.0
    start_rate: float = option(500.0, "the search's first step", "PER_S", least=0, above=True)
    #: Before memory is looked at: with two others each has been killed twice, and the one that lives has had its share
    #: of their clients and of what waited for them. Memory of a shorter soak than twice that is told and not judged.
    warm_up_s: float = 300.0
    #: What the endpoint that lives through it all may grow by after that. At the first kills it goes by steps; later
    #: it is flat. A leak of a byte for each delivery of half an hour is as much.
    growth_bytes: int = 60_000_000
    seed: int = option(1, "the same seed makes the same plan", "N")

    @property
    def slow(self) -> int:
        """How many clients are slow; one at least."""
        return max(1, round(self.slow_share * self.clients))
