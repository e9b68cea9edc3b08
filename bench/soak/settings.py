"""The settings of a soak.

Owns: the settings, their defaults and the reason of each, and which are options of the command. Must never: know how
they are used.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingeborg.protocol.options import option


@dataclass(frozen=True)
class Settings:
    """One soak. Rates are per second and of the whole set-up; shares are of the clients."""

    minutes: float = option(30.0, "length of the soak itself", "MINUTES", least=0, above=True)
    endpoints: int = option(3, "number of endpoints, at least two; the first is never killed", "N")
    clients: int = option(1_000, "number of clients: some are slow, and some move", "N", least=10)
    topics: int = option(2_000, "each with five subscribers", "N", least=1)
    #: Low enough that the load falls on the endpoints, not on the one process that receives everything.
    fanout: int = 5
    payload_bytes: int = 150
    rate: float = option(0.0, "publishes per second; 0: 70 % of the greatest rate, found first", "PER_S", least=0)
    load: float = 0.7
    #: Share of the publishes that another connection repeats a second later, and that have to be dropped.
    repeated: float = 0.1
    publishers: int = option(24, "connections that publish", "N", least=1)
    slow_share: float = 0.01
    moving_share_per_s: float = 0.01
    kill_every_s: float = option(60.0, "between two kills", "S")
    # Longer than the 3 s after which the others continue without it.
    down_s: float = option(5.0, "how long a killed endpoint stays away", "S", least=0)
    #: Payload of the messages that slow clients get in addition to their topics. They get 400 kB/s and read 64 kB/s:
    #: the kernel's buffers hold some 3 MB, so that a slow client is closed every ten to fifteen seconds.
    bulk_bytes: int = 16_384
    bulk_per_s: float = 25.0
    slow_read_bytes: int = 65_536
    slow_pause_s: float = 1.0
    outbox_bytes: int = 1 << 20
    dedup_ttl_s: float = 10.0
    step_s: float = option(4.0, "a step of the search for the greatest rate", "S", least=0, above=True)
    #: The limit that a step has to keep.
    p99_ms: float = 200.0
    start_rate: float = option(500.0, "the search's first step", "PER_S", least=0, above=True)
    #: Warm-up before memory is judged: by then each of the two other endpoints has been killed twice, and the surviving
    #: one has had its share of their clients and queues. A soak shorter than twice this time reports memory without
    #: judging it.
    warm_up_s: float = 300.0
    #: Allowed growth, after that, of the endpoint that is never killed. At the first kills it grows in steps; later it
    #: is flat. A leak of one byte per delivery would add as much in half an hour.
    growth_bytes: int = 60_000_000
    seed: int = option(1, "the same seed makes the same plan", "N")

    @property
    def slow(self) -> int:
        """Return the number of slow clients; at least one."""
        return max(1, round(self.slow_share * self.clients))
