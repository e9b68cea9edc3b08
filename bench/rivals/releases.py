"""The years of the measured releases, because a comparison has to say how old each system is.

Owns: the table, and the text of a release with its year. Must never: guess. A release outside the table has no year.

The years of NATS and Centrifuge come from the time that Go's module proxy has for the release
(`go list -m -json MODULE@vVERSION`). The years of Redis and Mosquitto come from the files 00-RELEASENOTES and ChangeLog
in Debian's packages. RabbitMQ's year is the year of its published Erlang package `rabbit_common`. Kafka's year is the
year of the files in its jars. The year is that of the exact release, not that of its series: Redis 7.0.0 is from 2022,
and 7.0.15 is from 2024.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Years by the server's name in `bench rivals` (without the suffix `-current`) and by the release.
YEARS: Mapping[str, Mapping[str, int]] = {
    "rabbitmq": {"3.10.8": 2022},
    "kafka": {"4.3.1": 2026},
    "nats": {"2.9.10": 2022, "2.10.18": 2024, "2.10.27": 2025, "2.15.2": 2026},
    "redis": {"7.0.15": 2024},
    "mosquitto": {"2.0.11": 2021},
    "centrifuge": {"0.40.1": 2026},
}


def year(server: str, version: str) -> int | None:
    """Return the year of a release, or None if it is unknown."""
    return YEARS.get(server.removesuffix("-current"), {}).get(version)


def written(version: str, year: int | None) -> str:
    """Return the text for tables: `2.9.10 (2022)`, or the release alone if its year is unknown."""
    return version if year is None else f"{version} ({year})"
