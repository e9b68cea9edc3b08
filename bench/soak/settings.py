"""The settings of a soak.

Owns: the settings, their defaults with the reasons, and the choice of settings that are options of the command. Must
never: use a setting.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingeborg.protocol.options import option


@dataclass(frozen=True)
class Settings:
    """The settings of one soak. Rates are per second, for the whole set-up. Shares are shares of the clients."""

    minutes: float = option(30.0, "length of the soak itself", "MINUTES", least=0, above=True)
    endpoints: int = option(3, "number of endpoints, at least two (the first is never killed)", "N")
    clients: int = option(1_000, "number of clients (some are slow, and some move)", "N", least=10)
    topics: int = option(2_000, "number of topics, each with five subscribers", "N", least=1)
    #: Subscribers of each topic. The number is small, so that the load falls on the endpoints and not on the one
    #: process that receives all messages.
    fanout: int = 5
    payload_bytes: int = 150
    rate: float = option(0.0, "publishes per second; 0 means 70 % of the greatest rate", "PER_S", least=0)
    load: float = 0.7
    #: Share of the publishes that another connection repeats a second later. The broker has to drop the repetitions.
    repeated: float = 0.1
    publishers: int = option(24, "number of connections that publish", "N", least=1)
    slow_share: float = 0.01
    moving_share_per_s: float = 0.01
    kill_every_s: float = option(60.0, "time between two kills", "S")
    # After 3 s, the other endpoints continue without the killed endpoint. This time is longer.
    down_s: float = option(5.0, "how long a killed endpoint stays away", "S", least=0)
    #: Payload of the messages that slow clients get in addition to the messages of their ordinary topics. Each slow
    #: client is sent 400 kB/s and reads 64 kB/s. The kernel's buffers hold about 3 MB, so an endpoint closes a slow
    #: client's connection every ten to fifteen seconds.
    bulk_bytes: int = 16_384
    bulk_per_s: float = 25.0
    slow_read_bytes: int = 65_536
    slow_pause_s: float = 1.0
    outbox_bytes: int = 1 << 20
    dedup_ttl_s: float = 10.0
    step_s: float = option(4.0, "length of a step of the search for the greatest rate", "S", least=0, above=True)
    #: The limit of p99 latency for a rate that counts as sustained.
    p99_ms: float = 200.0
    start_rate: float = option(500.0, "the rate of the search's first step", "PER_S", least=0, above=True)
    #: Warm-up before memory is judged. Within this time, each of the two other endpoints is killed twice, and the
    #: surviving endpoint takes over its share of their clients and queues. A soak shorter than twice this time reports
    #: memory without judging it.
    warm_up_s: float = 300.0
    #: Allowed growth of the memory of the endpoint that is never killed, after the warm-up. At the first kills, the
    #: memory grows in steps. Later it is constant. A leak of one byte per delivery would cause this growth in half an
    #: hour.
    growth_bytes: int = 60_000_000
    seed: int = option(1, "the same seed makes the same plan", "N")

    @property
    def slow(self) -> int:
        """Return the number of slow clients, which is at least one."""
        return max(1, round(self.slow_share * self.clients))
