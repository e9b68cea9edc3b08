"""The systems that can be put under load, by name. An adapter is imported only when a run uses it, so the other
systems' client libraries need not be installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ingeborg.protocol.redaction import redacted

from .base import Backend, BackendError


class System(NamedTuple):
    """A system and its adapter. ``factory``: ``module:class``, called with ``(urls, run)``. ``packages``: the packages
    whose versions the log records. ``bounds``: whether the system's clients can have bounds, and its messages can have
    items and weights. If they can, the adapter is a ``BoundingBackend``."""

    factory: str
    schemes: tuple[str, ...]
    port: int
    packages: tuple[str, ...]
    deduplicates: bool
    bounds: bool = False


SYSTEMS = {
    "ingeborg": System("ingeborg:Ingeborg", ("ws", "wss"), 9000, ("ingeborg", "websockets", "orjson"), True, True),
    "rabbitmq": System("rabbitmq:RabbitMq", ("amqp",), 5672, ("aiormq", "pamqp"), False),
    "kafka": System("kafka:Kafka", ("kafka",), 9092, ("aiokafka",), False),
    "nats": System("nats:Nats", ("nats",), 4222, ("nats-py",), False),
    "redis": System("redis:Redis", ("redis",), 6379, ("redis", "hiredis"), False),
    "mqtt": System("mqtt:Mqtt", ("mqtt",), 1883, ("paho-mqtt",), False),
    "centrifuge": System("centrifuge:Centrifuge", ("ws", "wss"), 8000, ("websockets", "orjson"), False),
}


def check_urls(system: str, urls: Sequence[str], option: str = "--url") -> None:
    """Raise ``ValueError`` unless each URL has a host and a scheme of the system. ``option``: the command-line option
    that the error names."""
    schemes = SYSTEMS[system].schemes
    for url in urls:
        try:
            parts = urlsplit(url)
            fits = parts.scheme in schemes and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"{option} {redacted(url)}: {system} needs {schemes[0]}://HOST:PORT")


def open_backend(
    system: str, urls: Sequence[str], run: str, *, lines: bool = False, metrics_urls: Sequence[str] = ()
) -> Backend:
    """Return the adapter of a system.

    Args:
        system: the name of the system in ``SYSTEMS``.
        urls: the URLs of its servers.
        run: an id ([A-Za-z0-9-]) that goes into the names of everything that this run creates on the system.
        lines: whether several messages share a frame (ingeborg only).
        metrics_urls: the URLs of the endpoints' metrics, if these are not at ``urls`` (ingeborg only).

    Raises:
        BackendError: the client library of the system is not installed.
    """
    module, _, name = SYSTEMS[system].factory.partition(":")
    try:
        factory = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(__name__):
            raise
        raise BackendError(
            "not_installed", f"{system}: the package {error.name} is not installed: pip install 'ingeborg[rivals]'"
        ) from error
    ours: dict[str, Any] = {"lines": True} if lines else {}
    if metrics_urls:
        ours["metrics_urls"] = list(metrics_urls)
    backend: Backend = factory(list(urls), run, **ours)
    return backend
