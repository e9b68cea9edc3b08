"""In which year the releases came out that are measured here: a comparison has to say how old each system is.

Owns: the table, and how a release is written with its year. Must never: guess. A release that is not in the table is
named without a year.

Where each year is from: of NATS and Centrifuge the time that Go's module proxy has of the release (`go list -m -json
MODULE@vVERSION`); of Redis its 00-RELEASENOTES and of Mosquitto its ChangeLog, which Debian's packages bring; of
RabbitMQ the date of its published Erlang package `rabbit_common`; of Kafka the date of the files in its jars. The year
is the release's own, not the one in which its series began: Redis 7.0.0 is of 2022, 7.0.15 of 2024.
"""

from __future__ import annotations

from collections.abc import Mapping

#: By the name in `bench rivals`, without what says which of two it is; then by release.
YEARS: Mapping[str, Mapping[str, int]] = {
    "rabbitmq": {"3.10.8": 2022},
    "kafka": {"4.3.1": 2026},
    "nats": {"2.9.10": 2022, "2.10.18": 2024, "2.10.27": 2025, "2.15.2": 2026},
    "redis": {"7.0.15": 2024},
    "mosquitto": {"2.0.11": 2021},
    "centrifuge": {"0.40.1": 2026},
}


def year(server: str, version: str) -> int | None:
    """Of a server of `bench rivals`; None where it is not known."""
    return YEARS.get(server.removesuffix("-current"), {}).get(version)


def written(version: str, year: int | None) -> str:
    """As tables have it: `2.9.10 (2022)`, or the release alone where its year is not known."""
    return version if year is None else f"{version} ({year})"
